package fault

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// What cannot be removed, and what is not the daemon's, is skipped and told by the
// doctor. The sandboxes are served all the same.
func TestQuarantine(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "create", "--name", "sound")
	pid := initOf(t, d, "sound")
	job := strings.TrimSpace(d.Run(t, "exec", "-d", "-i", "sound", "--", "sh", "-c", "read line; echo $line; exit 3").Stdout)
	d.Kill(t)

	sandboxes := filepath.Join(d.State, "sandboxes")
	stuck := filepath.Join(sandboxes, "aaaa2222222222222222222222")
	files := []string{
		filepath.Join(sandboxes, "junk"), filepath.Join(sandboxes, "bbbb2222222222222222222222"),
		filepath.Join(d.State, "ids", "junk"), filepath.Join(d.State, "ids", "7"), filepath.Join(d.Root, "output", "cccc2222222222222222222222"),
	}
	if err := os.MkdirAll(filepath.Join(stuck, "unknown"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("junk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mounted := filepath.Join(d.Root, "output", "dddd2222222222222222222222")
	if err := errors.Join(os.Mkdir(mounted, 0o700), unix.Mount("tmpfs", mounted, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second start finds the same
		d.Launch(t)
		if now := initOf(t, d, "sound"); now != pid {
			t.Errorf("PID 1 is %d, was %d", now, pid)
		}
		d.Run(t, "run", "--", "true")
		await(t, "word of all that is skipped", func() bool {
			told := d.Try("doctor", "--json").Stdout
			for _, path := range append(files, stuck, mounted) {
				if !strings.Contains(told, " at "+path+": ") {
					return false
				}
			}
			return strings.Contains(told, "SBX-610")
		})
		d.Kill(t)
	}
	d.Launch(t)
	if r := d.Try("cleanup"); r.Code != 125 || !strings.Contains(r.Stderr, stuck) {
		t.Errorf("a cleanup that cannot remove everything: %+v", r)
	}
	if err := unix.Unmount(mounted, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mounted); err != nil && !errors.Is(err, fs.ErrNotExist) { // a sweep may have come first: nothing is mounted there now
		t.Error(err)
	}
	for _, path := range append(files, filepath.Join(stuck, "unknown")) {
		if err := os.Remove(path); err != nil {
			t.Errorf("the daemon touched what is not its own: %v", err)
		}
	}
	d.Run(t, "cleanup")
	if told := d.Try("doctor", "--json").Stdout; strings.Contains(told, "SBX-610") {
		t.Errorf("after a cleanup the doctor says %s", told)
	}
	if r := d.TryWith("on\n", "attach", "-i", "sound", job); r.Code != 3 || r.Stdout != "on\n" {
		t.Errorf("the command ended with %+v", r)
	}
	checkSound(t, d)
}

// A sandbox whose record is a FIFO, whose directory is gone, or whose state runc cannot
// read is ended and removed by what derives from its ID. Nothing waits for the FIFO.
func TestRemovalFromTheID(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "create", "--name", "sound")
	for name, damage := range map[string]func(id string) error{
		"fifo": func(id string) error {
			path := filepath.Join(d.State, "sandboxes", id, "record.json")
			return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))
		},
		"no directory": func(id string) error { return unmake(filepath.Join(d.State, "sandboxes", id)) },
		"runc's state": func(id string) error { return garble(d.State, id) },
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(d.Run(t, "create").Stdout)
			pid := initOf(t, d, id)
			d.Kill(t)
			if err := damage(id); err != nil {
				t.Fatal(err)
			}
			d.Launch(t)
			if d.Try("inspect", id).Code == 0 {
				d.Run(t, "rm", "--force", id)
			}
			await(t, "end of its processes", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
			checkSound(t, d)
		})
	}
	t.Run("runc's state, daemon alive", func(t *testing.T) {
		id := strings.TrimSpace(d.Run(t, "create").Stdout)
		if err := garble(d.State, id); err != nil {
			t.Fatal(err)
		}
		d.Run(t, "rm", "--force", id)
		checkSound(t, d)
	})
}

// Processes that are no sandbox's of this daemon are left alone, wherever they are: the
// group above those of the sandboxes may be another daemon's too.
func TestForeignProcessInOurGroup(t *testing.T) {
	d := harness.StartWith(t, "")
	d.Run(t, "create", "--name", "sound")
	parents := append(glob(t, "/sys/fs/cgroup/*/"+d.Instance()), glob(t, "/sys/fs/cgroup/"+d.Instance())...)
	if len(parents) == 0 {
		t.Fatal("no group of the daemon's")
	}
	group := filepath.Join(parents[0], "dddd2222222222222222222222")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	sleeper := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := d.Try("cleanup"); r.Code != 125 || !strings.Contains(r.Stderr, "left alone") {
		t.Errorf("a cleanup: %+v", r)
	}
	if err := unix.Kill(sleeper.Process.Pid, 0); err != nil {
		t.Errorf("the process of somebody else: %v", err)
	}
	if err := sleeper.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = sleeper.Wait() // it was killed
	d.Run(t, "cleanup")
	checkSound(t, d)
}

// garble makes runc's state of a container unreadable.
func garble(state, id string) error {
	path := filepath.Join(state, "runc")
	found := ""
	err := filepath.WalkDir(path, func(p string, _ os.DirEntry, err error) error {
		if filepath.Base(p) == "state.json" && filepath.Base(filepath.Dir(p)) == id {
			found = p
		}
		return err
	})
	if err == nil && found == "" {
		err = errors.New("runc has no state of it in " + path)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(found, []byte("{garbled"), 0o600)
}

// unmake takes every mount off what is in dir, and removes it.
func unmake(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		for unix.Unmount(filepath.Join(dir, e.Name()), unix.MNT_DETACH) == nil {
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}
