package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/server/servertest"
)

// asService makes the daemon of i a unit, and has systemctl print the file told.
func (i installation) asService(t *testing.T) (told string) {
	t.Helper()
	told = filepath.Join(i.dir, "told")
	for _, file := range []struct{ path, text string }{
		{filepath.Join("units", cli.UnitName), "[Service]\n"},
		{filepath.Join("bin", "systemctl"), "#!/bin/sh\necho \"systemctl $*\" >>" + i.dir + "/asked\nexec /bin/cat " + told + "\n"},
	} {
		path := filepath.Join(i.dir, file.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file.text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(i.dir, "bin"))
	return told
}

func (i installation) tell(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// No daemon is started beside a unit: it would hold the root when systemd starts its own.
func TestServiceStopped(t *testing.T) {
	for _, told := range []string{"ActiveState=inactive\n", "Job=0\nActiveState=failed\n"} {
		i := install(t)
		i.tell(t, i.asService(t), told)
		code, _, stderr := i.run(t, "ls")
		if code != cli.ExitRuntime || !strings.Contains(stderr, "a service of systemd, which does not run") || !strings.Contains(stderr, "SBX-802") || !strings.Contains(stderr, "systemctl start caissond") {
			t.Errorf("exit code %d, %q", code, stderr)
		}
		if calls := i.calls(t); calls[0] != "" {
			t.Errorf("the daemon was started: %q", calls)
		}
	}
}

// The start of a unit that a job waits for, or that runs, is waited for.
func TestServiceStarts(t *testing.T) {
	for _, told := range []string{"ActiveState=activating\n", "Job=77\nActiveState=inactive\n", "ActiveState=deactivating\nJob=12\n"} {
		i := install(t)
		i.tell(t, i.asService(t), told)
		done := make(chan int, 1)
		go func() {
			code, _, _ := i.run(t, "ls")
			done <- code
		}()
		for {
			if asked, err := os.ReadFile(filepath.Join(i.dir, "asked")); err == nil && strings.Count(string(asked), "systemctl show --property=ActiveState,Job caissond.service") > 1 {
				break
			}
			select {
			case code := <-done:
				t.Fatalf("%q: it did not wait: exit code %d", told, code)
			default:
			}
		}
		if err := os.MkdirAll(filepath.Dir(i.socket), 0o711); err != nil {
			t.Fatal(err)
		}
		servertest.ListenAt(t, &servertest.Fake{}, i.socket)
		if code := await(t, "exit", done); code != 0 {
			t.Errorf("%q: exit code %d", told, code)
		}
		if calls := i.calls(t); calls[0] != "" {
			t.Errorf("the daemon was started: %q", calls)
		}
	}
}
