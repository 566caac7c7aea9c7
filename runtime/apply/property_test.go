package apply

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/need"
)

var sequences = flag.Int("sequences", 800, "random sequences of TestApplyIsAsIfDoneThere")

// names of files; some are odd.
var names = []string{"a", "b", "c", "d", "dir", "sub", "-x", "a b", "new\nline", "\xff\xfe", "..a", "ü", strings.Repeat("n", 250), "a-b", "%s", "'"}

// gang does the same in several trees.
type gang struct {
	t     *testing.T
	rand  *rand.Rand
	trees []string
	log   []string
	clock int64
}

// path is a name in a directory of the trees, or a new one.
func (g *gang) path() string {
	dir := g.pick(func(e os.FileInfo) bool { return e.IsDir() })
	return filepath.Join(dir, names[g.rand.IntN(len(names))])
}

// pick chooses a name of the trees, the root if there is no other.
func (g *gang) pick(is func(os.FileInfo) bool) string {
	all := []string{"."}
	_ = filepath.Walk(g.trees[0], func(path string, e os.FileInfo, err error) error {
		if err == nil && is(e) && path != g.trees[0] {
			all = append(all, strings.TrimPrefix(path, g.trees[0]+"/"))
		}
		return nil
	})
	return all[g.rand.IntN(len(all))]
}

// each does something in all trees, which fails in all or in none.
func (g *gang) each(what string, do func(root string) error) {
	g.t.Helper()
	g.log = append(g.log, what)
	first := do(g.trees[0] + "/")
	if errors.Is(first, unix.EXDEV) { // overlayfs bounds the old names of directories (redirect_max)
		return
	}
	for _, root := range g.trees[1:] {
		if err := do(root + "/"); (err == nil) != (first == nil) {
			g.t.Fatalf("%s: %v, but %v\n%s", what, first, err, strings.Join(g.log, "\n"))
		}
	}
}

func (g *gang) file(name string, flags int, data []byte, at int64) {
	g.clock += 1_000_000_001
	when := time.Unix(1_500_000_000, g.clock)
	mode := os.FileMode(0o600 + g.rand.IntN(0o200))
	g.each(fmt.Sprintf("write %q %#x %d at %d", name, flags, len(data), at), func(root string) error {
		f, err := os.OpenFile(root+name, flags|unix.O_NOFOLLOW, mode)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(data, at)
		return errors.Join(err, f.Close(), os.Chtimes(root+name, when, when))
	})
}

func (g *gang) settime(root, name string) error {
	at := unix.NsecToTimespec(1_500_000_000_000_000_000) // an equal link is no change
	return unix.UtimesNanoAt(unix.AT_FDCWD, root+name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

func (g *gang) data() []byte {
	data := make([]byte, g.rand.IntN(40))
	if g.rand.IntN(30) == 0 {
		data = make([]byte, 1+g.rand.IntN(3<<20))
	}
	for i := 0; i < len(data); i += 1 + len(data)/50 {
		data[i] = byte(g.rand.Uint32())
	}
	return data
}

func isFile(e os.FileInfo) bool { return e.Mode().IsRegular() }
func isAny(os.FileInfo) bool    { return true }
func isDir(e os.FileInfo) bool  { return e.IsDir() }

// act does something at random.
func (g *gang) act() {
	switch g.rand.IntN(16) {
	case 0, 1:
		g.file(g.path(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, g.data(), 0)
	case 2:
		g.file(g.pick(isFile), os.O_RDWR, g.data(), int64(g.rand.IntN(30)))
	case 3:
		g.file(g.path(), os.O_RDWR|os.O_CREATE, g.data(), int64(g.rand.IntN(4<<20)))
	case 4, 5:
		name, mode := g.path(), os.FileMode(0o700+g.rand.IntN(0o100))
		g.each("mkdir "+name, func(root string) error { return os.Mkdir(root+name, mode) })
	case 6:
		name := g.pick(isAny)
		if name == "." {
			return
		}
		g.each("rm "+name, func(root string) error { return os.RemoveAll(root + name) })
	case 7, 8, 9:
		from, to := g.pick(isAny), g.path()
		if from == "." || strings.HasPrefix(to+"/", from+"/") {
			return
		}
		g.each(fmt.Sprintf("mv %q %q", from, to), func(root string) error { return unix.Rename(root+from, root+to) })
	case 10:
		name, to := g.path(), names[g.rand.IntN(len(names))]
		g.each(fmt.Sprintf("ln -s %q %q", to, name), func(root string) error {
			if err := os.Symlink(to, root+name); err != nil {
				return err
			}
			return g.settime(root, name)
		})
	case 11: // overlayfs parts files of the lower layer that are one
		if len(g.trees) == 1 {
			return
		}
		from, to := g.pick(isFile), g.path()
		g.each(fmt.Sprintf("ln %q %q", from, to), func(root string) error { return os.Link(root+from, root+to) })
	case 12:
		name, mode := g.pick(isFile), uint32(g.rand.IntN(0o10000))
		if name == "." {
			return
		}
		g.each(fmt.Sprintf("chmod %o %q", mode, name), func(root string) error { return unix.Chmod(root+name, mode) })
	case 13:
		name, mode := g.pick(isDir), uint32(g.rand.IntN(0o2000))
		if name == "." {
			return
		}
		g.each(fmt.Sprintf("chmod %o %q", mode, name), func(root string) error { return unix.Chmod(root+name, mode) })
	case 14: // a directory in the place of another
		name, to := g.pick(isDir), g.path()
		if name == "." {
			return
		}
		g.each(fmt.Sprintf("replace %q", name), func(root string) error {
			return errors.Join(os.RemoveAll(root+name), os.Mkdir(root+name, 0o755))
		})
		g.file(to, os.O_RDWR|os.O_CREATE, g.data(), 0)
	case 15: // a file in the place of a directory
		name := g.pick(isDir)
		if name == "." {
			return
		}
		g.each("rm "+name, func(root string) error { return os.RemoveAll(root + name) })
		g.file(name, os.O_RDWR|os.O_CREATE, g.data(), 0)
	}
}

// Operations in a copy-on-write workspace, and an apply after some of them, give the tree that
// the same operations in a copy of the host's directory give. In half of the cases a daemon is
// killed while it applies, and the next one finishes that or undoes it.
func TestApplyIsAsIfDoneThere(t *testing.T) {
	seeds := make([]uint64, *sequences)
	for i := range seeds {
		seeds[i] = uint64(i)
	}
	for _, seed := range need.Turn(t, seeds) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { oneSequence(t, rand.New(rand.NewPCG(seed, 1))) }) {
			return
		}
	}
}

func oneSequence(t *testing.T, r *rand.Rand) {
	g := &gang{t: t, rand: r}
	o := mountOverlay(t, func(host string) {
		g.trees = []string{host}
		for range r.IntN(60) {
			g.act()
		}
	})
	plain := filepath.Dir(o.host) + "/plain"
	if out, err := exec.Command("cp", "-a", o.host, plain).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	g.trees = []string{o.merged, plain}
	for range 1 + r.IntN(3) {
		for range r.IntN(20) {
			g.act()
		}
		if r.IntN(3) == 0 && o.live {
			o.unmount(t)
		}
		g.apply(o)
		if got, want := treeText(t, o.host), treeText(t, plain); got != want {
			t.Fatalf("%s\nlive: %v, %s", strings.Join(g.log, "\n"), o.live, differences(got, want))
		}
		if !o.live {
			break
		}
	}
	p, _, err := o.look(t, Request{})
	must(t, err)
	if len(p.Changes)+len(p.Conflicts)+len(p.Left) > 0 {
		t.Errorf("%s\nafter all was applied: %+v %+v %+v", strings.Join(g.log, "\n"), p.Changes, p.Conflicts, p.Left)
	}
}

// differences are the lines that only one of two texts has.
func differences(got, want string) string {
	var b strings.Builder
	has := func(text, line string) bool { return strings.Contains("\n"+text, "\n"+line) }
	for line := range strings.Lines(got) {
		if !has(want, line) {
			b.WriteString("has " + line)
		}
	}
	for line := range strings.Lines(want) {
		if !has(got, line) {
			b.WriteString("lacks " + line)
		}
	}
	return b.String()
}

// some applies a part, where that goes.
func (g *gang) some(o *overlay) {
	p, _, err := o.look(g.t, Request{})
	if err != nil || len(p.Changes) == 0 {
		return
	}
	r := Request{Paths: []string{p.Changes[g.rand.IntN(len(p.Changes))].Path, p.Changes[g.rand.IntN(len(p.Changes))].Path}}
	if _, _, err := o.look(g.t, r); err != nil {
		return
	}
	g.log = append(g.log, fmt.Sprintf("apply %q live=%v", r.Paths, o.live))
	if p, result := o.apply(g.t, r); len(p.Conflicts)+len(p.Left)+len(result.Failed) > 0 {
		g.t.Fatalf("%s\nconflicts %+v\nleft %+v\nfailed %+v", strings.Join(g.log, "\n"), p.Conflicts, p.Left, result.Failed)
	}
}

// apply applies, or is killed and applies again.
func (g *gang) apply(o *overlay) {
	t := g.t
	t.Helper()
	if g.rand.IntN(3) == 0 {
		g.some(o)
	}
	_, _, err := o.look(t, Request{})
	if errors.Is(err, sbxerr.ApplyRenamed) {
		o.unmount(t)
		_, _, err = o.look(t, Request{})
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(g.log, "\n"))
	}
	g.log = append(g.log, fmt.Sprintf("apply live=%v", o.live))
	if g.rand.IntN(2) == 0 {
		before := treeText(t, o.host)
		killed := o.applyKilled(t, g.rand.IntN(12))
		was, failed, err := Finish(o.files)
		if len(failed) > 0 {
			t.Fatalf("killed at %s: %+v", killed, failed)
		}
		g.log = append(g.log, fmt.Sprintf("killed at %s", killed))
		must(t, err)
		o.clean(t)
		if !was && killed != "apply/cleared" && killed != "" {
			t.Fatalf("killed at %s: no journal", killed)
		}
		if now := treeText(t, o.host); (killed == "apply/begun" || killed == "apply/made" || killed == "apply/staged") && now != before {
			t.Fatalf("killed at %s:\n%s\nbefore\n%s", killed, now, before)
		}
	}
	p, result := o.apply(t, Request{})
	if len(p.Conflicts)+len(p.Left)+len(result.Failed) > 0 {
		t.Fatalf("%s\nconflicts %+v\nleft %+v\nfailed %+v", strings.Join(g.log, "\n"), p.Conflicts, p.Left, result.Failed)
	}
}

// applyKilled applies, and stops after a number of steps. It returns the last one, or nothing if
// there were fewer.
func (o *overlay) applyKilled(t *testing.T, after int) (at string) {
	t.Helper()
	type kill struct{}
	defer func() {
		step = func(string) error { return nil }
		if r := recover(); r != nil && r != (kill{}) {
			panic(r)
		}
	}()
	step = func(name string) error {
		if after--; after < 0 {
			at = name
			panic(kill{})
		}
		return nil
	}
	o.apply(t, Request{})
	return ""
}
