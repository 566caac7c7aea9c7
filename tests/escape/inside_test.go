package escape

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { // nothing announces it
		if done() {
			return
		}
	}
	t.Fatalf("%s did not come", what)
}

// A sandbox that signals all it can, PID 1 and itself included, does not touch
// the host and stays under control.
//
//caisson:host pid namespaces are the same on every kernel; slow here
func TestSignalsStayInside(t *testing.T) {
	held(t, "P058", "kill everything")
	host := surround(t) // fails t if its process was disturbed
	_ = host
	r := daemon.RunJSON(t, "--", "sh", "-c", "kill -9 1; kill -STOP 1; kill -TERM 1; sleep 100 & kill -9 -1; echo alive; exit 5")
	if r.Stdout != "alive\n" || r.ExitCode != 5 || r.Reason != "exited" {
		t.Errorf("result %+v", r)
	}
	start := time.Now()
	r = daemon.RunJSON(t, "--timeout", "1s", "--", "sh", "-c", "kill -STOP -1; kill -STOP $$")
	if !r.TimedOut || time.Since(start) > 20*time.Second {
		t.Errorf("a stopped sandbox: %+v", r)
	}
	daemon.AwaitNoSandbox(t)
}

// The environment is what was asked for and what tells of limits, and no more.
//
//caisson:smoke
func TestEnvironmentIsDeclared(t *testing.T) {
	held(t, "P075", "environment")
	r := daemon.Run(t, "run", "-e", "GIVEN=yes", "--", "sh", "-c", "env")
	var names []string
	for line := range strings.Lines(r.Stdout) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"DOTNET_GCHeapHardLimit", "GIVEN", "GOMEMLIMIT", "HOME", "HOSTNAME", "JDK_JAVA_OPTIONS", "LSAN_OPTIONS", "NODE_OPTIONS", "PATH", "SHLVL", "USER"}; !slices.Equal(slices.DeleteFunc(names, func(n string) bool { return n == "PWD" || n == "_" }), want) {
		t.Errorf("the environment holds %q, want %q", names, want)
	}
	if strings.Contains(r.Stdout, "must-not-be-inherited") {
		t.Errorf("the caller's environment came through:\n%s", r.Stdout)
	}
}

// told are the places where a sandbox can read a path of the host, with the
// reason for which that is not avoided.
var told = []struct{ field, reason string }{
	{"/run/caisson", "the bind of PID 1's directory shows where it lies below its own file system: /ID/init, not the host's path"},
	{"/workspace", "the bind of a workspace shows where it lies on its file system, which the command is given anyway"},
}

// Nothing tells where the daemon keeps things.
func TestHostPathsAreNotTold(t *testing.T) {
	held(t, "P072", "host paths")
	dir := workspace(t)
	r := daemon.Run(t, "run", "--workspace", dir, "--", "sh", "-c",
		"cat /proc/self/mountinfo; for f in /proc/self/cgroup /proc/self/mounts /proc/1/cmdline /proc/1/comm /proc/net/unix /proc/self/maps /etc/hostname /etc/hosts /etc/resolv.conf; do echo == $f; cat $f; done; env; cat /proc/cmdline >/dev/null")
	for line := range strings.Lines(r.Stdout) {
		if slices.ContainsFunc(told, func(x struct{ field, reason string }) bool { return mountedOn(line, x.field) }) {
			line = strings.ReplaceAll(line, dir, "")
		}
		for _, secret := range []string{daemon.Root, daemon.State, filepath.Base(daemon.Root), filepath.Base(daemon.State), daemon.Instance() + "/", "containerd", "snapshot", dir} {
			if strings.Contains(line, secret) {
				t.Errorf("%q tells %q", line, secret)
			}
		}
	}
	if !strings.Contains(r.Stdout, " /workspace ") {
		t.Errorf("no mountinfo was read:\n%s", r.Stdout)
	}
}

// mountedOn reports whether a line of mountinfo is of the mount on path.
func mountedOn(line, path string) bool {
	f := strings.Fields(line)
	return len(f) > 5 && f[4] == path
}

// The flags of every mount are what they were when somebody last looked.
//
//caisson:smoke
func TestMountFlags(t *testing.T) {
	held(t, "P047", "flags of all mounts")
	dir := workspace(t)
	r := daemon.Run(t, "run", "--workspace", dir, "--", "cat", "/proc/self/mountinfo")
	want := map[string]string{
		"/": "ro nosuid nodev", "/proc": "rw nosuid nodev noexec", "/dev": "ro nosuid noexec", "/dev/pts": "rw nosuid noexec",
		"/dev/shm": "rw nosuid nodev noexec", "/dev/mqueue": "rw nosuid nodev noexec", "/tmp": "rw nosuid nodev", "/var/tmp": "rw nosuid nodev",
		"/run": "rw nosuid nodev noexec", "/home": "rw nosuid nodev", "/run/caisson": "ro nosuid nodev", "/workspace": "rw nosuid nodev",
		"/proc/sys": "ro nosuid nodev noexec", "/proc/bus": "", "/proc/fs": "", "/proc/irq": "",
	}
	for line := range strings.Lines(r.Stdout) {
		f := strings.Fields(line)
		path, options := f[4], strings.Split(f[5], ",")
		flags, known := want[path]
		if !known {
			if !strings.HasPrefix(path, "/dev/") && !strings.HasPrefix(path, "/proc/") {
				t.Errorf("unexpected mount on %s", path)
			}
			continue
		}
		for flag := range strings.FieldsSeq(flags) {
			if !slices.Contains(options, flag) {
				t.Errorf("%s is mounted %s, want %s", path, f[5], flags)
			}
		}
		if flags != "" {
			delete(want, path)
		}
	}
	for path, flags := range want {
		if flags != "" {
			t.Errorf("nothing is mounted on %s", path)
		}
	}
}

// A program that writes over its own text reaches neither the image nor PID 1.
func TestProgramsAreNotChanged(t *testing.T) {
	held(t, "P059", "programs of image and PID 1")
	const sums = "sha256sum /bin/busybox; echo"
	before := daemon.Run(t, "run", "--", "sh", "-c", sums).Stdout
	d := detached(t, "--", "sleep", "1000")
	program := filepath.Join(daemon.State, "sandboxes", d.ID, "init", "caisson-init")
	want, err := os.ReadFile(program)
	must(t, err)
	daemon.Try("run", "--", "sh", "-c", `
		for f in /bin/busybox /run/caisson/caisson-init /proc/1/exe /proc/self/exe; do
			echo x >> $f; : > $f; cp /bin/busybox $f; chmod 777 $f; rm -f $f; mv $f /tmp/x; printf x | dd of=$f conv=notrunc
		done; printf AAAA | dd of=/proc/self/mem seek=4096 bs=1; printf AAAA | dd of=/proc/1/mem`)
	if after := daemon.Run(t, "run", "--", "sh", "-c", sums).Stdout; after != before || before == "\n" {
		t.Errorf("before %q, after %q", before, after)
	}
	got, err := os.ReadFile(program)
	must(t, err)
	if string(got) != string(want) {
		t.Error("another sandbox's PID 1 was changed")
	}
}

// Without a network a name is not found at once.
func TestLookupFailsAtOnce(t *testing.T) {
	held(t, "P085", "look up a name")
	what, _, ms := bombed(t, "lookup", "example.com")
	if what == "ok" || ms > 1000 {
		t.Errorf("the lookup ended with %s after %d ms", what, ms)
	}
}

// A crash leaves no core, neither inside nor with a handler of the host.
func TestCrashLeavesNoCore(t *testing.T) {
	held(t, "P077", "dump core")
	if what, n, _ := bombed(t, "crash"); what != "SIGSEGV" || n != 0 {
		t.Errorf("the crash ended with %s and %d files", what, n)
	}
}
