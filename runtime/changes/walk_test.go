package changes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/tests/need"
)

// layers are an overlay of a test, mounted as a copy-on-write workspace is.
type layers struct{ lower, upper, merged string }

func mountLayers(t *testing.T, fill func(lower string)) layers {
	t.Helper()
	need.Root(t, "it mounts an overlay")
	base := t.TempDir()
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(base, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l := layers{base + "/lower", base + "/upper", base + "/merged"}
	for _, dir := range []string{l.lower, l.upper, l.merged, base + "/work"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	fill(l.lower)
	must(t, unix.Mount("overlay", l.merged, "overlay", 0, "lowerdir="+l.lower+",upperdir="+l.upper+",workdir="+base+"/work,redirect_dir=on,metacopy=off,index=off"))
	return l
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (l layers) of(t *testing.T, most int) ([]changes.Change, bool) {
	t.Helper()
	upper, err := os.Open(l.upper)
	must(t, err)
	defer upper.Close()
	lower, err := os.Open(l.lower)
	must(t, err)
	defer lower.Close()
	list, more, err := changes.Of(t.Context(), changes.Layers{Upper: upper, Lower: lower}, changes.Options{Most: most})
	must(t, err)
	return list, more
}

func text(list []changes.Change) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "%s %q", c.Kind, c.Path)
		if c.From != "" {
			fmt.Fprintf(&b, " from %q", c.From)
		}
		fmt.Fprintf(&b, " %s>%s", c.Old.Type, c.New.Type)
		if c.Old.Mode != c.New.Mode && c.Kind == changes.Modified {
			fmt.Fprintf(&b, " %o>%o", c.Old.Mode, c.New.Mode)
		}
		if c.New.Link != "" {
			fmt.Fprintf(&b, " -> %s", c.New.Link)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o644))
	}
}

// All that can become of a name is told, and no name that stayed as it was.
func TestChanges(t *testing.T) {
	l := mountLayers(t, func(lower string) {
		write(t, lower, "same", "kept/same", "edit", "mode", "gone", "dir/a", "dir/sub/b", "old/x", "old/deep/y", "remade/p", "remade/q", "remade/r/s", "tofile/z", "todir", "open/one")
		must(t, os.Symlink("same", lower+"/link"))
	})
	if list, more := l.of(t, 10); len(list) > 0 || more {
		t.Fatalf("nothing was done:\n%s", text(list))
	}
	m := l.merged + "/"
	write(t, l.merged, "new", "kept/new", "odd\xff\nname", "fresh/a/b")
	must(t, os.WriteFile(m+"edit", []byte("longer than before"), 0), os.Chmod(m+"mode", 0o755), os.Remove(m+"gone"), os.RemoveAll(m+"dir/sub"),
		os.Remove(m+"link"), os.Symlink("/etc/passwd", m+"link"),
		os.Rename(m+"old", m+"moved"), os.Remove(m+"moved/x"), os.Rename(m+"moved/deep", m+"kept/deep"),
		os.RemoveAll(m+"remade"), os.MkdirAll(m+"remade/r", 0o755), os.WriteFile(m+"remade/q", nil, 0o644),
		os.RemoveAll(m+"tofile"), os.WriteFile(m+"tofile", nil, 0o644), os.Remove(m+"todir"), os.Mkdir(m+"todir", 0o755), os.Chmod(m+"open", 0o700))
	write(t, l.merged, "todir/in")
	must(t, os.WriteFile(m+"temporary", nil, 0o600), os.Remove(m+"temporary"))
	list, more := l.of(t, 100)
	want := `deleted "dir/sub" directory>
modified "edit" file>file
added "fresh" >directory
added "fresh/a" >directory
added "fresh/a/b" >file
deleted "gone" file>
renamed "kept/deep" from "old/deep" directory>directory
added "kept/new" >file
modified "link" symlink>symlink -> /etc/passwd
modified "mode" file>file 644>755
renamed "moved" from "old" directory>directory
deleted "moved/x" file>
added "new" >file
added "odd\xff\nname" >file
modified "open" directory>directory 755>700
deleted "remade/p" file>
modified "remade/q" file>file
deleted "remade/r/s" file>
modified "todir" file>directory 644>755
added "todir/in" >file
modified "tofile" directory>file 755>644
`
	if got := text(list); got != want || more {
		t.Errorf("%v:\n%s\nwant\n%s", more, got, want)
	}
	if list, more := l.of(t, 5); len(list) != 5 || !more {
		t.Errorf("at most 5: %d, %v", len(list), more)
	}
}

// A hostile tree leads nowhere: links are not followed, a tree that is too deep ends, and
// what is no file is named.
func TestHostileChanges(t *testing.T) {
	l := mountLayers(t, func(lower string) { write(t, lower, "dir/in", "secret/x") })
	m := l.merged + "/"
	must(t, os.RemoveAll(m+"dir"), os.Symlink("/etc", m+"dir"), os.Symlink("..", m+"up"), os.Symlink("secret", m+"inside"),
		unix.Mkfifo(m+"fifo", 0o644), unix.Mknod(m+"socket", unix.S_IFSOCK|0o644, 0))
	list, more := l.of(t, 100)
	want := "modified \"dir\" directory>symlink 755>777 -> /etc\nadded \"fifo\" >fifo\nadded \"inside\" >symlink -> secret\nadded \"socket\" >socket\nadded \"up\" >symlink -> ..\n"
	if got := text(list); got != want || more {
		t.Errorf("%v:\n%s", more, got)
	}
	deep(t, l.merged, 400)
	if list, more := l.of(t, 1000); !more || len(list) > 300 {
		t.Errorf("a deep tree: %d, %v", len(list), more)
	}
}

// deep makes a chain of directories that is longer than a path can be.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	must(t, err)
	for range levels {
		name := strings.Repeat("d", 100)
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		must(t, err, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
}

// A walk ends with its caller.
func TestWalkEnds(t *testing.T) {
	l := mountLayers(t, func(string) {})
	dir, err := os.Open(l.lower)
	must(t, err)
	defer dir.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := changes.Of(ctx, changes.Layers{Upper: dir, Lower: dir}, changes.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
