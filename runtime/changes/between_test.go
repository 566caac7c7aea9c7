package changes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/tests/need"
)

// sides are two overlays over one layer, as the roots of two sandboxes are.
type sides struct{ base, old, is string }

func mountSides(t *testing.T, fill func(lower string)) sides {
	t.Helper()
	need.Root(t, "it mounts overlays")
	base := t.TempDir()
	must(t, unix.Mount("tmpfs", base, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(base, unix.MNT_DETACH)) })
	must(t, os.Mkdir(base+"/lower", 0o755))
	fill(base + "/lower")
	s := sides{base, base + "/old", base + "/new"}
	for _, at := range []string{s.old, s.is} {
		for _, dir := range []string{at, at + ".upper", at + ".work"} {
			must(t, os.Mkdir(dir, 0o755))
		}
		must(t, unix.Mount("overlay", at, "overlay", 0, "lowerdir="+base+"/lower,upperdir="+at+".upper,workdir="+at+".work,redirect_dir=on,metacopy=off,index=off,xino=off"))
		t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	return s
}

func (s sides) between(t *testing.T, o changes.Options, covered string) ([]changes.Change, bool) {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.Open(s.base + "/" + name)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	lower := open("lower")
	tree := func(name string) changes.Tree { return changes.Tree{Top: open(name), Under: lower} }
	list, more, err := changes.Between(t.Context(), []changes.Pair{{Old: tree("old.upper"), New: tree("new.upper"), Covered: covered}}, o)
	must(t, err)
	return list, more
}

// All that can differ is told, and nothing that is the same, however it came about.
func TestBetween(t *testing.T) {
	s := mountSides(t, func(lower string) {
		write(t, lower, "same", "edit", "mode", "gone", "back", "dir/a", "dir/sub/b", "old/x", "old/deep/y", "remade/p", "remade/q", "tofile/z", "rewritten", "both", "covered/x")
	})
	if list, more := s.between(t, changes.Options{}, ""); len(list) > 0 || more {
		t.Fatalf("nothing was done:\n%s", text(list))
	}
	a, b := s.old+"/", s.is+"/"
	write(t, s.old, "only-old/in", "made")
	must(t, os.Remove(a+"back"), os.RemoveAll(a+"both"), os.RemoveAll(b+"both"), os.Symlink("one", a+"link"), os.Symlink("two", b+"link"))
	write(t, s.is, "fresh/in", "odd\xff\nname", "made", "covered/y", "linked")
	must(t, os.WriteFile(b+"edit", []byte("tide"), 0), os.Chmod(b+"mode", 0o755|fs.ModeSetuid), os.Remove(b+"gone"), os.RemoveAll(b+"dir/sub"),
		os.Rename(b+"old", b+"moved"), os.RemoveAll(b+"remade"), os.Mkdir(b+"remade", 0o700), os.WriteFile(b+"remade/q", []byte("remade/q"), 0o644),
		os.RemoveAll(b+"tofile"), os.WriteFile(b+"tofile", nil, 0o644), os.WriteFile(b+"rewritten", []byte("rewritten"), 0), os.Chown(b+"same", 7, 8),
		os.Link(b+"linked", b+"linked2"), unix.Mkfifo(b+"pipe", 0o600))
	list, more := s.between(t, changes.Options{}, "covered")
	want := `added "back" >file
deleted "dir/sub" directory>
modified "edit" file>file
added "fresh" >directory
added "fresh/in" >file
deleted "gone" file>
modified "link" symlink>symlink -> two
added "linked" >file
added "linked2" >file
modified "mode" file>file 644>4755
added "moved" >directory
added "moved/deep" >directory
added "moved/deep/y" >file
added "moved/x" >file
added "odd\xff\nname" >file
deleted "old" directory>
deleted "only-old" directory>
added "pipe" >fifo
modified "remade" directory>directory 755>700
deleted "remade/p" file>
modified "same" file>file
modified "tofile" directory>file 755>644
`
	if got := text(list); got != want || more {
		t.Errorf("%v:\n%s\nwant\n%s", more, got, want)
	}
	for only, want := range map[string]string{
		"dir":          "deleted \"dir/sub\" directory>\n",
		"dir/sub/b":    "deleted \"dir/sub\" directory>\n",
		"moved/deep/y": "added \"moved\" >directory\nadded \"moved/deep\" >directory\nadded \"moved/deep/y\" >file\n",
		"remade/q":     "",
		"absent":       "",
	} {
		if list, more := s.between(t, changes.Options{Only: []string{only}}, ""); text(list) != want || more {
			t.Errorf("at %q: %v:\n%s", only, more, text(list))
		}
	}
	if list, more := s.between(t, changes.Options{Most: 5}, ""); len(list) != 5 || !more {
		t.Errorf("at most 5: %d, %v", len(list), more)
	}
}

// Whatever two sandboxes do, the changes are those that one sees who looks at both roots.
func TestBetweenIsWhatIsSeen(t *testing.T) {
	need.Root(t, "it mounts overlays")
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := mountSides(t, func(lower string) { act(t, r, lower, 60) })
		act(t, r, s.old, 30)
		act(t, r, s.is, 30)
		list, more := s.between(t, changes.Options{}, "")
		var got []string
		for _, c := range list {
			got = append(got, fmt.Sprintf("%s %s", c.Kind, c.Path))
		}
		if want := seen(t, s.old, s.is); !slices.Equal(got, want) || more {
			t.Fatalf("seed %d: %v\n%s\nwant\n%s", seed, more, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// act does n random things in a tree, with few names, so that they meet again.
func act(t *testing.T, r *rand.Rand, root string, n int) {
	t.Helper()
	some := func() string {
		at := root
		for range 1 + r.IntN(4) {
			at += "/" + string(rune('a'+r.IntN(4)))
		}
		return at
	}
	for range n {
		at := some()
		var err error
		switch r.IntN(9) {
		case 0, 1:
			err = os.MkdirAll(at, 0o755)
		case 2, 3:
			err = os.WriteFile(at, []byte{byte('a' + r.IntN(2))}, 0o644)
		case 4:
			err = os.RemoveAll(at)
		case 5:
			err = os.Rename(at, some())
		case 6:
			err = os.Link(at, some())
		case 7:
			err = os.Symlink([]string{"x", "y"}[r.IntN(2)], at)
		case 8:
			err = os.Chmod(at, []fs.FileMode{0o700, 0o755}[r.IntN(2)])
		}
		var errno syscall.Errno
		if err != nil && !errors.As(err, &errno) {
			t.Fatal(err)
		}
	}
}

// seen are the changes between two roots as anybody sees them.
func seen(t *testing.T, old, is string) (list []string) {
	t.Helper()
	a, b := told(t, old), told(t, is)
	for name, what := range a {
		now, there := b[name]
		switch parent := filepath.Dir(name); {
		case !there && (parent == "." || strings.HasPrefix(b[parent], "d")):
			list = append(list, "deleted "+name)
		case there && now != what:
			list = append(list, "modified "+name)
		}
	}
	for name := range b {
		if _, there := a[name]; !there {
			list = append(list, "added "+name)
		}
	}
	slices.SortFunc(list, func(x, y string) int {
		_, x, _ = strings.Cut(x, " ")
		_, y, _ = strings.Cut(y, " ")
		return strings.Compare(x, y)
	})
	return list
}

func told(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == root {
			return err
		}
		info, err := e.Info()
		what := info.Mode().String()
		switch {
		case err != nil:
			return err
		case e.Type() == fs.ModeSymlink:
			to, err := os.Readlink(at)
			all[at[len(root)+1:]] = what + to
			return err
		case e.Type().IsRegular():
			data, err := os.ReadFile(at)
			all[at[len(root)+1:]] = what + string(data)
			return err
		}
		all[at[len(root)+1:]] = what
		return nil
	}))
	return all
}

// plain returns what differs between two directories.
func plain(ctx context.Context, t *testing.T, a, b string) ([]changes.Change, bool, error) {
	t.Helper()
	open := func(name string) changes.Tree {
		f, err := os.Open(name)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		return changes.Tree{Top: f}
	}
	return changes.Between(ctx, []changes.Pair{{At: "at", Old: open(a), New: open(b)}}, changes.Options{})
}

// Content is compared to its end, without holes: a file of a terabyte takes no time.
func TestBetweenContent(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	put := func(dir, name string, size, at int64, data string) {
		f, err := os.Create(filepath.Join(dir, name))
		must(t, err)
		_, err = f.WriteAt([]byte(data), at)
		must(t, err, f.Truncate(size), f.Close())
	}
	const large = 200<<10 + 5
	for _, dir := range []string{a, b} {
		put(dir, "same", large, large-1, "x")
		put(dir, "sparse", 1<<40, 1<<39, "x")
	}
	put(a, "end", large, large-1, "x")
	put(b, "end", large, large-1, "y")
	put(a, "hole", 1<<40, 0, "x")
	put(b, "hole", 1<<40, 1<<39, "x")
	put(a, "size", 5, 0, "x")
	put(b, "size", 6, 0, "x")
	list, more, err := plain(t.Context(), t, a, b)
	want := "modified \"at/end\" file>file\nmodified \"at/hole\" file>file\nmodified \"at/size\" file>file\n"
	if got := text(list); got != want || more || err != nil {
		t.Errorf("%v, %v:\n%s", more, err, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := plain(ctx, t, a, b); !errors.Is(err, context.Canceled) {
		t.Errorf("without its caller: %v", err)
	}
}

// A tree that is too deep ends, and links lead nowhere.
func TestBetweenHostile(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, a, "dir/in")
	must(t, os.Symlink("/etc", b+"/dir"))
	list, more, err := plain(t.Context(), t, a, b)
	if got := text(list); got != "modified \"at/dir\" directory>symlink 755>777 -> /etc\n" || more || err != nil {
		t.Errorf("%v, %v:\n%s", more, err, got)
	}
	deep(t, b, 400)
	if list, more, err := plain(t.Context(), t, a, b); !more || len(list) > 300 || err != nil {
		t.Errorf("a deep tree: %d, %v, %v", len(list), more, err)
	}
}
