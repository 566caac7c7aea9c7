package patches_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	_ "github.com/caisson-run/caisson/rootfs/imagejobs" // the tests are caisson-images, too
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/patches"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/tests/need"
)

var sequences = flag.Int("sequences", 150, "random sequences of TestGitApplies")

var program = imageproc.Program{Path: "/proc/self/exe"}

// layers are an overlay of a test, mounted as a copy-on-write workspace is, and a copy of the
// lower one.
type layers struct{ base, lower, upper, merged, plain string }

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func mountLayers(t *testing.T, fill func(lower string)) layers {
	t.Helper()
	need.Root(t, "it mounts an overlay")
	need.Tools(t, "git")
	base := t.TempDir()
	must(t, unix.Mount("tmpfs", base, "tmpfs", 0, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(base, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l := layers{base, base + "/lower", base + "/upper", base + "/merged", base + "/plain"}
	for _, dir := range []string{l.lower, l.upper, l.merged, base + "/work"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	fill(l.lower)
	for _, args := range [][]string{{"cp", "-a", l.lower, l.plain}, {"find", l.plain, "-mindepth", "1", "-type", "d", "-empty", "-delete"}} { // git has no empty directories
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	must(t, unix.Mount("overlay", l.merged, "overlay", 0, "lowerdir="+l.lower+",upperdir="+l.upper+",workdir="+base+"/work,redirect_dir=on,metacopy=off,index=off"))
	t.Cleanup(func() {
		if err := unix.Unmount(l.merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return l
}

// patch is a patch of what was done, which a user makes.
func (l layers) patch(t *testing.T, as peer.Caller) patches.Patch {
	t.Helper()
	both, err := changes.Open(l.upper, l.lower)
	must(t, err)
	defer both.Close()
	list, more, err := changes.Of(t.Context(), both, changes.Options{})
	if err != nil || more {
		t.Fatalf("%v %v", more, err)
	}
	p, err := patches.Of(t.Context(), program, patches.Request{Layers: both, As: as, Changes: list})
	must(t, err)
	return p
}

var root = peer.User(0, 0, nil, 1)

// apply has git apply a patch to the copy.
func (l layers) apply(t *testing.T, text []byte, args ...string) error {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	cmd := exec.Command("git", append([]string{"apply", "--whitespace=nowarn"}, args...)...)
	cmd.Dir, cmd.Stdin = l.plain, strings.NewReader(string(text))
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+l.base, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// tree is what git knows of a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, dir)
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			all = append(all, fmt.Sprintf("%q %v %q", rel, info.Mode()&0o100 != 0, data))
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			all = append(all, fmt.Sprintf("%q -> %q", rel, target))
			return err
		}
		return nil
	}))
	return all
}

// names of files; some are odd.
var names = []string{"a", "b", "c", "dir", "sub", "-x", "a b", "new\nline", "tab\tq\"\\", "\xff\xfe", "..a", "ü", " ", "x ", "a => b", "%s", "'"}

// worker does something at random.
type worker struct {
	*rand.Rand
	root string
	log  []string
}

func (w *worker) any(dirs bool) string {
	all := []string{w.root}
	_ = filepath.WalkDir(w.root, func(name string, e fs.DirEntry, err error) error {
		if err == nil && (!dirs || e.IsDir()) {
			all = append(all, name)
		}
		return nil
	})
	return all[w.IntN(len(all))]
}

func (w *worker) fresh() string { return filepath.Join(w.any(true), names[w.IntN(len(names))]) }

func (w *worker) text() string {
	var b strings.Builder
	for range w.IntN(30) {
		b.WriteString([]string{"one\n", "two\n", "\n", "\r\n", "ü\n", "\xff\n", "--- a\n", "@@ -1 +1 @@\n", "\\ No newline\n", fmt.Sprintln(w.IntN(1000))}[w.IntN(10)])
	}
	if w.IntN(3) == 0 {
		b.WriteString("end")
	}
	return b.String()
}

// edit changes some lines of a text.
func (w *worker) edit(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for range 1 + w.IntN(3) {
		at := w.IntN(len(lines))
		lines = slices.Replace(lines, at, min(len(lines), at+w.IntN(3)), w.text())
		if len(lines) == 0 {
			return ""
		}
	}
	return strings.Join(lines, "")
}

func (w *worker) step() {
	from, name := w.any(false), w.fresh()
	what := w.IntN(9)
	w.log = append(w.log, fmt.Sprintf("%d %q %q", what, strings.TrimPrefix(from, w.root), strings.TrimPrefix(name, w.root)))
	switch what { // what fails is not done
	case 0, 1:
		_ = os.WriteFile(name, []byte(w.text()), 0o644)
	case 2:
		if text, err := os.ReadFile(from); err == nil {
			_ = os.WriteFile(from, []byte(w.edit(string(text))), 0o644)
		}
	case 3:
		_ = os.Mkdir(name, 0o755)
	case 4:
		_ = os.Symlink(names[w.IntN(len(names))], name)
	case 5:
		if from != w.root {
			_ = os.Rename(from, name)
		}
	case 6:
		if from != w.root {
			_ = os.RemoveAll(from)
		}
	case 7:
		if info, err := os.Lstat(from); err == nil && info.Mode()&fs.ModeSymlink == 0 && from != w.root {
			_ = os.Chmod(from, []fs.FileMode{0o644, 0o755, 0o700, 0o600}[w.IntN(4)]|0o100*fs.FileMode(info.Mode()>>31&1))
		}
	case 8:
		if from != w.root {
			_ = os.RemoveAll(from)
			_ = os.WriteFile(from, []byte(w.text()), 0o755)
		}
	}
}

// git apply makes the same tree of a copy as a sandbox made.
func TestGitApplies(t *testing.T) {
	seeds := make([]uint64, *sequences)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	for _, n := range need.Turn(t, seeds) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(n, 7))
			l := mountLayers(t, func(lower string) {
				w := worker{Rand: r, root: lower}
				for range 40 {
					w.step()
				}
			})
			w := worker{Rand: r, root: l.merged}
			for range 1 + r.IntN(40) {
				w.step()
			}
			p := l.patch(t, root)
			if err := l.apply(t, p.Text); err != nil || len(p.Left) > 0 || p.More {
				t.Fatalf("%v %v\n%s\n%s", err, p.Left, strings.Join(w.log, "\n"), p.Text)
			}
			if got, want := tree(t, l.plain), tree(t, l.merged); !slices.Equal(got, want) {
				t.Fatalf("got\n%s\nwant\n%s\n\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(w.log, "\n"), p.Text)
			}
		})
	}
}
