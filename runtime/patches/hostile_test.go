package patches_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/rootfs/patch"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/patches"
	"github.com/caisson-run/caisson/runtime/peer"
)

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(name, data, 0o644))
}

// reasons are why a patch leaves out names.
func reasons(p patches.Patch) map[string]string {
	all := map[string]string{}
	for _, n := range p.Left {
		all[n.Path] = n.Reason
	}
	return all
}

func wantLeft(t *testing.T, p patches.Patch, want map[string]string) {
	t.Helper()
	got := reasons(p)
	for name, reason := range want {
		if !strings.Contains(got[name], reason) {
			t.Errorf("%q: %q, want %q", name, got[name], reason)
		}
	}
	if len(got) != len(want) {
		t.Errorf("left out: %q", got)
	}
}

// What a patch cannot have is left out and said, and the rest is applied.
func TestLeftOut(t *testing.T) {
	l := mountLayers(t, func(lower string) {
		must(t, os.MkdirAll(lower+"/.git/objects", 0o755), os.Mkdir(lower+"/gone", 0o755))
		write(t, lower+"/.git/index", []byte("index"))
		write(t, lower+"/gone/text", []byte("gone\n"))
		write(t, lower+"/becomes-fifo", []byte("text\n"))
		write(t, lower+"/opened", []byte("same\n"))
		write(t, lower+"/just-fits", bytes.Repeat([]byte("a"), patch.MaxFile))
		must(t, unix.Mkfifo(lower+"/gone/fifo", 0o644))
	})
	write(t, l.merged+"/.git/index", []byte("other"))
	write(t, l.merged+"/.git/objects/x", []byte("x"))
	must(t, os.RemoveAll(l.merged+"/gone"), os.Remove(l.merged+"/becomes-fifo"), unix.Mkfifo(l.merged+"/becomes-fifo", 0o644), unix.Mkfifo(l.merged+"/fifo", 0o644))
	write(t, l.merged+"/too-large", bytes.Repeat([]byte("a"), patch.MaxFile+1))
	write(t, l.merged+"/just-fits", bytes.Repeat([]byte("b"), patch.MaxFile))
	write(t, l.merged+"/opened", []byte("same\n"))
	write(t, l.merged+"/new", []byte("new"))
	p := l.patch(t, root)
	wantLeft(t, p, map[string]string{".git": "git takes no", "gone/fifo": "a patch has no fifo", "becomes-fifo": "a patch has no fifo", "fifo": "a patch has no fifo", "too-large": "too large"})
	must(t, l.apply(t, p.Text), os.RemoveAll(l.merged+"/.git"), os.RemoveAll(l.plain+"/.git"), os.Remove(l.merged+"/too-large"))
	if got, want := tree(t, l.plain), tree(t, l.merged); !slices.Equal(got, want) {
		t.Errorf("%.300q, want %.300q", got, want)
	}
	if bytes.Contains(p.Text, []byte("opened")) {
		t.Error("a file of the same content is in it")
	}
}

// Binary files are named, which git apply refuses, and takes without them.
func TestBinary(t *testing.T) {
	l := mountLayers(t, func(lower string) { write(t, lower+"/b in", []byte("text\n")) })
	write(t, l.merged+"/b in", []byte("a\x00b"))
	write(t, l.merged+"/new", []byte("\x00"))
	write(t, l.merged+"/text", []byte("text\n"))
	p := l.patch(t, root)
	wantLeft(t, p, map[string]string{"b in": "binary", "new": "binary"})
	if want := "Binary files a/b in and b/b in differ\n"; !strings.Contains(string(p.Text), want) {
		t.Errorf("%s", p.Text)
	}
	if err := l.apply(t, p.Text); err == nil || !strings.Contains(err.Error(), "cannot apply binary patch") {
		t.Errorf("git apply: %v", err)
	}
	must(t, l.apply(t, p.Text, "--exclude=b in", "--exclude=new"))
}

// What is slow to compare is compared in a bounded time, and applies.
func TestHostileText(t *testing.T) {
	lines := func(of string, from, to int) []byte {
		var b bytes.Buffer
		for n := from; n < to; n++ {
			fmt.Fprintf(&b, of, n)
		}
		return b.Bytes()
	}
	shuffled := func(step int) []byte {
		var b bytes.Buffer
		for n := range 100_000 {
			fmt.Fprintln(&b, (n*step)%100_003)
		}
		return b.Bytes()
	}
	for name, both := range map[string][2][]byte{
		"a million lines":    {bytes.Repeat([]byte("\n"), 1_000_000), append(bytes.Repeat([]byte("\n"), 999_000), bytes.Repeat([]byte("x"), 40_000)...)},
		"nothing in common":  {lines("a%d\n", 0, 100_000), lines("b%d\n", 0, 100_000)},
		"every other line":   {lines("%d\n\n", 0, 100_000), lines("%d\nx\n", 0, 100_000)},
		"another order":      {shuffled(1), shuffled(7919)},
		"two lines in turns": {bytes.Repeat([]byte("a\nb\n"), 200_000), bytes.Repeat([]byte("b\nb\na\n"), 150_000)},
		"one huge line":      {bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 1<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			l := mountLayers(t, func(lower string) { write(t, lower+"/f", both[0]) })
			write(t, l.merged+"/f", both[1])
			begin := time.Now()
			p := l.patch(t, root)
			took := time.Since(begin)
			t.Logf("%s, %d bytes", took, len(p.Text))
			if took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			if err := l.apply(t, p.Text); err != nil || len(p.Left) > 0 {
				t.Errorf("%.200v %v", err, p.Left)
			}
			if got, want := tree(t, l.plain), tree(t, l.merged); !slices.Equal(got, want) {
				t.Error("another file came of it")
			}
		})
	}
}

// A patch is bounded. Files that would not fit are left out, and others are not.
func TestPatchBound(t *testing.T) {
	l := mountLayers(t, func(string) {})
	for n := range 12 {
		write(t, fmt.Sprintf("%s/big%02d", l.merged, n), bytes.Repeat([]byte("text\n"), 180_000))
	}
	write(t, l.merged+"/small", []byte("small\n"))
	p := l.patch(t, root)
	if len(p.Text) > patch.MaxPatch || len(p.Text) < patch.MaxPatch*9/10 {
		t.Errorf("%d bytes", len(p.Text))
	}
	wantLeft(t, p, map[string]string{"big09": "too large", "big10": "too large", "big11": "too large"})
	must(t, l.apply(t, p.Text))
	if got, err := os.ReadFile(l.plain + "/small"); err != nil || string(got) != "small\n" {
		t.Errorf("%q %v", got, err)
	}
}

// Of the host's files a patch shows those that the user may read. Root, the control, may all.
func TestRights(t *testing.T) {
	const secret = "what only root may read"
	l := mountLayers(t, func(lower string) {
		must(t, os.MkdirAll(lower+"/open/closed", 0o755), os.Mkdir(lower+"/shut", 0o755))
		for _, name := range []string{"/secret", "/open/secret", "/shut/in", "/open/closed/in"} {
			write(t, lower+name, []byte(secret+"\n"))
			must(t, os.Chmod(lower+name, 0o600))
		}
		write(t, lower+"/known", []byte("known\n"))
		must(t, os.Chmod(lower+"/shut", 0o700))
	})
	write(t, l.merged+"/secret", []byte("other\n"))
	must(t, os.RemoveAll(l.merged+"/open"), os.RemoveAll(l.merged+"/shut"), os.Remove(l.merged+"/known"))
	user := l.patch(t, peer.User(54321, 54321, nil, 1))
	if bytes.Contains(user.Text, []byte(secret)) || !bytes.Contains(user.Text, []byte("-known")) {
		t.Errorf("%s", user.Text)
	}
	wantLeft(t, user, map[string]string{"secret": "cannot be read", "open/secret": "cannot be read", "open/closed/in": "cannot be read", "shut": "cannot be read"})
	if p := l.patch(t, root); bytes.Count(p.Text, []byte("-"+secret)) != 4 || len(p.Left) > 0 {
		t.Errorf("as root: %v %s", p.Left, p.Text)
	}
}

// What is put in the place of a file after it was listed is not followed and not waited for.
func TestSwapped(t *testing.T) {
	const secret = "a secret of the host"
	for name, swap := range map[string]func(l layers, name string) error{
		"link":      func(l layers, name string) error { return os.Symlink(l.base+"/host", name) },
		"fifo":      func(_ layers, name string) error { return unix.Mkfifo(name, 0o644) },
		"directory": func(_ layers, name string) error { return os.Mkdir(name, 0o755) },
		"nothing":   func(layers, string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := mountLayers(t, func(string) {})
			write(t, l.base+"/host", []byte(secret))
			must(t, os.Mkdir(l.merged+"/dir", 0o755))
			write(t, l.merged+"/dir/f", []byte("text\n"))
			write(t, l.merged+"/other", []byte("other\n"))
			both, err := changes.Open(l.upper, l.lower)
			must(t, err)
			defer both.Close()
			list, _, err := changes.Of(t.Context(), both, changes.Options{})
			must(t, err)
			of := func() patches.Patch {
				p, err := patches.Of(t.Context(), program, patches.Request{Layers: both, As: root, Changes: list})
				must(t, err)
				return p
			}
			if p := of(); len(p.Left) > 0 || !bytes.Contains(p.Text, []byte("+text")) {
				t.Fatalf("before: %v %s", p.Left, p.Text)
			}
			must(t, os.Remove(l.merged+"/dir/f"), swap(l, l.merged+"/dir/f"))
			p := of()
			wantLeft(t, p, map[string]string{"dir/f": "changed meanwhile"})
			if bytes.Contains(p.Text, []byte(secret)) || !bytes.Contains(p.Text, []byte("+other")) {
				t.Errorf("%s", p.Text)
			}
			if name == "link" { // the way to it, too
				must(t, os.RemoveAll(l.merged+"/dir"), os.Mkdir(l.base+"/out", 0o755), os.Symlink(l.base+"/out", l.merged+"/dir"))
				write(t, l.base+"/out/f", []byte(secret))
				if p := of(); bytes.Contains(p.Text, []byte(secret)) || reasons(p)["dir/f"] == "" {
					t.Errorf("%s", p.Text)
				}
			}
		})
	}
}

// Files that are written to while they are read are shown as they are then.
func TestWrittenMeanwhile(t *testing.T) {
	l := mountLayers(t, func(string) {})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(l.merged+"/f", bytes.Repeat([]byte("line\n"), n%100_000), 0o644) // it is read
				if n%3 == 0 {
					_ = os.Remove(l.merged + "/f")
				}
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 20 {
		p := l.patch(t, root)
		must(t, l.apply(t, p.Text))
		_ = os.Remove(l.plain + "/f") // it may be left out
	}
}

// Control files are in a patch only if that is asked for.
func TestControl(t *testing.T) {
	l := mountLayers(t, func(string) {})
	write(t, l.merged+"/.envrc", []byte("curl evil\n"))
	write(t, l.merged+"/other", []byte("other\n"))
	both, err := changes.Open(l.upper, l.lower)
	must(t, err)
	defer both.Close()
	list, _, err := changes.Of(t.Context(), both, changes.Options{})
	must(t, err)
	for i := range list {
		list[i].Control = list[i].Path == ".envrc"
	}
	for _, control := range []bool{false, true} {
		p, err := patches.Of(t.Context(), program, patches.Request{Layers: both, As: root, Changes: list, Control: control})
		must(t, err)
		if bytes.Contains(p.Text, []byte("curl evil")) != control || (reasons(p)[".envrc"] == "") != control {
			t.Errorf("%v: %v %s", control, p.Left, p.Text)
		}
	}
}

// A whole change of a tree as git itself would tell it.
func TestAsGit(t *testing.T) {
	l := mountLayers(t, func(lower string) {
		write(t, lower+"/a", []byte("one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"))
		write(t, lower+"/gone", []byte("x\ny"))
		write(t, lower+"/run.sh", []byte("#!/bin/sh\n"))
		must(t, os.Symlink("a", lower+"/link"))
	})
	write(t, l.merged+"/a", []byte("one\ntwo\nthree\nfour\nFIVE\nsix\nseven\neight"))
	must(t, os.Remove(l.merged+"/gone"), os.Chmod(l.merged+"/run.sh", 0o755), os.Remove(l.merged+"/link"), os.Symlink("b", l.merged+"/link"))
	write(t, l.merged+"/binary", []byte("\x00"))
	write(t, l.merged+"/line", []byte("x\n"))
	write(t, l.merged+"/ü", nil)
	got := string(l.patch(t, root).Text)
	cmd := exec.Command("git", "-c", "core.quotePath=true", "diff", "--no-index", "--no-renames", "lower", "merged")
	cmd.Dir = l.base
	out, _ := cmd.Output() // 1, as they differ
	want := strings.NewReplacer("a/lower/", "a/", "b/merged/", "b/", "a/merged/", "a/", "b/lower/", "b/", "@@ one\n", "@@\n").Replace(string(out))
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
