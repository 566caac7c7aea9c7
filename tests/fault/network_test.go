package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// Where things are in the tests of networks.
const (
	farPublic  = "93.184.215.14" // a web server of the world
	farPrivate = "10.9.8.7"      // the same one
	published  = "127.0.0.1:8088"
)

// yard is a namespace that stands for the host's, with a link to one that stands
// for the world.
type yard struct {
	near, far harness.Namespace
	client    *http.Client // in near
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{near: harness.NewNamespace(t), far: harness.NewNamespace(t)}
	y.near.Run(t, "ip link add up0 type veth peer name e0 netns "+y.far.Path)
	for _, line := range []string{
		"ip addr add 198.51.100.1/24 dev up0", "ip link set up0 up", "ip route add default via 198.51.100.2", "busybox sysctl -w net.ipv4.conf.up0.forwarding=1",
	} {
		y.near.Run(t, line)
	}
	for _, line := range []string{
		"ip addr add 198.51.100.2/24 dev e0", "ip link set e0 up", "ip addr add " + farPublic + "/32 dev lo", "ip addr add " + farPrivate + "/32 dev lo",
		"ip route add 10.87.0.0/24 via 198.51.100.1", // what leaves unmasked is answered too
	} {
		y.far.Run(t, line)
	}
	for _, addr := range []string{farPublic, farPrivate} {
		y.serve(t, addr+":80")
	}
	y.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: y.dialContext}}
	return y
}

// serve opens a web server in the world.
func (y *yard) serve(t *testing.T, addr string) {
	t.Helper()
	var l net.Listener
	if err := y.far.Do(func() (err error) { l, err = net.Listen("tcp4", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the world") })) // it ends with its listener
}

// dial connects as a program of the host. It takes no context: watching one needs a
// goroutine, which would not be in the namespace.
func (y *yard) dial(network, addr string) (c net.Conn, err error) {
	doErr := y.near.Do(func() error {
		c, err = net.Dial(network, addr)
		return err
	})
	return c, doErr
}

func (y *yard) dialContext(_ context.Context, network, addr string) (net.Conn, error) {
	return y.dial(network, addr)
}

// get asks a sandbox's published port, as a program of the host.
func (y *yard) get(path string) (string, error) {
	r, err := y.client.Get("http://" + published + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return strings.TrimSpace(string(body)), err
}

// wired is a sandbox's network, with all that the host holds for it.
type wired struct {
	name           string
	settings       string
	create, remove string // the steps that make and remove something of it, and the last ones; TestKilledInCreate has all
	flags          []string
	begin          func(*testing.T, *breakable)
	works          func(t *testing.T, b *breakable, ref string)
}

var wires = []wired{
	{
		name:   "linked",
		create: "ports netns egress record", remove: "egress netns ports ids",
		flags: []string{"--allow", "web.example", "--link", "db=store:8080", "-p", "8088:8080"},
		begin: func(t *testing.T, b *breakable) {
			b.stays = strings.TrimSpace(b.Run(t, "create", "--name", "store", "--expose", "8080").Stdout)
			b.Run(t, "exec", "-d", "store", "--", "sh", "-c", "echo kept > /tmp/note; exec httpd -f -p 127.0.0.1:8080 -h /tmp")
		},
		works: func(t *testing.T, b *breakable, ref string) {
			if out := b.Run(t, "exec", ref, "--", "wget", "-qO-", "http://db:8080/note").Stdout; out != "kept\n" {
				t.Errorf("the link answers %q", out)
			}
			if r := b.Try("exec", ref, "--", "wget", "-qO-", "http://other.example/"); r.Code == 0 || !strings.Contains(r.Stderr, "bad address") {
				t.Errorf("what no rule allows: %+v", r)
			}
		},
	},
	{
		name: "bridge", settings: "ids: {blocks: 64}\nnetwork: {bridge: {subnet: 10.87.0.0/24}}\n",
		create: "ports netns bridge egress record", remove: "egress bridge netns ports ids",
		flags: []string{"--network", "bridge", "-p", "8088:8080"},
		begin: func(*testing.T, *breakable) {},
		works: func(t *testing.T, b *breakable, ref string) {
			if out := b.Run(t, "exec", ref, "--", "wget", "-qO-", "http://"+farPublic+"/").Stdout; out != "the world" {
				t.Errorf("the world says %q", out)
			}
			if r := b.Try("exec", ref, "--", "wget", "-qO-", "http://"+farPrivate+"/"); r.Code == 0 {
				t.Errorf("a private address: %+v", r)
			}
			// The first address of the subnet: those of all the sandboxes before are free.
			if out := b.Run(t, "exec", ref, "--", "ifconfig", "eth0").Stdout; !strings.Contains(out, "addr:10.87.0.1 ") {
				t.Errorf("the sandbox's link:\n%s", out)
			}
		},
	},
}

// What the host holds for a sandbox's network is no exception: after a kill or a
// failure at any step nothing is left of links, rules, routes, addresses, ports and
// sockets, and the next sandbox has all of it (F02, F04, F23, F25).
func TestBrokenNetwork(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel() // they wait for their daemons
			y := newYard(t)
			b := newBreakableIn(t, w.settings, y.near.Enter()...)
			before := harness.NetworkTraces(t, y.near.Enter())
			w.begin(t, b)
			p := &plot{wired: w, yard: y, b: b, before: before}
			p.oracleSees(t)
			t.Run("create", p.breakCreate)
			t.Run("remove", p.breakRemove)
		})
	}
}

// plot is a sandbox's network in a yard, and the daemon that is broken there.
type plot struct {
	wired
	*yard
	b      *breakable
	before string // what the yard had of a network without a sandbox
}

// oracleSees shows that what is looked for is seen where there is a sandbox.
func (p *plot) oracleSees(t *testing.T) {
	t.Helper()
	p.b.Run(t, append([]string{"create", "--name", "seen"}, p.flags...)...)
	if now := harness.NetworkTraces(t, p.near.Enter()); (now != p.before) != (p.name == "bridge") {
		t.Errorf("with a sandbox the host has:\n%s\nbefore:\n%s", now, p.before)
	}
	if out := p.near.Run(t, "busybox wget -qO- http://"+farPrivate+"/"); out != "the world" {
		t.Errorf("what sandboxes must not reach: %q", out)
	}
	p.reaches(t, "seen")
	p.cleared(t)
}

func (p *plot) breakCreate(t *testing.T) {
	for _, step := range need.Turn(t, strings.Fields(p.create)) {
		t.Run(step+" killed", func(t *testing.T) {
			p.b.createKilled(t, step, p.flags...)
			p.reaches(t, "made")
			p.cleared(t)
		})
	}
	p.b.Run(t, append([]string{"create", "--name", "whole"}, p.flags...)...)
	p.reaches(t, "whole")
	p.cleared(t)
	held := p.sockets(t)
	for _, step := range need.Turn(t, strings.Fields(p.create)) {
		t.Run(step+" fails", func(t *testing.T) {
			p.b.createFailed(t, step, p.flags...)
			p.reaches(t, "made")
			p.cleared(t)
		})
	}
	if now := p.sockets(t); now[0] > held[0] || now[1] > held[1] {
		t.Errorf("daemon and gateway have %v sockets, before the failures they had %v", now, held)
	}
}

func (p *plot) breakRemove(t *testing.T) {
	args := append([]string{"create", "--name", "doomed"}, p.flags...)
	for _, step := range need.Turn(t, strings.Fields(p.remove)) {
		t.Run(step+" killed", func(t *testing.T) {
			p.b.Run(t, args...)
			p.b.removeKilled(t, step)
			p.cleared(t)
		})
	}
	for _, step := range need.Turn(t, strings.Fields(p.remove)) {
		t.Run(step+" fails", func(t *testing.T) {
			p.b.Run(t, args...)
			p.b.removeFailed(t, step)
			p.cleared(t)
		})
	}
}

// A ready sandbox has the policy of whoever got it, whole, or nobody gets it: never
// that of the profile in its place, and no port that it had (F02, F23).
func TestBrokenPolicy(t *testing.T) {
	t.Parallel() // it waits for pools
	y := newYard(t)
	b := newBreakableIn(t, "ids: {blocks: 64}\nprofiles: {web: {network: {mode: allow, allow: [\"10.9.8.7/32:80,private\"]}}}\npools: [{profile: web, size: 2}]\n", y.near.Enter()...)
	create := []string{"create", "--json", "--name", "made", "--profile", "web", "--allow", farPublic + "/32:80", "-p", "8088:8080"}
	if out := b.Run(t, "run", "--profile", "web", "--", "wget", "-qO-", "http://"+farPrivate+"/").Stdout; out != "the world" {
		t.Fatalf("the control, the profile alone: %q", out)
	}
	for _, point := range []string{"update/limits", "update/egress", "assign/record"} {
		t.Run(point+" killed", func(t *testing.T) {
			ready(t, b.Daemon)
			b.arm(t, point+"=kill")
			broken := begin(t, b.Daemon, create...)
			b.died(t, point)
			checkTyped(t, broken.end(t))
			ready(t, b.Daemon)
			for _, s := range list(t, b.Daemon) { // it was recorded: who asked was not told
				y.checkPolicy(t, b)
				b.Run(t, "rm", "--force", s.ID)
			}
			y.checkAssigned(t, b, create)
		})
		t.Run(point+" fails", func(t *testing.T) {
			ready(t, b.Daemon)
			b.arm(t, point+"=error")
			b.Run(t, create...) // another one is made
			b.disarm(t)
			y.checkPolicy(t, b)
			b.Run(t, "rm", "--force", "made")
			y.checkAssigned(t, b, create)
		})
	}
}

// checkAssigned makes a sandbox out of the pool and fails t unless all that it was made
// with goes with it.
func (y *yard) checkAssigned(t *testing.T, b *breakable, create []string) {
	t.Helper()
	checkPoolSound(t, b.Daemon)
	if c, err := y.dial("tcp4", published); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the port of a sandbox that nobody got: %v, %v", c, err)
	}
	b.Run(t, create...)
	y.checkPolicy(t, b)
	b.Run(t, "rm", "--force", "made")
	checkPoolSound(t, b.Daemon)
	if c, err := y.dial("tcp4", published); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the port of a removed sandbox: %v, %v", c, err)
	}
}

// checkPolicy fails t unless the gateway and the ports do for the sandbox what its
// request said.
func (y *yard) checkPolicy(t *testing.T, b *breakable) {
	t.Helper()
	if out := b.Run(t, "exec", "made", "--", "wget", "-qO-", "http://"+farPublic+"/").Stdout; out != "the world" {
		t.Errorf("what it asked for: %q", out)
	}
	if r := b.Try("exec", "made", "--", "wget", "-qO-", "http://"+farPrivate+"/"); r.Code != 1 {
		t.Errorf("what its profile allows others: %+v", r)
	}
	c, err := y.dial("tcp4", published)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) { // nothing listens inside
		t.Errorf("its port: %v", err)
	}
	if err == nil {
		_ = c.Close()
	}
}

// reaches fails t unless the sandbox reaches, and is reached, as it was asked for.
func (p *plot) reaches(t *testing.T, ref string) {
	t.Helper()
	p.works(t, p.b, ref)
	p.b.Run(t, "exec", "-d", ref, "--", "sh", "-c", "echo here > /tmp/note; exec httpd -f -p 127.0.0.1:8080 -h /tmp")
	await(t, "answer at the published port", func() bool {
		said, err := p.get("/note")
		return err == nil && said == "here"
	})
}

// cleared removes all sandboxes but the one that stays, and fails t if the host
// holds anything of their network after that.
func (p *plot) cleared(t *testing.T) {
	t.Helper()
	p.b.empty(t)
	if now := harness.NetworkTraces(t, p.near.Enter()); now != p.before {
		t.Errorf("the host has:\n%s\nbefore:\n%s", now, p.before)
	}
	if c, err := p.dial("tcp4", published); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the published port: %v, %v", c, err)
	}
	if pids := programs(t, p.b.Daemon, "caisson-gateway"); len(pids) > 1 {
		t.Errorf("there are %d gateways", len(pids))
	}
}

// sockets counts those of the daemon and of its gateway while there is no sandbox, as
// the gateway keeps some in stock for each. It gives them time to be closed.
func (p *plot) sockets(t *testing.T) (n [2]int) {
	t.Helper()
	p.b.stays = ""
	p.b.empty(t)
	time.Sleep(time.Second) // nothing announces the end of a connection
	n[0] = socketsOf(t, p.b.PID())
	for _, pid := range programs(t, p.b.Daemon, "caisson-gateway") {
		n[1] += socketsOf(t, pid)
	}
	p.begin(t, p.b)
	return n
}

func socketsOf(t *testing.T, pid int) (n int) {
	t.Helper()
	for _, link := range glob(t, fmt.Sprintf("/proc/%d/fd/*", pid)) {
		if to, err := os.Readlink(link); err == nil && (strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "net:")) { // closed meanwhile
			n++
		}
	}
	return n
}
