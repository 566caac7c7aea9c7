package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/tests/need"
)

// The peers of these tests: users that no host has.
const (
	peerAnn   = 1830061234
	peerBob   = 1830061244
	peerEve   = 1830061254
	peerGroup = 1830061264
)

const peerVariable = "CAISSON_TEST_PEER_CALLS"

// calls are what a process of another user does.
type calls struct {
	Socket string
	HTTP2  bool
	Paths  []string // of requests, one after the other
	Unsent bool     // announce a body and never send it
	Flood  int      // connections to open
	Most   int      // of which so many are kept
}

type answer struct {
	Status int
	Body   string
	Held   int
}

// init makes the test's own program the process of another user.
func init() {
	text := os.Getenv(peerVariable)
	if text == "" {
		return
	}
	var c calls
	err := json.Unmarshal([]byte(text), &c)
	var answers []answer
	if err == nil {
		answers, err = c.do()
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // hold what is held until told to end
	os.Exit(0)
}

func (c calls) do() ([]answer, error) {
	if c.Flood > 0 {
		return c.flood()
	}
	if c.Unsent {
		return c.unsent()
	}
	var answers []answer
	client := clientOf(c.Socket, c.HTTP2)
	for _, path := range c.Paths {
		r, err := client.Post("http://caisson"+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		answers = append(answers, answer{Status: r.StatusCode, Body: string(body)})
	}
	return answers, nil
}

func (c calls) unsent() ([]answer, error) {
	conn, err := net.Dial("unix", c.Socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	// So few that the server would wait for them before it answers.
	if _, err := io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: c\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		return nil, err
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if !r.Close {
		return nil, errors.New("the daemon still waits for the body")
	}
	body, err := io.ReadAll(r.Body)
	return []answer{{Status: r.StatusCode, Body: string(body)}}, err
}

// flood opens connections and waits until the daemon has closed those past
// Most. It gives up before the daemon would close a silent one anyway.
func (c calls) flood() ([]answer, error) {
	ended := make(chan struct{}, c.Flood)
	for range c.Flood {
		conn, err := net.Dial("unix", c.Socket)
		if err != nil {
			return nil, err
		}
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			ended <- struct{}{}
		}()
	}
	timeout := time.After(readHeaderTimeout * 8 / 10)
	held := c.Flood
	for held > c.Most {
		select {
		case <-ended:
			held--
		case <-timeout:
			return []answer{{Held: held}}, nil
		}
	}
	return []answer{{Held: held}}, nil
}

func clientOf(socket string, http2 bool) *http.Client {
	t := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: t}
}

// asUser does the calls in a process of that user, which ends when stop is
// called, at the latest with the test.
func asUser(t *testing.T, uid uint32, c calls, groups ...uint32) (answers []answer, stop func()) {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe") // the directory of the test's program may be closed to the user
	cmd.Env = []string{peerVariable + "=" + string(data)}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	if err := json.NewDecoder(out).Decode(&answers); err != nil {
		t.Fatalf("uid %d: %v", uid, err)
	}
	return answers, stop
}

// ask is asUser for requests alone.
func ask(t *testing.T, uid uint32, socket string, paths ...string) []answer {
	t.Helper()
	answers, stop := asUser(t, uid, calls{Socket: socket, Paths: paths})
	stop()
	return answers
}

// miniCore does with grants what the core does, for sandboxes that are nothing
// but their owners.
type miniCore struct {
	policy peer.Policy
	mu     sync.Mutex
	made   []box
}

type box struct {
	name   string
	owner  uint32
	parent string
	limits peer.Limits
}

// ServeHTTP: /create?..., /list, /remove?name=.
func (m *miniCore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := m.serve(r)
	if err != nil {
		d, _ := sbxerr.Describe(sbxerr.Of(err))
		http.Error(w, err.Error(), d.HTTP)
		return
	}
	_, _ = io.WriteString(w, text)
}

func (m *miniCore) serve(r *http.Request) (string, error) {
	c, err := peer.Require(r.Context())
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g, err := m.grant(c)
	if err != nil {
		return "", err
	}
	switch q := r.URL.Query(); r.URL.Path {
	case "/create":
		return "made", m.create(r.Context(), g, q.Get)
	case "/list":
		var names []string
		for _, b := range m.made {
			if g.Sees(b.owner, b.parent) {
				names = append(names, b.name)
			}
		}
		return strings.Join(names, ","), nil
	case "/remove":
		i := slices.IndexFunc(m.made, func(b box) bool { return b.name == q.Get("name") && g.Sees(b.owner, b.parent) })
		if i < 0 {
			return "", sbxerr.New(sbxerr.NotFound, "test.remove", "no sandbox %q", q.Get("name"))
		}
		m.made = slices.Delete(m.made, i, i+1)
		return "removed", nil
	}
	return "", sbxerr.New(sbxerr.Config, "test.serve", "no path %q", r.URL.Path)
}

func (m *miniCore) grant(c peer.Caller) (peer.Grant, error) {
	if c.Sandbox == "" {
		return m.policy.Grant(c)
	}
	i := slices.IndexFunc(m.made, func(b box) bool { return b.name == c.Sandbox })
	if i < 0 {
		return peer.Grant{}, sbxerr.New(sbxerr.NotFound, "test.grant", "no sandbox")
	}
	b := m.made[i]
	return m.policy.GrantNested(c, peer.Parent{
		ID: b.name, Owner: peer.User(b.owner, b.owner, nil, 0), Profile: "strict", Limits: b.limits, Budget: peer.DefaultBudget(b.limits),
	})
}

func (m *miniCore) create(ctx context.Context, g peer.Grant, q func(string) string) error {
	limits := peer.Limits{MemoryBytes: 256 << 20, MilliCPU: 500, PIDs: 64, TmpfsBytes: 1 << 20}
	if q("memory") != "" {
		if _, err := fmt.Sscan(q("memory"), &limits.MemoryBytes); err != nil {
			return err
		}
	}
	now := peer.Standing{Below: make([]peer.Descendants, len(g.Above()))}
	for _, b := range m.made {
		if b.owner == g.Owner().UID {
			now.Owner.Sandboxes++
			now.Owner.MemoryBytes += b.limits.MemoryBytes
		}
		if b.parent != "" && b.parent == g.Parent() {
			now.Below[0].Sandboxes++
			now.Below[0].MemoryBytes += b.limits.MemoryBytes
		}
	}
	err := errors.Join(g.CheckProfile(q("profile")), g.CheckLimits(limits, g.TTL(nil)),
		g.CheckQuota(now, peer.Usage{Sandboxes: 1, MemoryBytes: limits.MemoryBytes}))
	if dir := q("workspace"); err == nil && dir != "" {
		var d *peer.Directory
		if d, err = g.CheckWorkspace(ctx, dir, q("mode") != "ro"); err == nil {
			err = d.Close()
		}
	}
	if err == nil {
		m.made = append(m.made, box{q("name"), g.Owner().UID, g.Parent(), limits})
	}
	return err
}

// peerDir is a directory that every user can reach.
func peerDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson-peer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listenFor makes a socket that every user can connect to.
func listenFor(t *testing.T) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(peerDir(t), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.Addr().String(), 0o666); err != nil {
		t.Fatal(err)
	}
	return l
}

// serveFor serves h on l until the test ends.
func serveFor(t *testing.T, l net.Listener, h http.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h, 50*time.Millisecond) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// startPeers serves a core for ann and bob, and for the members of a group.
func startPeers(t *testing.T) (socket string, core *miniCore, listener *identified) {
	t.Helper()
	need.Root(t, "it becomes others")
	base := peer.Rule{Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota()}
	people, group := base, base
	people.UIDs, group.GIDs = []uint32{peerAnn, peerBob}, []uint32{peerGroup}
	people.Quota.Sandboxes, people.Profiles = 3, []string{"build"}
	policy, err := peer.NewPolicy([]peer.Rule{people, group})
	if err != nil {
		t.Fatal(err)
	}
	core = &miniCore{policy: policy}
	l := listenFor(t)
	socket = l.Addr().String()
	listener = Identify(l, policy.Admit).(*identified)
	serveFor(t, listener, core)
	return socket, core, listener
}

func want(t *testing.T, what string, a answer, status int, text string) {
	t.Helper()
	if a.Status != status || !strings.Contains(a.Body, text) {
		t.Errorf("%s: %d %s, want %d %q", what, a.Status, a.Body, status, text)
	}
}

func TestPeerNotListed(t *testing.T) {
	socket, core, _ := startPeers(t)
	want(t, "root, the control", ask(t, 0, socket, "/create?name=r")[0], 200, "made")
	for _, http2 := range []bool{false, true} {
		answers, stop := asUser(t, peerEve, calls{Socket: socket, HTTP2: http2, Paths: []string{"/list", "/create?name=e"}})
		stop()
		for _, a := range answers {
			want(t, "not listed", a, 403, fmt.Sprintf("uid %d may not use this daemon", peerEve))
			want(t, "not listed", a, 403, "SBX-805")
		}
		answers, stop = asUser(t, peerEve, calls{Socket: socket, HTTP2: http2, Paths: []string{"/list"}}, 5, peerGroup)
		stop()
		want(t, "as a member of the group", answers[0], 200, "")
	}
	answers, stop := asUser(t, peerEve, calls{Socket: socket, Unsent: true})
	stop()
	want(t, "before the body is read", answers[0], 403, "SBX-805")
	if len(core.made) != 1 {
		t.Errorf("there are %+v", core.made)
	}
}

func TestPeerSeesItsOwn(t *testing.T) {
	socket, _, _ := startPeers(t)
	want(t, "ann", ask(t, peerAnn, socket, "/create?name=a")[0], 200, "made")
	want(t, "bob", ask(t, peerBob, socket, "/create?name=b")[0], 200, "made")
	for uid, list := range map[uint32]string{peerAnn: "a", peerBob: "b", 0: "a,b"} {
		if got := ask(t, uid, socket, "/list")[0]; got.Status != 200 || got.Body != list {
			t.Errorf("uid %d sees %+v, want %q", uid, got, list)
		}
	}
	there := ask(t, peerBob, socket, "/remove?name=a", "/remove?name=x")
	want(t, "another's", there[0], 404, "no sandbox")
	if strings.ReplaceAll(there[0].Body, `"a"`, "") != strings.ReplaceAll(there[1].Body, `"x"`, "") {
		t.Errorf("another's sandbox and none differ: %q, %q", there[0].Body, there[1].Body)
	}
	want(t, "root", ask(t, 0, socket, "/remove?name=a")[0], 200, "removed")
}

func TestPeerBounds(t *testing.T) {
	socket, _, _ := startPeers(t)
	answers := ask(t, peerAnn, socket, "/create?name=1&profile=build", "/create?profile=debug", "/create?memory=3221225472",
		"/create?name=2", "/create?name=3", "/create?name=4")
	want(t, "a profile of its own", answers[0], 200, "made")
	want(t, "debug", answers[1], 403, "SBX-805")
	want(t, "a ceiling", answers[2], 403, "memory 3072M is above the ceiling 2048M")
	want(t, "the quota", answers[5], 429, "SBX-113")
	want(t, "another's quota", ask(t, peerBob, socket, "/create?name=5")[0], 200, "made")
	want(t, "root's", ask(t, 0, socket, "/create?profile=debug&memory=3221225472")[0], 200, "made")
}

func TestPeerWorkspace(t *testing.T) {
	socket, _, _ := startPeers(t)
	base := peerDir(t)
	for name, d := range map[string]struct {
		uid  int
		mode os.FileMode
	}{"ann": {peerAnn, 0o700}, "open": {0, 0o755}, "everybody": {0, 0o777}} {
		dir := filepath.Join(base, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, d.uid, d.uid), os.Chmod(dir, d.mode)); err != nil {
			t.Fatal(err)
		}
	}
	path := func(name, mode string) string {
		return "/create?workspace=" + filepath.Join(base, name) + "&mode=" + mode
	}
	answers := ask(t, peerBob, socket, path("ann", "ro"), path("open", "ro"), path("open", "rw"), path("everybody", "rw"))
	want(t, "what it cannot read", answers[0], 403, "may not read host directory")
	want(t, "what it can read", answers[1], 200, "made")
	want(t, "what it cannot write", answers[2], 403, "may not write host directory")
	want(t, "what is not its own", answers[3], 403, "it belongs to 0:0")
	want(t, "its own", ask(t, peerAnn, socket, path("ann", "rw"))[0], 200, "made")
	want(t, "root, the control", ask(t, 0, socket, path("ann", "rw"))[0], 200, "made")
}

// TestPeerFlood has a user, and a process of root, open as many idle connections as
// it can. Each is held to its bound, and delays nobody else.
func TestPeerFlood(t *testing.T) {
	socket, _, listener := startPeers(t)
	for uid, most := range map[uint32]int{peerAnn: maxPerUser, peerEve: maxUnlisted, 0: maxPerProcess} {
		answers, stop := asUser(t, uid, calls{Socket: socket, Flood: most + 20, Most: most})
		if held := answers[0].Held; held != most {
			t.Errorf("uid %d holds %d connections, want %d", uid, held, most)
		}
		begun := time.Now()
		want(t, "bob", ask(t, peerBob, socket, "/list")[0], 200, "")
		want(t, "root", ask(t, 0, socket, "/list")[0], 200, "")
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("beside idle connections of uid %d, two calls took %v", uid, took)
		}
		stop()
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		listener.held.mu.Lock()
		left := len(listener.held.held)
		listener.held.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bounds are still held", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestPeerNested: through a sandbox's own socket even root is that sandbox.
func TestPeerNested(t *testing.T) {
	socket, core, _ := startPeers(t)
	for _, a := range ask(t, peerAnn, socket, "/create?name=p", "/create?name=other") {
		want(t, "ann", a, 200, "made")
	}
	l := listenFor(t)
	serveFor(t, IdentifyNested(l, "p", core.policy.Admit), core)
	inside := l.Addr().String()
	for _, uid := range []uint32{0, peerEve} {
		answers := ask(t, uid, inside, "/list", "/create?workspace=/tmp/x", "/create?name=c", "/list", "/create?profile=build",
			"/create?memory=268435457", "/remove?name=other", "/remove?name=p", "/remove?name=c")
		want(t, "no child yet", answers[0], 200, "")
		want(t, "a directory of the host", answers[1], 403, "no workspace of which a child")
		want(t, "a child", answers[2], 200, "made")
		if answers[3].Body != "c" {
			t.Errorf("it sees %q", answers[3].Body)
		}
		want(t, "another profile", answers[4], 403, "SBX-805")
		want(t, "more than itself", answers[5], 403, "SBX-805")
		want(t, "its neighbour", answers[6], 404, "no sandbox")
		want(t, "itself", answers[7], 404, "no sandbox")
		want(t, "its child", answers[8], 200, "removed")
	}
}

// TestPeerUnknownListener: a listener that knows no callers gives none, and a
// core that asks for one refuses.
func TestPeerUnknownListener(t *testing.T) {
	l := listenFor(t)
	serveFor(t, l, &miniCore{})
	r, err := clientOf(l.Addr().String(), false).Post("http://caisson/list", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	want(t, fmt.Sprint("no caller: ", err), answer{Status: r.StatusCode, Body: string(body)}, 403, "does not say who makes it")
}
