package escape

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is an unprivileged user of the host.
const nobody = 65534

// TestStateIsClosed: an unprivileged user of the host can list nothing, open
// nothing and change nothing of the daemon's, while sandboxes live.
//
//caisson:smoke
func TestStateIsClosed(t *testing.T) {
	held(t, "P154", "the daemon's files")
	withProber(t)
	dir := workspace(t)
	must(t, os.Chmod(dir, 0o755))
	private := filepath.Join(dir, "private") // a way that is closed to others…
	shared := filepath.Join(private, "work") // …to what is open
	must(t, os.Mkdir(private, 0o700))
	must(t, os.Mkdir(shared, 0o755))
	must(t, os.WriteFile(filepath.Join(shared, "secret"), []byte("for its owner's way in only"), 0o644))
	d := detached(t, "--workspace", shared, "--", "sh", "-c", "echo out; echo err >&2; sleep 1000")
	await(t, "output", func() bool { return daemon.Run(t, "logs", d.ID).Stdout == "out\n" })

	var paths []string
	for _, top := range []string{daemon.Root, daemon.State} {
		must(t, filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // gone meanwhile
			}
			if info, err := e.Info(); err == nil {
				checkMode(t, path, info)
			}
			paths = append(paths, path)
			if path == filepath.Join(daemon.State, "sandboxes", d.ID, "rootfs") {
				return filepath.SkipDir
			}
			return nil
		}))
	}
	for _, line := range roam(t, paths) {
		how, path, _ := strings.Cut(line, " ")
		if path != prober(t) {
			t.Errorf("nobody may %s %s", how, path)
		}
	}
	if len(paths) < 50 {
		t.Errorf("only %d paths were tried", len(paths))
	}
}

// checkMode: no link that leads out, nothing that others can write, no file
// that others can read.
func checkMode(t *testing.T, path string, info os.FileInfo) {
	t.Helper()
	owner := info.Sys().(*syscall.Stat_t)
	inImage := strings.Contains(path, "/snapshots/") || strings.Contains(path, "/rootfs") || strings.Contains(path, "/private/") || strings.Contains(path, "/workspace")
	device := info.Mode()&os.ModeCharDevice != 0 && filepath.Base(filepath.Dir(path)) == "dev"
	if path == prober(t) || inImage || device || info.Mode()&os.ModeSymlink != 0 {
		return // of the tests, or an image's or a sandbox's own, behind directories that are closed
	}
	if perm := info.Mode().Perm(); perm&0o002 != 0 || (perm&0o020 != 0 && owner.Gid != 0) {
		t.Errorf("%s is %v: others can write it", path, info.Mode())
	}
	if owner.Uid != 0 && !strings.HasPrefix(path, filepath.Join(daemon.State, "sandboxes")) {
		t.Errorf("%s belongs to %d", path, owner.Uid)
	}
}

// roam tries each path as nobody and returns what came of it, "read PATH" or
// "write PATH".
func roam(t *testing.T, paths []string) []string {
	t.Helper()
	cmd := exec.Command(prober(t), "roam")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	tried := 0
	if _, err := fmt.Sscanf(stderr.String(), "%d tried", &tried); err != nil || tried != len(paths) {
		t.Fatalf("%d of %d paths were tried, %v", tried, len(paths), err)
	}
	return strings.FieldsFunc(stdout.String(), func(r rune) bool { return r == '\n' })
}
