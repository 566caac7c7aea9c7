package fault

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// runcThatDies is a runc that is killed in create, in the way that the file FILE
// says: before it did anything; when its first child is there; when the container
// is, but before it told; or where it waits for ever, with its pid in FILE.pid.
const runcThatDies = `#!/bin/sh
PATH=/usr/bin:/bin
how=
case " $* " in *" create "*) [ ! -e FILE ] || how=$(cat FILE) ;; esac
case $how in
before) kill -KILL $$ ;;
child)
	PROGRAM "$@" & pid=$!
	while kill -0 $pid; do
		for f in /proc/$pid/task/*/children; do
			read -r child < $f && [ -n "$child" ] && break 2
		done
	done
	kill -KILL $pid; kill -KILL $$ ;;
created) PROGRAM "$@"; kill -KILL $$ ;;
hangs) echo $$ > FILE.new; mv FILE.new FILE.pid; exec sleep 1000 ;;
*) exec PROGRAM "$@" ;;
esac
`

// withScript returns a directory of programs in which one is the given script, and
// in that PROGRAM is the real one and FILE the returned file.
func withScript(t *testing.T, program, script string) (bin, file string) {
	t.Helper()
	bin, file = harness.ProgramsWithout(t, program), filepath.Join(t.TempDir(), "how")
	script = strings.NewReplacer("PROGRAM", harness.Bin(t, program), "FILE", file).Replace(script)
	if err := os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return bin, file
}

// A runc that is killed in create is a failure with a code, whatever it had made
// by then, and leaves nothing; the request can be repeated (F10).
func TestKilledRunc(t *testing.T) {
	bin, file := withScript(t, "runc", runcThatDies)
	d := harness.Start(t, "--bin-dir", bin)
	d.Run(t, "create", "--name", "other")
	for _, how := range []string{"before", "child", "created", "hangs"} {
		t.Run(how, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(how), 0o600); err != nil {
				t.Fatal(err)
			}
			create := begin(t, d, "create", "--json", "--name", "made", "--key", how)
			if how == "hangs" {
				await(t, "runc", func() bool { return read(file+".pid") != "" })
				pid, err := strconv.Atoi(strings.TrimSpace(read(file + ".pid")))
				if err != nil {
					t.Fatal(err)
				}
				kill9(t, pid)
			}
			checkTyped(t, create.end(t))
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if l := list(t, d); len(l) != 1 {
				t.Errorf("the failed request left %+v", l)
			}
			checkSound(t, d)
			d.Run(t, "create", "--name", "made", "--key", how)
			checkSound(t, d)
			d.Run(t, "rm", "--force", "made")
		})
	}
	d.Run(t, "rm", "--force", "other")
	checkSound(t, d)
}

// containerdThatWaits waits as long as FILE says "wait", and fails if it says
// "fail".
const containerdThatWaits = `#!/bin/sh
PATH=/usr/bin:/bin
[ "$1" != --version ] || exec PROGRAM "$@"
while :; do
	case $(cat FILE 2>/dev/null) in
	wait) sleep 0.02 ;;
	fail) echo no more; exit 1 ;;
	*) exec PROGRAM "$@" ;;
	esac
done
`

// The sandboxes of an earlier daemon are served before the engine is there; what
// needs one waits. An engine that does not start ends the daemon, and nothing else.
func TestServedBeforeTheEngine(t *testing.T) {
	bin, file := withScript(t, "containerd", containerdThatWaits)
	say := func(how string) { // whole, for a script that reads it at any time
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", []byte(how), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	d := harness.Start(t, "--bin-dir", bin)
	d.Run(t, "create", "--name", "kept")
	again := func(how string) {
		t.Helper()
		d.Kill(t)
		say(how)
		d.Launch(t, "--bin-dir", bin)
		if r := d.Run(t, "exec", "kept", "--", "echo", "on"); r.Stdout != "on\n" {
			t.Errorf("a command printed %q", r.Stdout)
		}
	}

	again("wait")
	create := begin(t, d, "create", "--name", "made")
	time.Sleep(300 * time.Millisecond) // in which it would be made, were there an engine
	if l := list(t, d); len(l) != 1 {
		t.Errorf("without an engine there are %+v", l)
	}
	say("go")
	if r := create.end(t); r.Code != 0 {
		t.Errorf("create failed: %s", r.Stderr)
	}
	checkSound(t, d)

	again("wait")
	say("fail")
	select {
	case <-d.Ended():
	case <-time.After(patience):
		t.Fatal("the daemon stays without an engine")
	}
	if log := d.Log(); !strings.Contains(log, "SBX-602") || !strings.Contains(log, "no more") {
		t.Errorf("it ended with\n%s", log)
	}
	say("go")
	d.Launch(t, "--bin-dir", bin)
	for _, name := range []string{"kept", "made"} {
		if r := d.Run(t, "exec", name, "--", "echo", "on"); r.Stdout != "on\n" {
			t.Errorf("a command printed %q", r.Stdout)
		}
	}
	d.Run(t, "rm", "--force", "kept", "made")
	checkSound(t, d)
}

// A containerd that is asked to end while it finds its shims again takes those that
// it has not found for dead, and has what they hold killed. It is not asked, whether
// its daemon is killed meanwhile or stopped: in the second after a start no sandbox is
// lost either (F01).
func TestEndWhileTheEngineFindsShims(t *testing.T) {
	const sandboxes, rounds = 30, 12 // when it was asked, most runs of this lost one
	d := harness.StartWith(t, "sandboxes: {keep_on_exit: true}\n")
	var makers sync.WaitGroup
	for range 3 {
		makers.Go(func() {
			for range sandboxes / 3 {
				d.Try("create")
			}
		})
	}
	makers.Wait()
	t.Cleanup(func() { // a daemon that is stopped keeps them
		for _, s := range list(t, d) {
			d.Run(t, "rm", "--force", s.ID)
		}
		checkSound(t, d)
	})
	for round := range rounds {
		if n := len(list(t, d)); n != sandboxes {
			t.Fatalf("%d of %d sandboxes are left in round %d\n%s", n, sandboxes, round, d.Log())
		}
		time.Sleep(time.Duration(round%4) * 50 * time.Millisecond) // containerd starts
		if round%2 == 0 {
			d.Kill(t)
		} else {
			d.Stop(t)
		}
		d.Launch(t)
	}
}

// A containerd that hangs holds up nothing but what needs it, and that not for
// long: it goes on when containerd does, or when a new one was started in its
// place (F15).
func TestHungContainerd(t *testing.T) {
	t.Parallel() // it waits most of the time
	d := harness.Start(t)
	for name, healed := range map[string]func(pid int){
		"continued": func(pid int) { time.Sleep(time.Second); stopOrGo(t, pid, syscall.SIGCONT) },
		"replaced":  func(int) {},
	} {
		t.Run(name, func(t *testing.T) {
			d.Run(t, "create", "--name", "stays")
			d.Run(t, "create", "--name", "goes")
			pids := programs(t, d, "containerd")
			if len(pids) != 1 {
				t.Fatalf("containerd runs as %v, want one", pids)
			}
			stopOrGo(t, pids[0], syscall.SIGSTOP)
			create := begin(t, d, "create", "--json", "--name", "made", "--key", name)
			rm := begin(t, d, "rm", "--json", "--force", "goes")
			if r := d.Run(t, "exec", "stays", "--", "echo", "on"); r.Stdout != "on\n" || r.Duration > patience/6 {
				t.Errorf("a command printed %q after %s", r.Stdout, r.Duration)
			}
			healed(pids[0])
			for _, call := range []*call{create, rm} {
				if r := call.end(t); r.Code != 0 {
					t.Errorf("%q failed: %s%s", r.Args, r.Stdout, r.Stderr)
				}
			}
			if replaced := programs(t, d, "containerd")[0] != pids[0]; replaced != (name == "replaced") {
				t.Errorf("containerd was replaced: %v", replaced)
			}
			checkSound(t, d)
			d.Run(t, "rm", "--force", "stays", "made")
			checkSound(t, d)
		})
	}
}

// A shim that does not answer a new containerd for a while, as on a busy host, keeps
// its sandboxes (F09).
func TestSlowShim(t *testing.T) {
	t.Parallel() // it waits most of the time
	d := harness.Start(t)
	d.Run(t, "create", "--name", "kept")
	shims, engines := programs(t, d, "containerd-shim-runc-v2"), programs(t, d, "containerd")
	if len(shims) != 1 || len(engines) != 1 {
		t.Fatalf("the shims are %v, containerd runs as %v; want one of each", shims, engines)
	}
	t.Cleanup(func() { _ = syscall.Kill(shims[0], syscall.SIGCONT) }) // it may have ended
	stopOrGo(t, shims[0], syscall.SIGSTOP)
	kill9(t, engines[0])
	time.Sleep(8 * time.Second) // containerd's own patience would be 5
	if r := d.Run(t, "exec", "kept", "--", "echo", "on"); r.Stdout != "on\n" {
		t.Errorf("meanwhile a command printed %q", r.Stdout)
	}
	stopOrGo(t, shims[0], syscall.SIGCONT)
	d.Run(t, "create", "--name", "made") // waits for containerd
	if r := d.Run(t, "exec", "kept", "--", "echo", "on"); r.Stdout != "on\n" {
		t.Errorf("a command printed %q", r.Stdout)
	}
	d.Run(t, "rm", "--force", "kept", "made")
	checkSound(t, d)
}

func stopOrGo(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %d to %d: %v", sig, pid, err)
	}
}

// A network namespace that somebody took from the host is still the sandbox's:
// commands run on, and it can be removed, by this daemon or the next (F24).
func TestLostNetns(t *testing.T) {
	d := harness.Start(t)
	for name, take := range map[string]func(path string) error{
		"unmounted": func(path string) error { return syscall.Unmount(path, syscall.MNT_DETACH) },
		"removed": func(path string) error {
			if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
				return err
			}
			return os.Remove(path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d.Run(t, "create", "--name", "other")
			id := strings.TrimSpace(d.Run(t, "create", "--name", "box").Stdout)
			if err := take(filepath.Join(d.State, "sandboxes", id, "netns")); err != nil {
				t.Fatal(err)
			}
			checkWorks(t, d, id)
			if out := d.Run(t, "exec", "box", "--", "sh", "-c", "ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3").Stdout; strings.TrimSpace(out) != "lo" {
				t.Errorf("the sandbox has the links %q, want lo only", out)
			}
			d.Kill(t)
			d.Launch(t)
			checkSound(t, d) // gone on with or removed
			for _, s := range list(t, d) {
				d.Run(t, "rm", "--force", s.ID)
			}
			checkSound(t, d)
		})
	}
}
