package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// The environment of the chaos run.
const (
	chaosEnv     = "CAISSON_CHAOS"      // how long, as a duration
	chaosSeedEnv = "CAISSON_CHAOS_SEED" // of the kills, to have the same order of them again
)

const chaosSettings = "ids: {blocks: 64}\npools: [{size: 3}]\nsandboxes: {per_shim: 3}\n"

// chaos is one run of it.
type chaos struct {
	*harness.Daemon
	t   *testing.T
	ctx context.Context // ends with the time

	mu     sync.Mutex
	killed map[string]string // sandboxes that were killed themselves, and how
	kills  map[string]int
	calls  map[string]int
	site   string // that visitors may reach
}

// Whatever is killed, and whenever: what was not killed itself goes on without a
// gap, every failure has a code, and at the end nothing is left (F56).
func TestChaos(t *testing.T) {
	span, err := time.ParseDuration(envOr(chaosEnv, "20s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(envOr(chaosSeedEnv, strconv.FormatInt(time.Now().UnixNano(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s=%s %s=%d", chaosEnv, span, chaosSeedEnv, seed)
	d := harness.New(t)
	site := welcome(t)
	d.Settings = chaosSettings + "network: {map: {site.example: 127.0.0.1}}\n"
	d.Launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	c := &chaos{Daemon: d, t: t, ctx: ctx, killed: map[string]string{}, kills: map[string]int{}, calls: map[string]int{}, site: site}
	var clients sync.WaitGroup
	for i, client := range []func(int){c.runs, c.sessions, c.counters, c.counters, c.copies, c.visits} {
		clients.Go(func() { client(i) })
	}
	c.killAround(rand.New(rand.NewPCG(seed, 0)))
	clients.Wait()
	t.Logf("kills: %v, calls: %v", c.kills, c.calls)
	c.finish()
}

func envOr(name, value string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return value
}

// finish removes what there is and checks that nothing is left.
func (c *chaos) finish() {
	t, d := c.t, c.Daemon
	for _, s := range list(t, d) {
		if r := d.Try("rm", "--json", "--force", s.ID); r.Code != 0 && c.code(r) != "SBX-107" { // that of a run goes by itself
			t.Errorf("rm: %+v", r)
		}
	}
	await(t, "full pool", func() bool { return poolReady(t, d) == 3 })
	checkPoolSound(t, d)
	for _, path := range glob(t, filepath.Join(d.Root, "spool", "*")) {
		t.Errorf("left: %s", path)
	}
	if out := d.Run(t, "run", "--allow", c.site, "--", "wget", "-qO-", "http://"+c.site+"/").Stdout; out != "welcome" {
		t.Errorf("the last visitor got %q", out)
	}
	if out := d.Run(t, "run", "--", "echo", "ok").Stdout; out != "ok\n" {
		t.Errorf("the last run printed %q", out)
	}
	d.Stop(t)
	d.CheckNothingLeft(t)
}

// killAround kills one thing after the other until the time is over.
func (c *chaos) killAround(random *rand.Rand) {
	victims := []func(*rand.Rand){c.killDaemon, c.killContainerd, c.killShim, c.killInit, c.killInit, c.killGateway}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(time.Duration(200+random.IntN(1300)) * time.Millisecond):
			victims[random.IntN(len(victims))](random)
		}
	}
}

func (c *chaos) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills[what]++
}

func (c *chaos) killDaemon(random *rand.Rand) {
	c.count("daemon")
	c.Kill(c.t)
	time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // a supervisor is not faster
	c.Launch(c.t)
}

func (c *chaos) killContainerd(*rand.Rand) {
	for _, pid := range programs(c.t, c.Daemon, "containerd") {
		c.count("containerd")
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

func (c *chaos) killGateway(*rand.Rand) {
	for _, pid := range programs(c.t, c.Daemon, "caisson-gateway") {
		c.count("gateway")
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

func (c *chaos) killShim(random *rand.Rand) {
	if pids := shims(c.t, c.Daemon); len(pids) > 0 {
		pid := pids[random.IntN(len(pids))]
		for init, id := range c.inits() {
			if parent(filepath.Join("/proc", strconv.Itoa(init))) == pid {
				c.mark(id, "shim")
			}
		}
		c.count("shim")
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

func (c *chaos) killInit(random *rand.Rand) {
	inits := c.inits()
	pids := []int{}
	for pid := range inits {
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return
	}
	slices.Sort(pids)
	pid := pids[random.IntN(len(pids))]
	c.mark(inits[pid], "init")
	c.count("init")
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
}

// mark notes that a sandbox was killed, before it is.
func (c *chaos) mark(id, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed[id] = how
}

func (c *chaos) wasKilled(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed[id] != ""
}

// inits finds the sandboxes' PID 1s: the processes of their cgroups whose parent
// is outside.
func (c *chaos) inits() map[int]string {
	group := regexp.MustCompile("/" + regexp.QuoteMeta(c.Instance()) + `/([a-z2-7]{26})`)
	of := func(dir string) string {
		if m := group.FindStringSubmatch(read(filepath.Join(dir, "cgroup"))); m != nil {
			return m[1]
		}
		return ""
	}
	found := map[int]string{}
	for _, file := range glob(c.t, "/proc/[0-9]*/cgroup") {
		dir := filepath.Dir(file)
		id := of(dir)
		if id == "" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if up := parent(dir); err == nil && up > 0 && of(filepath.Join("/proc", strconv.Itoa(up))) != id {
			found[pid] = id
		}
	}
	return found
}

// try makes a call, whose failure must have a code.
func (c *chaos) try(args ...string) harness.Result { return c.tryWith("", args...) }

func (c *chaos) tryWith(stdin string, args ...string) harness.Result {
	r := c.TryWith(stdin, args...)
	outcome := args[0]
	if r.Code == 125 {
		code := c.code(r)
		if code == "SBX-000" || !codeForm.MatchString(code) {
			c.t.Errorf("caisson %q failed without a code: %s%s", args, r.Stdout, r.Stderr)
		}
		outcome += " " + code
		time.Sleep(50 * time.Millisecond) // as a client does that repeats what failed
	}
	c.mu.Lock()
	c.calls[outcome]++
	c.mu.Unlock()
	return r
}

// code returns the code of a refusal; calls whose standard output is data tell
// it on the other one.
func (c *chaos) code(r harness.Result) string {
	var f harness.Failure
	if err := json.Unmarshal([]byte(r.Stdout), &f); err == nil && f.Error.Code != "" {
		return f.Error.Code
	}
	if m := regexp.MustCompile(`SBX-[0-9]{3}`).FindString(r.Stderr); m != "" {
		return m
	}
	return ""
}

// runs runs commands in sandboxes of their own.
func (c *chaos) runs(int) {
	for i := 0; c.ctx.Err() == nil; i++ {
		want := fmt.Sprint("run ", i)
		r := c.try("run", "--", "echo", want)
		if r.Code == 0 && r.Stdout != want+"\n" {
			c.t.Errorf("a run printed %q, want %q", r.Stdout, want)
		}
	}
}

// made makes a sandbox, however often it has to be asked for; empty is none
// before the time was over.
func (c *chaos) made(key string, flags ...string) string {
	for c.ctx.Err() == nil {
		if r := c.try(append([]string{"create", "--json", "--key", key}, flags...)...); r.Code == 0 {
			var s listed
			r.JSON(c.t, &s)
			return s.ID
		}
	}
	return ""
}

// gone removes a sandbox, however often it has to be asked for.
func (c *chaos) gone(id string) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if r := c.try("rm", "--json", "--force", id); r.Code == 0 || c.code(r) == "SBX-107" {
			return
		}
	}
	c.t.Errorf("sandbox %s could not be removed within %s", id, patience)
}

// sessions makes sandboxes and runs some commands in each.
func (c *chaos) sessions(n int) {
	for i := 0; c.ctx.Err() == nil; i++ {
		id := c.made(fmt.Sprintf("session-%d-%d", n, i))
		if id == "" {
			return
		}
		for range 5 {
			if r := c.try("exec", id, "--", "sh", "-c", "echo a; echo b"); r.Code == 0 && r.Stdout != "a\nb\n" {
				c.t.Errorf("an exec printed %q", r.Stdout)
			}
		}
		c.gone(id)
	}
}

// welcome serves a word on a port of the host's loopback device, which it returns.
func welcome(t *testing.T) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") })) // until it is closed
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return "site.example:" + port
}

// visits makes sandboxes that may reach one place, and looks at what they get
// there and elsewhere.
func (c *chaos) visits(n int) {
	for i := 0; c.ctx.Err() == nil; i++ {
		id := c.made(fmt.Sprintf("visit-%d-%d", n, i), "--allow", c.site)
		if id == "" {
			return
		}
		for range 5 {
			if r := c.try("exec", id, "--", "wget", "-qO-", "http://"+c.site+"/"); r.Code == 0 && r.Stdout != "welcome" {
				c.t.Errorf("a visitor got %q", r.Stdout)
			}
			if r := c.try("exec", id, "--", "wget", "-qO-", "http://elsewhere.example/"); r.Code == 0 {
				c.t.Errorf("a visitor got elsewhere: %q", r.Stdout)
			}
		}
		c.gone(id)
	}
}

// copies copies a file in and out again.
func (c *chaos) copies(n int) {
	content := strings.Repeat("0123456789abcdef", 1<<14)
	dir := c.t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(content), 0o600); err != nil {
		c.t.Error(err)
		return
	}
	for i := 0; c.ctx.Err() == nil; i++ {
		id := c.made(fmt.Sprintf("copy-%d-%d", n, i))
		if id == "" {
			return
		}
		for range 5 {
			if c.try("cp", in, id+":/tmp/file").Code != 0 || c.try("cp", id+":/tmp/file", out).Code != 0 {
				continue
			}
			if read(out) != content {
				c.t.Errorf("a copied file has %d bytes, want %d", len(read(out)), len(content))
			}
			_ = os.Remove(out) // the next copy makes it
		}
		c.gone(id)
	}
}

// numbers is how far a counter counts, one hundred to a second at most.
const numbers = 300

// counters runs a command that counts, follows it, and looks for gaps.
func (c *chaos) counters(n int) {
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 7", numbers)
	for i := 0; c.ctx.Err() == nil; i++ {
		id := c.made(fmt.Sprintf("counter-%d-%d", n, i))
		if id == "" {
			return
		}
		if r := c.try("exec", "-d", "--json", id, "--", "sh", "-c", script); r.Code == 0 {
			var e struct{ ID string }
			r.JSON(c.t, &e)
			c.follow(id, e.ID)
		}
		c.gone(id)
	}
}

// follow reads the output of a counter, again from where it stood whenever that
// breaks, until the counter has ended or its sandbox is gone.
func (c *chaos) follow(id, exec string) {
	var have strings.Builder
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		r := c.try("logs", "--follow", "--offset", strconv.Itoa(have.Len()), "--stream", "stdout", "--exec", exec, id)
		if r.Code == 0 || (r.Code == 125 && !strings.HasPrefix(r.Stdout, "{")) {
			have.WriteString(r.Stdout)
		}
		if r.Code == 0 {
			c.checkCount(id, exec, have.String(), true)
			return
		}
		if code := c.code(r); code == "SBX-107" || code == "SBX-115" {
			c.checkCount(id, exec, have.String(), false)
			return
		}
	}
	c.t.Errorf("counter %s of %s did not end within %s", exec, id, patience)
}

// checkCount looks for gaps, and for the end where nothing killed the sandbox.
func (c *chaos) checkCount(id, exec, out string, there bool) {
	lines := strings.SplitAfter(out, "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != strconv.Itoa(i)+"\n" {
			c.t.Errorf("counter %s of %s: line %d is %q", exec, id, i, line)
			return
		}
	}
	c.mu.Lock()
	how := c.killed[id]
	c.mu.Unlock()
	if how != "" {
		return
	}
	if !there || len(lines)-1 != numbers {
		c.t.Errorf("counter %s of %s, which nothing killed, ended after %d of %d lines (still there: %v)", exec, id, len(lines)-1, numbers, there)
		return
	}
	r := c.try("wait", id, exec)
	for r.Code == 125 && c.ctx.Err() == nil {
		r = c.try("wait", id, exec)
	}
	if r.Code != 7 && !c.wasKilled(id) && r.Code != 125 {
		c.t.Errorf("counter %s of %s ended with code %d, want 7: %s", exec, id, r.Code, r.Stderr)
	}
}
