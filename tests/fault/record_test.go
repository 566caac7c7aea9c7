package fault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// A record that is torn, empty, of another boot or gone is never guessed at: its
// sandbox is removed, whole, and the others stay (F21, F30, F31).
func TestDamagedRecords(t *testing.T) {
	d := harness.Start(t)
	d.Run(t, "create", "--name", "sound")
	boot := strings.TrimSpace(read("/proc/sys/kernel/random/boot_id"))
	if boot == "" {
		t.Fatal("no boot ID")
	}
	for name, damage := range map[string]func(string) error{
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"torn":  func(path string) error { return os.Truncate(path, 100) },
		"gone":  os.Remove,
		"other boot": func(path string) error {
			text := strings.ReplaceAll(read(path), boot, "00000000-0000-0000-0000-000000000000")
			return os.WriteFile(path, []byte(text), 0o600)
		},
		"other version": func(path string) error {
			return os.WriteFile(path, []byte(strings.Replace(read(path), `"version":`, `"version":9`, 1)), 0o600)
		},
		"no file": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(d.Run(t, "create").Stdout)
			d.Run(t, "exec", "-d", id, "--", "sleep", "1000")
			d.Kill(t)
			if err := damage(filepath.Join(d.State, "sandboxes", id, "record.json")); err != nil {
				t.Fatal(err)
			}
			d.Launch(t)
			if l := list(t, d); len(l) != 1 || l[0].Name != "sound" {
				t.Errorf("there are %+v, want the sound one only", l)
			}
			checkSound(t, d)
		})
	}
	d.Run(t, "rm", "--force", "sound")
}

// The same of what is kept of a command, and of its output (F30).
func TestDamagedExecs(t *testing.T) {
	d := harness.Start(t)
	for name, path := range map[string]func(id, exec string) string{
		"record": func(id, exec string) string { return filepath.Join(d.State, "sandboxes", id, "execs.jsonl") },
		"output": func(id, exec string) string { return filepath.Join(d.Root, "output", id, exec+".stdout") },
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(d.Run(t, "create").Stdout)
			exec := strings.TrimSpace(d.Run(t, "exec", "-d", id, "--", "sh", "-c", "echo x; sleep 1000").Stdout)
			await(t, "output", func() bool { return d.Run(t, "logs", "--exec", exec, id).Stdout == "x\n" })
			runs := []string{"exec", id, "--", "sh", "-c", "pidof sleep >/dev/null"}
			d.Run(t, runs...)
			d.Kill(t)
			if err := os.Truncate(path(id, exec), 0); err != nil {
				t.Fatal(err)
			}
			d.Launch(t)
			if name == "record" { // nobody could ask for it
				await(t, "end of a command of which nothing is known", func() bool { return d.Try(runs...).Code == 1 })
			}
			checkSound(t, d)
			for _, s := range list(t, d) {
				d.Run(t, "rm", "--force", s.ID)
			}
			checkSound(t, d)
		})
	}
}

// What the daemon has no sandbox for goes, what the sandbox has lost is noticed,
// and what is not the daemon's stays (F31).
func TestMissingParts(t *testing.T) {
	d := harness.Start(t)
	foreign := filepath.Join(d.Root, "output", "not-a-sandbox")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]func(string) error{
		"spec":   func(id string) error { return os.Remove(filepath.Join(d.State, "sandboxes", id, "spec.json")) },
		"output": func(id string) error { return os.RemoveAll(filepath.Join(d.Root, "output", id)) },
		"execs":  func(id string) error { return os.RemoveAll(filepath.Join(d.State, "sandboxes", id, "execs.jsonl")) },
		"lines":  func(id string) error { return os.Truncate(filepath.Join(d.State, "sandboxes", id, "execs.jsonl"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(d.Run(t, "create").Stdout)
			for range 2 {
				d.Run(t, "exec", id, "--", "sh", "-c", "echo kept >&2")
			}
			d.Kill(t)
			if err := part(id); err != nil {
				t.Fatal(err)
			}
			d.Launch(t)
			if name == "lines" { // no command has a number of before
				for range 3 {
					d.Run(t, "exec", id, "--", "sh", "-c", "echo more >&2")
				}
			}
			for _, s := range list(t, d) {
				d.Run(t, "rm", "--force", s.ID)
			}
			checkSound(t, d)
		})
	}
	if err := os.Remove(foreign); err != nil {
		t.Errorf("what is no sandbox's was touched: %v", err)
	}
}
