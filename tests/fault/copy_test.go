package fault

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// oneFile is a tar of one file, larger than what lies between its reader and its
// writer.
func oneFile(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// inTmp lists what is in the sandbox's /tmp, by size.
func inTmp(t *testing.T, d *harness.Daemon) string {
	t.Helper()
	return strings.TrimSpace(d.Run(t, "exec", "box", "--", "sh", "-c", "cd /tmp; find . -type f -exec stat -c '%s %n' {} +; find . -mindepth 1 -type d").Stdout)
}

// A daemon that dies in a copy into a sandbox leaves nothing of it, or all; the
// copy can be repeated (F05).
//
//caisson:smoke
func TestKilledInCopyIn(t *testing.T) {
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box")
	archive := oneFile(t, "file", bytes.Repeat([]byte("0123456789abcdef"), 1<<18))
	for _, step := range []struct{ name, want string }{
		{"files/started", ""},
		{"half", ""},
		{"files/ended", "4194304 ./file"},
	} {
		t.Run(step.name, func(t *testing.T) {
			stdin, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			b.arm(t, step.name+"=kill")
			cp := beginWith(t, b.Daemon, stdin, "cp", "--json", "-", "box:/tmp")
			stdin.Close()
			if step.name == "half" {
				write(t, feed, archive[:len(archive)/2])
				await(t, "half of the file", func() bool { return inTmp(t, b.Daemon) != "" })
				b.Kill(t)
			} else {
				go func() { // the client may be gone before it has read all
					_, _ = feed.Write(archive)
					_ = feed.Close()
				}()
			}
			b.died(t, step.name)
			feed.Close()
			checkTyped(t, cp.end(t))
			await(t, "right content", func() bool { return inTmp(t, b.Daemon) == step.want })
			checkNoFileProcess(t, b.Daemon)
			if r := b.TryWith(string(archive), "cp", "-", "box:/tmp"); r.Code != 0 {
				t.Errorf("the repeated copy: %+v", r)
			}
			b.Run(t, "exec", "box", "--", "rm", "/tmp/file")
			checkSound(t, b.Daemon)
		})
	}
	b.empty(t)
}

func write(t *testing.T, f *os.File, data []byte) {
	t.Helper()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
}

// checkNoFileProcess fails t unless the process that copied for the daemon that
// died has ended.
func checkNoFileProcess(t *testing.T, d *harness.Daemon) {
	t.Helper()
	await(t, "end of the process that copied", func() bool {
		return !slices.ContainsFunc(glob(t, "/proc/[0-9]*/cmdline"), func(file string) bool {
			return strings.HasSuffix(read(file), "/caisson-init\x00files\x00") &&
				strings.Contains(read(filepath.Join(filepath.Dir(file), "cgroup")), "/"+d.Instance()+"/")
		})
	})
}

// The same out of a sandbox: on this side there is nothing of the copy, or all
// (F05).
func TestKilledInCopyOut(t *testing.T) {
	b := newBreakable(t, "")
	b.Run(t, "create", "--name", "box")
	const size = 256 << 20
	b.Run(t, "exec", "box", "--", "truncate", "-s", "256M", "/tmp/big") // it takes no memory
	for _, point := range []string{"files/started", "half", "files/ended"} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			b.arm(t, point+"=kill")
			cp := begin(t, b.Daemon, "cp", "--json", "box:/tmp/big", dir)
			if point == "half" {
				await(t, "begin of the copy", func() bool { return len(glob(t, filepath.Join(dir, ".*", "*"))) > 0 })
				signal(t, cp, syscall.SIGSTOP)
				b.Kill(t)
				if len(glob(t, filepath.Join(dir, "big"))) > 0 {
					t.Fatal("the copy was over before the daemon was killed")
				}
				signal(t, cp, syscall.SIGCONT)
			}
			b.died(t, point)
			r := cp.end(t)
			if r.Code != 0 {
				checkTyped(t, r)
			}
			left := glob(t, filepath.Join(dir, "*"))
			left = append(left, glob(t, filepath.Join(dir, ".*"))...)
			switch info, err := os.Stat(filepath.Join(dir, "big")); {
			case r.Code != 0 && len(left) > 0:
				t.Errorf("the failed copy left %q", left)
			case r.Code == 0 && (err != nil || info.Size() != size || len(left) != 1):
				t.Errorf("the copy succeeded with %q: %v", left, err)
			}
			checkNoFileProcess(t, b.Daemon)
			checkSound(t, b.Daemon)
		})
	}
	b.empty(t)
}

func signal(t *testing.T, c *call, sig syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
