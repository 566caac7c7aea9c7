package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// What is allowed gets through by name, and nothing else does; what happened is
// told and counted.
func TestServesASandbox(t *testing.T) {
	w := newWorld(t, usual)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	c, err := w.reach(t, b, "web.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, rcode := b.lookup(t, "other.example"); rcode != miekg.RcodeNameError {
		t.Errorf("a name that is not allowed has code %d", rcode)
	}
	if got, err := w.exact(t, "one"); err != nil || got.Open != 1 {
		t.Errorf("counted while it is open: %+v, %v", got, err)
	}
	_ = c.Close()
	want := Counters{Counts: traffic.Counts{Allowed: 1, Sent: 5, Received: 5, Answered: 1, Denied: 1}}
	until(t, "the counters", func() bool {
		got, err := w.exact(t, "one")
		return err == nil && got == want
	})
	if got, ok := w.View("one"); !ok || got.Counters != want || got.Failure != nil {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if _, ok := w.View("two"); ok {
		t.Error("there are counters of a sandbox that is not there")
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	if len(w.seen.attempts) != 1 || w.seen.attempts[0].Name != "web.example" || len(w.seen.queries) != 2 || len(w.seen.names) != 1 {
		t.Errorf("told: %+v", &w.seen)
	}
}

func TestAddRefuses(t *testing.T) {
	w := newWorld(t, usual)
	w.add(t, Sandbox{ID: "one"})
	for _, c := range []struct {
		name string
		s    Sandbox
		want sbxerr.Code
	}{
		{"twice", Sandbox{ID: "one"}, sbxerr.Exists},
		{"no ID", Sandbox{}, sbxerr.Internal},
		{"no policy", Sandbox{ID: "two", Policy: policy.Spec{Mode: policy.Allow, Allow: []string{"*"}}}, sbxerr.NetPolicy},
		{"a name outside the pool", Sandbox{ID: "two", Names: map[policy.Name]netip.Addr{"a.test": netip.MustParseAddr("10.0.0.1")}}, sbxerr.Internal},
	} {
		_, sockets := newBox(t)
		err := w.Add(t.Context(), c.s, sockets)
		if sbxerr.Of(err) != c.want {
			t.Errorf("%s: %v, want code %s", c.name, err, c.want)
		}
		if err := sockets.TCP.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the socket is still open: %v", c.name, err)
		}
	}
	_, sockets := newBox(t)
	if err := w.Add(t.Context(), Sandbox{ID: "two"}, swapped(sockets)); sbxerr.Of(err) != sbxerr.Gateway {
		t.Errorf("sockets in another order: %v", err)
	}
	if n := w.Status().Starts; n != 1 {
		t.Errorf("all that took %d processes", n)
	}
}

// A policy that is narrower cuts what it does not allow, and leaves the rest.
func TestPolicyCuts(t *testing.T) {
	w := newWorld(t, usual)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example", "other.example")})
	stays, err1 := w.reach(t, b, "web.example")
	goes, err2 := w.reach(t, b, "other.example")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := w.SetPolicy(t.Context(), "one", w.allow("web.example")); err != nil {
		t.Fatal(err)
	}
	if took := closed(t, goes); took > time.Second {
		t.Errorf("the connection was cut after %v", took)
	}
	if err := echo(stays); err != nil {
		t.Errorf("what is still allowed: %v", err)
	}
	if _, rcode := b.lookup(t, "other.example"); rcode != miekg.RcodeNameError {
		t.Errorf("the name has code %d", rcode)
	}
	until(t, "the record", func() bool { return slices.Contains(w.seen.verdicts(), attempt.Cut) })
}

// F18: a policy that is refused changes nothing.
func TestPolicyThatIsRefused(t *testing.T) {
	w := newWorld(t, usual)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	c, err := w.reach(t, b, "web.example")
	if err != nil {
		t.Fatal(err)
	}
	big := policy.Spec{Mode: policy.Allow} // valid, but no message holds it
	ports := "10000"
	for i := range 60 {
		ports += fmt.Sprintf("+%d", 20000+i)
	}
	for i := range 4000 {
		big.Allow = append(big.Allow, fmt.Sprintf("%s.h%d.example:%s", strings.Repeat("a", 60), i, ports))
	}
	if err := w.SetPolicy(t.Context(), "one", big); sbxerr.Of(err) != sbxerr.NetPolicy || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a policy that is too large: %.200v", err)
	}
	for _, s := range []policy.Spec{{Mode: policy.Allow, Allow: []string{"a b"}}, {Mode: "bridge"}, {Allow: []string{"a.example"}}} {
		if err := w.SetPolicy(t.Context(), "one", s); err == nil {
			t.Errorf("taken: %.100v", s)
		}
	}
	if err := w.SetPolicy(t.Context(), "two", w.allow("web.example")); sbxerr.Of(err) != sbxerr.NotFound {
		t.Errorf("a sandbox that is not there: %v", err)
	}
	if err := echo(c); err != nil {
		t.Error(err)
	}
	if _, err := w.reach(t, b, "web.example"); err != nil {
		t.Error(err)
	}
}

// F16 and F17: whether it is killed, stopped or breaks the rules, connections
// die, nothing gets out, and the next process serves with what the one before
// had: policies as they were changed, names, counters.
func TestTheNextOneGoesOn(t *testing.T) {
	for _, c := range []struct {
		name string
		hit  func(pid int) error
	}{
		{"killed", func(pid int) error { return unix.Kill(pid, unix.SIGKILL) }},
		{"stopped", func(pid int) error { return unix.Kill(pid, unix.SIGSTOP) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, fast)
			b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
			if err := w.SetPolicy(t.Context(), "one", w.allow("web.example", "other.example")); err != nil {
				t.Fatal(err)
			}
			addr, _ := b.lookup(t, "other.example")
			conn, err := w.reach(t, b, "web.example")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := w.exact(t, "one"); err != nil || got.Open != 1 {
				t.Fatalf("before: %+v, %v", got, err)
			}
			until(t, "the names", func() bool { return w.seen.knows("web.example") && w.seen.knows("other.example") })
			old := w.pid()
			if err := c.hit(old); err != nil {
				t.Fatal(err)
			}
			closed(t, conn)
			until(t, "another process", func() bool { pid := w.pid(); return pid != 0 && pid != old })
			if err := unix.Kill(old, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("the old process is still there: %v", err)
			}
			again, err := b.dial(addr, w.web.Port()) // by an address of before
			if err == nil {
				err = echo(again)
			}
			if err != nil {
				t.Errorf("a name of before: %v", err)
			}
			if same, _ := b.lookup(t, "other.example"); same != addr {
				t.Errorf("the name has the address %v now, not %v", same, addr)
			}
			until(t, "counters that go on", func() bool { got, _ := w.View("one"); return got.Counters.Lost == 1 && got.Counters.Answered == 3 })
			if err := w.SetPolicy(t.Context(), "one", policy.Spec{}); err != nil {
				t.Error(err)
			}
			closed(t, again)
		})
	}
}

// While there is no process, a connection waits, and nothing answers it.
func TestNothingGetsOutWhileItIsDown(t *testing.T) {
	slow := fast
	slow.minBackoff = 700 * time.Millisecond
	w := newWorld(t, slow)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	addr, _ := b.lookup(t, "web.example")
	until(t, "the name", func() bool { return w.seen.knows("web.example") })
	if err := unix.Kill(w.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the end", func() bool { return w.pid() == 0 })
	c, err := b.dial(addr, w.web.Port()) // the kernel takes it
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if v, _ := w.View("one"); sbxerr.Of(v.Failure) != sbxerr.Gateway || !strings.Contains(v.Failure.Error(), "ended") {
		t.Errorf("while nothing serves: %+v", v)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || w.pid() != 0 {
		t.Errorf("read %d, %v with process %d", n, err, w.pid())
	}
	// A change meanwhile is in force before the connection is looked at.
	if err := w.SetPolicy(t.Context(), "one", policy.Spec{}); err != nil || w.pid() != 0 {
		t.Fatal(err)
	}
	closed(t, c)
	until(t, "the record", func() bool { return slices.Equal(w.seen.verdicts(), []attempt.Verdict{attempt.Refused}) })
	until(t, "that it is said to be served", func() bool { v, _ := w.View("one"); return v.Failure == nil })
}

// A sandbox whose socket does not listen any more is said to be not served, by each
// process; the others are none the worse for it.
func TestSocketThatBreaks(t *testing.T) {
	w := newWorld(t, fast)
	other := w.add(t, Sandbox{ID: "two", Policy: w.allow("web.example")})
	_, sockets := newBox(t)
	same, err := unix.Dup(int(sockets.TCP.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(same)
	if err := w.Add(t.Context(), Sandbox{ID: "one", Policy: w.allow("web.example")}, sockets); err != nil {
		t.Fatal(err)
	}
	failure := func(id string) error {
		v, _ := w.View(id)
		return v.Failure
	}
	if err := errors.Join(failure("one"), failure("two")); err != nil {
		t.Fatalf("before: %v", err)
	}
	if err := unix.Shutdown(same, unix.SHUT_RD); err != nil { // a listener ends with that
		t.Fatal(err)
	}
	broken := func() bool {
		return sbxerr.Of(failure("one")) == sbxerr.Gateway && strings.Contains(failure("one").Error(), "no more")
	}
	until(t, "the failure", broken)
	old := w.pid()
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another process", func() bool { pid := w.pid(); return pid != 0 && pid != old })
	until(t, "the failure again", broken)
	if err := failure("two"); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	if _, err := w.reach(t, other, "web.example"); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	if err := w.Remove(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// What a daemon kept from before its own restart is given back.
func TestNamesOfAnEarlierDaemon(t *testing.T) {
	w := newWorld(t, usual)
	addr := netip.MustParseAddr("198.19.1.2")
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example"), Names: map[policy.Name]netip.Addr{"web.example": addr}})
	c, err := b.dial(addr, w.web.Port())
	if err == nil {
		err = echo(c)
	}
	if err != nil {
		t.Error(err)
	}
	if got, _ := b.lookup(t, "web.example"); got != addr {
		t.Errorf("the name has the address %v now", got)
	}
}

func TestRemove(t *testing.T) {
	w := newWorld(t, usual)
	if err := w.Remove(t.Context(), "one"); err != nil {
		t.Errorf("absent: %v", err)
	}
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	other := w.add(t, Sandbox{ID: "two", Policy: w.allow("web.example")})
	conn, err1 := w.reach(t, b, "web.example")
	stays, err2 := w.reach(t, other, "web.example")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Remove(t.Context(), "one"); err != nil {
			t.Error(err)
		}
	}
	closed(t, conn)
	if err := echo(stays); err != nil {
		t.Errorf("the other sandbox: %v", err)
	}
	if !slices.Equal(w.seen.verdicts(), []attempt.Verdict{attempt.Stopped}) {
		t.Errorf("told: %v", w.seen.verdicts())
	}
	if c, err := b.dial(netip.MustParseAddr("198.18.0.9"), w.web.Port()); err == nil {
		_ = c.Close()
		t.Error("the sandbox's socket is still open")
	}
}

// A process that cannot be removed from is replaced.
func TestRemoveFromOneThatHangs(t *testing.T) {
	slow := fast
	slow.ping = time.Hour
	w := newWorld(t, slow)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	conn, err := w.reach(t, b, "web.example")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(w.pid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	closed(t, conn)
	w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
}

// A program that is not there, or does not do what it must, is an error at
// once, and the next call tries again.
func TestProgramThatFails(t *testing.T) {
	w := newWorld(t, fast)
	right := w.options.Program
	for _, c := range []struct {
		program string
		want    sbxerr.Code
		says    string
	}{
		{"/nonexistent", sbxerr.Binary, "no such file"}, {"/bin/false", sbxerr.Gateway, "exit status 1"}, {"/bin/cat", sbxerr.Gateway, "cat: "},
	} {
		w.options.Program = c.program
		_, sockets := newBox(t)
		err := w.Add(t.Context(), Sandbox{ID: "one"}, sockets)
		if sbxerr.Of(err) != c.want || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.program, err)
		}
		until(t, "rest", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.running == nil })
	}
	w.options.Program = right
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	if _, err := w.reach(t, b, "web.example"); err != nil {
		t.Error(err)
	}
}

func TestCallsWithoutTime(t *testing.T) {
	w := newWorld(t, usual)
	w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	w.op <- struct{}{} // something is going on
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.SetPolicy(ctx, "one", policy.Spec{}); sbxerr.Of(err) != sbxerr.Gateway || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a new policy: %v", err)
	}
	if err := w.Remove(ctx, "one"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a removal: %v", err)
	}
	<-w.op
}

func TestClosed(t *testing.T) {
	w := newWorld(t, usual)
	b := w.add(t, Sandbox{ID: "one", Policy: w.allow("web.example")})
	conn, err := w.reach(t, b, "web.example")
	if err != nil {
		t.Fatal(err)
	}
	pid := w.pid()
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	closed(t, conn)
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
	_, sockets := newBox(t)
	if err := w.Add(t.Context(), Sandbox{ID: "two"}, sockets); sbxerr.Of(err) != sbxerr.Gateway {
		t.Errorf("add: %v", err)
	}
}

// The program does nothing for anybody but the daemon: started by hand it must
// leave the host as it is.
func TestStartedByHand(t *testing.T) {
	cmd := exec.Command(need(t), "-uid", "1000", "-gid", "1000")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "descriptor 3") {
		t.Errorf("%v: %s", err, out)
	}
	_, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for _, c := range []struct{ uid, says string }{{"1000", "first process of a pid namespace"}, {"0", "never runs as root"}} {
		cmd = exec.Command(need(t), "-uid", c.uid, "-gid", "1000")
		cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), c.says) {
			t.Errorf("user %s: %v: %s", c.uid, err, out)
		}
	}
}

// daemonEnv makes this test binary play a daemon that is about to be killed.
const daemonEnv = "EGRESS_TEST_DAEMON"

func playDaemon() {
	g := New(Options{Program: os.Getenv(daemonEnv)})
	var sockets netns.Sockets
	for _, f := range []**os.File{&sockets.TCP, &sockets.DNSPacket, &sockets.DNSStream, &sockets.DropLog} {
		var err error
		if *f, err = os.Open(os.DevNull); err != nil {
			panic(err)
		}
	}
	// It refuses such sockets, but serves.
	_ = g.Add(context.Background(), Sandbox{ID: "one"}, sockets)
	fmt.Println(g.Status().PID)
	select {}
}

// The gateway does not outlive a daemon that is killed, also where it hangs and so does
// not hear of that.
func TestDaemonKilled(t *testing.T) {
	for name, hangs := range map[string]bool{"it serves": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			daemon := exec.Command(os.Args[0])
			daemon.Env = append(os.Environ(), daemonEnv+"="+need(t))
			out, err := daemon.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := daemon.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			pid, numErr := strconv.Atoi(strings.TrimSpace(line))
			if err := errors.Join(err, numErr); err != nil || pid == 0 {
				t.Fatalf("the daemon said %q: %v", line, err)
			}
			if err := unix.Kill(pid, 0); err != nil {
				t.Fatalf("the gateway does not live: %v", err)
			}
			if hangs {
				if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) }) // where it lives, it ends then
			}
			if err := daemon.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = daemon.Wait() // killed by us
			until(t, "the end of the gateway", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
		})
	}
}

func TestStartCode(t *testing.T) {
	for said, want := range map[string]sbxerr.Code{
		`caisson-gateway: exit status 1; its last words: "caisson-gateway: filter system calls: errno 524\n"`: sbxerr.SeccompMemory,
		`caisson-gateway: exit status 1; its last words: "caisson-gateway: drop capabilities: EPERM\n"`:       sbxerr.Gateway,
	} {
		if got := startCode(errors.New(said)); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}
