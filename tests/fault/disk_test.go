package fault

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// tight is a daemon whose directories are file systems of their own, which can
// be made smaller while it runs.
type tight struct {
	*harness.Daemon
	disks map[string]string // mount points: its root's, its state's, and the one it makes for sandboxes
}

func newTight(t *testing.T) *tight {
	t.Helper()
	return newTightWith(t, "")
}

func newTightWith(t *testing.T, config string) *tight {
	t.Helper()
	return newTightOf(t, config, roomy)
}

// newTightOf has a disk below its root of so much.
func newTightOf(t *testing.T, config, root string) *tight {
	t.Helper()
	d := harness.New(t)
	d.Config = config
	disks := map[string]string{"root": d.Root, "state": d.State}
	d.Root, d.State = onTmpfs(t, d.Root, root), onTmpfs(t, d.State, roomy)
	d.Socket = filepath.Join(d.State, filepath.Base(d.Socket))
	disks["stage"] = filepath.Join(d.State, "sandboxes")
	d.Launch(t)
	t.Cleanup(func() {
		d.Stop(t)
		d.CheckNothingLeft(t)
	})
	return &tight{d, disks}
}

// roomy is what there is of a disk that is not to be full.
const roomy = "size=256m,nr_inodes=20000"

// onTmpfs mounts a file system of size on dir, and makes a directory in it for a daemon.
func onTmpfs(t *testing.T, dir, size string) string {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	own := filepath.Join(dir, "d")
	if err := os.Mkdir(own, 0o711); err != nil {
		t.Fatal(err)
	}
	return own
}

// shrink leaves the disk no more than room for bytes and inodes, until the
// returned function is called.
func (d *tight) shrink(t *testing.T, disk string, bytes, inodes int64) (grow func()) {
	t.Helper()
	for range 2 { // again: what was deleted is counted until the kernel has freed it
		var st unix.Statfs_t
		if err := unix.Statfs(d.disks[disk], &st); err != nil {
			t.Fatal(err)
		}
		d.remount(t, disk, 0, fmt.Sprintf("size=%d,nr_inodes=%d", int64(st.Blocks-st.Bfree)*st.Bsize+bytes, int64(st.Files-st.Ffree)+inodes))
		time.Sleep(50 * time.Millisecond) // for the kernel to free it
	}
	return func() {
		t.Helper()
		d.remount(t, disk, 0, roomy)
	}
}

// much is more than any test here uses.
const much = 1 << 14

func (d *tight) remount(t *testing.T, disk string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount("tmpfs", d.disks[disk], "tmpfs", unix.MS_REMOUNT|flags, options); err != nil {
		t.Fatalf("remount %s with %s: %v", disk, options, err)
	}
}

// Where the disk or its inodes are used up, new sandboxes are refused with a code
// and leave nothing; those that there are run on and can be removed; and all is
// well when there is room again (F26, F28).
func TestFullDisk(t *testing.T) {
	d := newTight(t)
	for _, disk := range []string{"root", "state", "stage"} {
		t.Run(disk+" space", func(t *testing.T) { d.checkFull(t, disk, 0, much) })
		t.Run(disk+" inodes", func(t *testing.T) { d.checkFull(t, disk, much<<12, 0) })
	}
}

func (d *tight) checkFull(t *testing.T, disk string, bytes, inodes int64) {
	for _, name := range []string{"stays", "goes"} {
		d.Run(t, "create", "--name", name)
	}
	running := strings.TrimSpace(d.Run(t, "exec", "-d", "stays", "--", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; exit 5").Stdout)
	grow := d.shrink(t, disk, bytes, inodes)
	if code := checkTyped(t, d.Try("create", "--json", "--name", "new")); code != "SBX-609" && code != "SBX-601" {
		t.Errorf("create: %s, want the code of a directory that cannot be written, or of the engine", code)
	}
	if r := d.Try("exec", "--json", "stays", "--", "sh", "-c", "touch /tmp/go; exit 3"); r.Code != 3 {
		checkTyped(t, r)
	}
	d.Run(t, "rm", "--force", "goes")
	if wrong := orphans(t, d.Daemon); len(wrong) > 0 {
		t.Errorf("left behind on a full disk: %v", wrong)
	}
	grow()
	d.Run(t, "exec", "stays", "--", "touch", "/tmp/go") // where that was refused
	if r := d.Try("wait", "stays", running); r.Code != 5 {
		t.Errorf("the command that ran meanwhile ended with %d, want 5: %s", r.Code, r.Stderr)
	}
	d.Run(t, "create", "--name", "new")
	checkSound(t, d.Daemon)
	d.Run(t, "rm", "--force", "stays", "new")
	checkSound(t, d.Daemon)
}

// A daemon that finds its root full starts all the same: it goes on with what runs, shows and
// removes it, and refuses what needs room by code.
func TestStartOnFullDisk(t *testing.T) {
	for name, left := range map[string][2]int64{"space": {0, much}, "inodes": {much << 12, 0}} {
		t.Run(name, func(t *testing.T) {
			d := newTight(t)
			for _, name := range []string{"stays", "goes"} {
				d.Run(t, "create", "--name", name)
			}
			job := strings.TrimSpace(d.Run(t, "exec", "-d", "-i", "stays", "--", "sh", "-c", "echo begun; read line; exit 3").Stdout)
			d.Kill(t)
			grow := d.shrink(t, "root", left[0], left[1])
			d.Launch(t)
			if log := d.Log(); !strings.Contains(log, "serve with a full disk") {
				t.Errorf("the log does not say that the disk is full:\n%s", log)
			}
			if l := list(t, d.Daemon); len(l) != 2 {
				t.Errorf("there are %+v, want two sandboxes", l)
			}
			if out := d.Run(t, "logs", "--exec", job, "stays").Stdout; out != "begun\n" {
				t.Errorf("logs: %q", out)
			}
			if r := d.TryWith("on\n", "attach", "-i", "stays", job); r.Code != 3 {
				t.Errorf("a command that ran meanwhile ended with %d, want 3: %s", r.Code, r.Stderr)
			}
			if r := d.Try("exec", "stays", "--", "sh", "-c", "echo heard; echo seen >&2; exit 4"); r.Code != 4 || r.Stdout != "heard\n" || r.Stderr != "seen\n" {
				t.Errorf("a new command: %+v", r)
			}
			if r := d.Try("exec", "--output-limit", "8M", "stays", "--", "head", "-c", "1048576", "/dev/zero"); r.Code != 0 || len(r.Stdout) != 1<<20 || r.Stderr != "" {
				t.Errorf("more than is kept in memory: %d, %d bytes, %q", r.Code, len(r.Stdout), r.Stderr)
			}
			if code := checkTyped(t, d.Try("create", "--json")); code != "SBX-609" && code != "SBX-601" {
				t.Errorf("create: %s", code)
			}
			if out := d.Try("doctor").Stdout; !strings.Contains(out, "the disk is full") {
				t.Errorf("doctor: %s", out)
			}
			if r := d.Try("cleanup", "--json"); r.Code != 0 { // containerd cannot note what it forgets
				checkTyped(t, r)
			}
			d.Run(t, "rm", "--force", "goes") // which makes some room
			grow()
			d.Run(t, "create", "--name", "new")
			checkSound(t, d.Daemon)
			d.Run(t, "rm", "--force", "stays", "new")
		})
	}
}

// checkNoStart fails t unless the daemon, which has ended, says which of its
// directories keeps it from starting.
func (d *tight) checkNoStart(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), harness.Bin(t, "caissond"), "--config", filepath.Join(d.Root, "config.yaml"), "--root", d.Root, "--state", d.State).CombinedOutput()
	if text := string(out); err == nil || !strings.Contains(text, "SBX-609") || !strings.Contains(text, "remedy: check space, inodes") {
		t.Errorf("the daemon's start: %v\n%s", err, out)
	}
}

// A state directory that became read-only refuses what would write to it, with a
// code; what runs goes on, and all is well when it can be written again (F29).
func TestReadOnlyState(t *testing.T) {
	d := newTight(t)
	for _, name := range []string{"stays", "goes"} {
		d.Run(t, "create", "--name", name)
	}
	d.remount(t, "state", unix.MS_RDONLY, roomy)
	if code := checkTyped(t, d.Try("create", "--json")); code != "SBX-609" {
		t.Errorf("create: %s, want that of a directory that cannot be written", code)
	}
	if r := d.Try("exec", "--json", "stays", "--", "sh", "-c", "exit 3"); r.Code != 3 {
		checkTyped(t, r)
	}
	if r := d.Try("rm", "--json", "--force", "goes"); r.Code != 0 {
		checkTyped(t, r)
	}
	d.Kill(t)
	d.checkNoStart(t)
	d.remount(t, "state", 0, roomy)
	d.Launch(t)
	if l := list(t, d.Daemon); len(l) != 1 || l[0].Name != "stays" {
		t.Errorf("there are %+v, want the one that stays", l)
	}
	checkSound(t, d.Daemon)
	d.Run(t, "rm", "--force", "stays")
	checkSound(t, d.Daemon)
}

// On a full disk a caller that is attached has every byte, and its result says that
// little is kept; the next command's output is kept whole again (F49).
func TestFullOutput(t *testing.T) {
	const written, left = 4 << 20, 1 << 20
	d := newTight(t)
	d.Run(t, "create", "--name", "box")
	write := []string{"exec", "--json", "--output-limit", "8M", "box", "--", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; exit 3", written)}
	grow := d.shrink(t, "root", left, much)
	var r harness.RunResult
	full := d.Try(write...)
	full.JSONIn(t, "result", &r)
	if full.Code != 3 || r.ExitCode != 3 || r.StdoutBytes != written || !r.Truncated || strings.Count(r.Stdout, "x") != written {
		t.Errorf("exit code %d, %d bytes, truncated %v, %d delivered; want 3, %d, true and all", r.ExitCode, r.StdoutBytes, r.Truncated, len(r.Stdout), written)
	}
	if warnings := strings.Join(r.Warnings, "\n"); !strings.Contains(warnings, "output of stdout was not kept: the daemon's disk is full") {
		t.Errorf("warnings %q", warnings)
	}
	logs := d.Try("logs", "--exec", "1", "box")
	if n := strings.Count(logs.Stdout, "x"); n == 0 || n > left+1<<20 || !strings.Contains(logs.Stderr, fmt.Sprintf("%d bytes of stdout are left out", written-n)) {
		t.Errorf("logs gave %d bytes and %q", n, logs.Stderr)
	}
	grow()
	r = harness.RunResult{}
	d.Try(write...).JSONIn(t, "result", &r)
	if r.Truncated || r.ExitCode != 3 || strings.Count(r.Stdout, "x") != written {
		t.Errorf("with room again: exit code %d, truncated %v, %d bytes", r.ExitCode, r.Truncated, len(r.Stdout))
	}
	d.Run(t, "rm", "--force", "box")
	checkSound(t, d.Daemon)
}

// An image that there is no room for is refused, in whichever step that shows, and
// nothing of it stays: the same import succeeds when there is room (F27).
func TestFullImport(t *testing.T) {
	d := newTight(t)
	const size, files = 6 << 20, 300
	archive := archiveOf(t, size, files)
	before := d.used(t, "root")
	for name, left := range map[string][2]int64{
		"spool":         {size / 2, much},
		"blob":          {size * 3 / 2, much},
		"unpack":        {size * 5 / 2, much},
		"unpack inodes": {size * 8, files / 2},
	} {
		t.Run(name, func(t *testing.T) {
			grow := d.shrink(t, "root", left[0], left[1])
			r := d.Try("image", "import", "--json", "--name", "big", archive)
			if code := checkTyped(t, r); code != "SBX-609" {
				t.Errorf("a full disk has the code %s: %+v", code, r)
			}
			if out := d.Run(t, "image", "ls").Stdout; strings.Contains(out, "big") {
				t.Errorf("half an image is listed:\n%s", out)
			}
			if out := d.Run(t, "run", "--", "echo", "ok").Stdout; out != "ok\n" {
				t.Errorf("a run printed %q", out)
			}
			await(t, "room as before", func() bool { return d.used(t, "root") < before+size/4 })
			grow()
		})
	}
	d.Run(t, "image", "import", "--name", "big", archive)
	checkSound(t, d.Daemon)
}

func (d *tight) used(t *testing.T, disk string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.disks[disk], &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// archiveOf returns a root file system of so many bytes and files, as a tar.
func archiveOf(t *testing.T, size, files int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	content := make([]byte, size/files)
	for i := range files {
		_, _ = rand.Read(content) // nothing that could be packed
		h := &tar.Header{Name: fmt.Sprint("file", i), Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}
