package posture

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// TestRealSandbox makes a container with runc from a specification of oci.Build,
// finds it as declared, then changes it from the host one thing at a time and
// sees each change found.
func TestRealSandbox(t *testing.T) {
	s := startSandbox(t)
	results, err := Check(t.Context(), s.declared())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d results", len(results))
	if *record {
		recordSandbox(t, s)
	}
	for _, change := range []struct {
		name   string
		change func(*testing.T, *sandbox)
		want   string
	}{
		{"raised oom score", func(t *testing.T, s *sandbox) {
			must(t, os.WriteFile(s.proc("oom_score_adj"), []byte("501"), 0))
		}, "oom_score_adj"},
		{"lowered limit", func(t *testing.T, s *sandbox) {
			must(t, s.users.AsOwner(func() error { return unix.Prlimit(s.pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil) }))
		}, "rlimit.RLIMIT_CORE"},
		{"mount over the workspace", func(t *testing.T, s *sandbox) {
			s.inside(t, "mount", "-t", "tmpfs", "none", "/workspace")
		}, "mount /workspace"},
		{"undeclared mount", func(t *testing.T, s *sandbox) {
			s.inside(t, "mount", "-t", "tmpfs", "none", "/sys")
		}, "mount /sys"},
		{"set-id bits in /tmp", func(t *testing.T, s *sandbox) {
			s.insideMount(t, "/tmp", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NODEV)
		}, "mount /tmp"},
		{"unmasked file", func(t *testing.T, s *sandbox) {
			s.unmountInside(t, "/proc/kallsyms")
		}, "mount /proc/kallsyms"},
		{"shared mounts", func(t *testing.T, s *sandbox) {
			s.insideMount(t, "/home", unix.MS_SHARED)
		}, "propagation"},
		{"command without a filter", func(t *testing.T, s *sandbox) { s.enterAsCommand(t) }, "seccomp"},
	} {
		t.Run(change.name, func(t *testing.T) {
			change.change(t, s)
			results, err := Check(t.Context(), s.declared())
			found := slices.ContainsFunc(results, func(r Result) bool { return r.Name == change.want && !r.OK })
			if sbxerr.Of(err) != sbxerr.Posture || !found {
				t.Errorf("result %q does not tell: %v", change.want, err)
			}
		})
	}
	t.Run("ended", func(t *testing.T) { checkEnded(t, s) })
}

// checkEnded: a process that was killed is never compared, nor is another that
// has got its number.
func checkEnded(t *testing.T, s *sandbox) {
	d := s.declared()
	d.PID = os.Getpid()
	if _, err := Check(t.Context(), d); sbxerr.Of(err) != sbxerr.Posture {
		t.Errorf("a pidfd of another process: %v", err)
	}
	must(t, unix.PidfdSendSignal(int(s.pidfd.Fd()), unix.SIGKILL, nil, 0))
	fds := []unix.PollFd{{Fd: int32(s.pidfd.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, int(10*time.Second/time.Millisecond)); n != 1 {
		t.Fatalf("process does not end: %v", err)
	}
	if _, err := Check(t.Context(), s.declared()); sbxerr.Of(err) != sbxerr.Init {
		t.Errorf("a process that has ended: %v", err)
	}
}

func (s *sandbox) proc(name string) string { return "/proc/" + strconv.Itoa(s.pid) + "/" + name }

// inside runs the sandbox's busybox in its mount namespace, with the host's
// privilege.
func (s *sandbox) inside(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--target", strconv.Itoa(s.pid), "--mount", "/bin/busybox"}, args...)
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		t.Fatalf("nsenter %v: %v\n%s", args, err, out)
	}
}

// inMounts runs fn in the sandbox's mount namespace, on a thread of its own.
func (s *sandbox) inMounts(t *testing.T, fn func() error) {
	t.Helper()
	ns, err := os.Open(s.proc("ns/mnt"))
	must(t, err)
	done := make(chan error)
	go func() { done <- enterMounts(ns, fn) }()
	must(t, errors.Join(<-done, ns.Close()))
}

func (s *sandbox) insideMount(t *testing.T, target string, flags uintptr) {
	t.Helper()
	s.inMounts(t, func() error { return unix.Mount("", target, "", flags, "") })
}

func (s *sandbox) unmountInside(t *testing.T, target string) {
	t.Helper()
	s.inMounts(t, func() error { return unix.Unmount(target, unix.MNT_DETACH) })
}

// enterAsCommand puts a process in the place of PID 1 that entered all namespaces
// but has no filter, as after a careless exec.
func (s *sandbox) enterAsCommand(t *testing.T) {
	args := []string{"--target", strconv.Itoa(s.pid), "--all", "--setuid", "1000", "--setgid", "1000", "/bin/busybox", "sleep", "60"}
	cmd := exec.Command("nsenter", args...)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	must(t, err)
	pid, pidfd := s.pid, s.pidfd
	s.pid, s.pidfd = cmd.Process.Pid, os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { must(t, s.pidfd.Close()); s.pid, s.pidfd = pid, pidfd })
}

func BenchmarkCheck(b *testing.B) {
	s := startSandbox(b)
	for b.Loop() {
		if _, err := Check(b.Context(), s.declared()); err != nil {
			b.Fatal(err)
		}
	}
}
