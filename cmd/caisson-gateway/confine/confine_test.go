package confine

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// possible are the attempts that the gateway needs to be able to make.
var possible = map[string]bool{"dial": true}

// A gateway that somebody took over can do nothing but dial. The control: the
// same program can do all of it before it confines itself.
func TestTakenOver(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CAISSON_TEST_STRICT") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	program := filepath.Join(t.TempDir(), "taken")
	build := exec.Command("go", "build", "-o", program, "./testdata/taken")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free, confined := attempt(t, program, "free", l), attempt(t, program, "confined", l)
	if len(free) < 20 || len(free) != len(confined) {
		t.Fatalf("%d attempts, and %d confined", len(free), len(confined))
	}
	for name, became := range free {
		if became != "" {
			t.Errorf("the control: %s: %s", name, became)
		}
		if became := confined[name]; (became == "") != possible[name] {
			t.Errorf("confined: %s: %q", name, became)
		}
	}
}

// attempt runs program in namespaces as the daemon makes them. An attempt that
// succeeded has an empty value.
func attempt(t *testing.T, program, mode string, l net.Listener) map[string]string {
	t.Helper()
	cmd := exec.Command(program, mode, l.Addr().String())
	cmd.Env = []string{}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Unshareflags: syscall.CLONE_NEWNS, // and no mount of the attempts reaches the host
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	said := map[string]string{}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%s: %v in %q", mode, err, out)
	}
	return said
}
