package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A daemon that may open no more files says so, whatever it was about to do. It goes on
// as soon as it may again, and nothing is left.
func TestDaemonOutOfFiles(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "run", "--", "true")
	var all unix.Rlimit
	must(t, unix.Prlimit(d.PID(), unix.RLIMIT_NOFILE, nil, &all))
	few := all
	for n := uint64(d.OpenFiles(t)) + 3; n < all.Cur; n += 3 { // each time it gets further
		few.Cur = n
		must(t, unix.Prlimit(d.PID(), unix.RLIMIT_NOFILE, &few, nil))
		r := d.Try("run", "--", "true")
		must(t, unix.Prlimit(d.PID(), unix.RLIMIT_NOFILE, &all, nil))
		if r.Code == 0 {
			break
		}
		if r.Code != 125 || !strings.Contains(r.Stderr, "[SBX-004]") || !strings.Contains(r.Stderr, "LimitNOFILE") {
			t.Errorf("with %d descriptors: %+v", n, r)
		}
	}
	d.Run(t, "run", "--", "true")
	d.AwaitNoSandbox(t)
}

// The daemon refuses to start with fewer descriptors than its sandboxes need, and names
// the key and the number.
func TestStartWithTooFewFiles(t *testing.T) {
	d := harness.New(t)
	must(t, os.WriteFile(filepath.Join(d.Root, "config.yaml"), []byte("sandboxes: {max: 400}\n"), 0o600))
	said := startFails(t, d, []string{"prlimit", "--nofile=1327:1327", "--"}, func() {})
	for _, want := range []string{"SBX-105", "sandboxes.max", "the hard limit is 1327", "1328 to"} {
		if !strings.Contains(said, want) {
			t.Errorf("the daemon does not say %q:\n%s", want, said)
		}
	}
}

// The daemon refuses to start where no sandbox could pass the way to its state, and names
// the directory. A root directory there is no hindrance.
func TestStartBelowAClosedDirectory(t *testing.T) {
	d := harness.New(t)
	open := d.State
	must(t, os.Chmod(open, 0o755))
	closed := filepath.Join(open, "closed")
	must(t, os.Mkdir(closed, 0o700))
	d.State, d.Socket = filepath.Join(closed, "state"), filepath.Join(closed, "state", "caisson.sock")
	must(t, os.WriteFile(filepath.Join(d.Root, "config.yaml"), nil, 0o600))
	said := startFails(t, d, nil, func() {})
	for _, want := range []string{"SBX-117", fmt.Sprintf("%q has mode 0700", closed), "chmod o+x"} {
		if !strings.Contains(said, want) {
			t.Errorf("the daemon does not say %q:\n%s", want, said)
		}
	}
	d.Root, d.State, d.Socket = filepath.Join(closed, "root"), filepath.Join(open, "s"), filepath.Join(open, "s", "caisson.sock")
	must(t, os.Mkdir(d.Root, 0o755))
	d.Launch(t)
	defer d.CheckNothingLeft(t)
	defer d.Stop(t)
	d.Run(t, "run", "--", "true")
}
