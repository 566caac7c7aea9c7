package escape

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The image of the prober.
const (
	proberImage   = "escape-prober"
	proberPath    = "/prober"
	setIDInImage  = "/set-id"
	deviceInImage = "/odd/place/full"
)

var built struct {
	sync.Once
	path string
	err  error
}

// prober returns the path of the prober: what CAISSON_PROBER names, for hosts
// without Go, or one that is built beside the test.
func prober(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if built.path = os.Getenv("CAISSON_PROBER"); built.path != "" {
			return
		}
		built.path = filepath.Join(daemon.Root, "prober") // goes with the daemon
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", built.path, "./prober")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("build the prober: %v", built.err)
	}
	return built.path
}

var imported sync.Once

// withProber makes the image of the prober once.
func withProber(t testing.TB) {
	t.Helper()
	imported.Do(func() {
		r := daemon.TryWith(string(proberArchive(t)), "image", "import", "--name", proberImage, "-")
		if r.Code != 0 {
			t.Fatalf("import the prober: %s", r.Stderr)
		}
	})
}

// proberArchive is a root file system with the prober, once more with the
// set-user-id bit, and with a device node.
func proberArchive(t testing.TB) []byte {
	t.Helper()
	program, err := os.ReadFile(prober(t))
	must(t, err)
	a := newArchive(t)
	for _, dir := range []string{"bin", "usr", "etc", "odd", "odd/place"} {
		a.add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	a.file("prober", 0o755, program)
	a.file("set-id", 0o6755, program)
	a.file("etc/passwd", 0o644, []byte("root:x:0:0::/:/\ncaisson:x:1000:1000::/home/caisson:/\n"))
	a.file("bin/sh", 0o755, program)
	a.add(tar.Header{Name: strings.TrimPrefix(deviceInImage, "/"), Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 7}, nil)
	return a.bytes()
}

// attempt is a line of the prober.
type attempt struct {
	ID, Attempt, Outcome string
	Want                 []string
}

func (a attempt) held() bool { return slices.Contains(a.Want, a.Outcome) }

func parseAttempts(t *testing.T, out string) []attempt {
	t.Helper()
	var list []attempt
	for line := range strings.Lines(out) {
		var a attempt
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("the prober printed %q: %v", line, err)
		}
		if slices.ContainsFunc(list, func(b attempt) bool { return b.Attempt == a.Attempt }) {
			t.Fatalf("attempt %q is there twice", a.Attempt)
		}
		list = append(list, a)
	}
	return list
}

// confined makes the attempts in a sandbox that is made with the flags.
func (s *surroundings) confined(t *testing.T, profile string, flags ...string) []attempt {
	t.Helper()
	withProber(t)
	line := slices.Concat([]string{"run", "-q", "--image", proberImage, "--profile", profile}, flags, []string{"--", proberPath, "run"}, s.flags(true))
	r := daemon.Run(t, line...)
	if r.Stderr != "" {
		t.Fatalf("the prober complains: %s", r.Stderr)
	}
	return parseAttempts(t, r.Stdout)
}

// unconfined makes the same attempts as root of the host. It has mount and uts
// namespaces of its own, so that what it changes of these goes with it, a
// descriptor too many, a capability in every set, and the canary that a
// sandbox must not inherit.
func (s *surroundings) unconfined(t *testing.T) []attempt {
	t.Helper()
	extra, err := os.Open("/")
	must(t, err)
	defer extra.Close()
	cmd := exec.Command(prober(t), append([]string{"run"}, s.flags(false)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS, Setsid: true, AmbientCaps: []uintptr{unix.CAP_SYS_CHROOT}, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Env = []string{"HOST_CANARY=must-not-be-inherited"}
	cmd.ExtraFiles = []*os.File{extra}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("the control failed: %v\n%s", err, stderr.String())
	}
	return parseAttempts(t, stdout.String())
}
