package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestCreateHasTheDeclaredPosture(t *testing.T) {
	path := create(t)
	diffs, err := Check(path, nil)
	if err != nil || len(diffs) != 0 {
		t.Fatalf("Check = %v, %v; want no difference", diffs, err)
	}
	info, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	inode := inodeOf(t, path)
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &own); err != nil {
		t.Fatal(err)
	}
	if inode == 0 || inode == own.Ino {
		t.Errorf("inode %d, the host's %s is %d; want another", inode, info.Name(), own.Ino)
	}
}

// inodeOf is the number of the namespace bound to path, as in "net:[4026531840]".
func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestCreateRefusesAPathThatExists(t *testing.T) {
	path := create(t)
	before := inodeOf(t, path)
	err := Create(path)
	if !errors.Is(err, fs.ErrExist) || sbxerr.Of(err) != sbxerr.Network {
		t.Errorf("second Create = %v; want fs.ErrExist under %s", err, sbxerr.Network)
	}
	if after := inodeOf(t, path); after != before {
		t.Errorf("the namespace is now %d; want it untouched as %d", after, before)
	}
}

func TestCreateLeavesNothingOnFailure(t *testing.T) {
	needRoot(t)
	path := newPath(t)
	saved := sysctls
	t.Cleanup(func() { sysctls = saved })
	sysctls = append(Sysctls(), Sysctl{Key: "net.ipv4.no_such_setting", Value: "1"})
	if err := Create(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Create = %v; want the missing sysctl", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a failed Create, Lstat = %v; want nothing there", err)
	}
}

func TestPathsMustBeAbsoluteAndClean(t *testing.T) {
	for _, path := range []string{"", "x", "./x", "/tmp/../x", "/tmp//x", "/tmp/x/"} {
		if err := Create(path); sbxerr.Of(err) != sbxerr.Internal {
			t.Errorf("Create(%q) = %v; want a refusal", path, err)
		}
		if err := Remove(path); sbxerr.Of(err) != sbxerr.Internal {
			t.Errorf("Remove(%q) = %v; want a refusal", path, err)
		}
	}
}

func TestRemoveIsIdempotent(t *testing.T) {
	path := create(t)
	for i := range 3 {
		if err := Remove(path); err != nil {
			t.Errorf("Remove %d: %v", i, err)
		}
	}
	if err := Remove(filepath.Join(path, "no", "such", "directory")); err != nil {
		t.Errorf("Remove below a directory that is gone: %v", err)
	}
}

// A crash between the file and the binding leaves a plain file.
func TestRemoveTakesAHalfMadeOne(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Lstat = %v; want it gone", err)
	}
}

func TestRemoveTakesStackedBindings(t *testing.T) {
	path := create(t)
	if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Lstat = %v; want it gone", err)
	}
}

func TestRemoveTouchesNothingElse(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/proc/self/ns/net", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{sub, link, "/proc"} {
		if err := Remove(path); err == nil {
			t.Errorf("Remove(%q) succeeded", path)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%q is gone: %v", path, err)
		}
	}
}

func TestOpenRefusesWhatIsNoSandboxNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bound := func(source string) string {
		needRoot(t)
		path := newPath(t)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tc := range map[string]struct{ path, want string }{
		"absent":      {filepath.Join(t.TempDir(), "absent"), "no such file"},
		"plain file":  {file, "not a namespace"},
		"symlink":     {"/proc/self/ns/net", "too many levels"},
		"the host's":  {bound("/proc/self/ns/net"), "host's own"},
		"other kind":  {bound("/proc/self/ns/ipc"), "another kind"},
		"a directory": {t.TempDir(), "not a namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := Open(tc.path)
			if err == nil {
				_ = n.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), tc.want) || sbxerr.Of(err) != sbxerr.Network {
				t.Errorf("got %v; want %q under %s", err, tc.want, sbxerr.Network)
			}
		})
	}
}

func TestDo(t *testing.T) {
	path := create(t)
	n, made := open(t, path), inodeOf(t, path)
	wanted := errors.New("wanted")
	var inside unix.Stat_t
	if err := n.Do(func() error { return unix.Stat(threadNS, &inside) }); err != nil || inside.Ino != made {
		t.Errorf("inside Do the namespace is %d, %v; want %d", inside.Ino, err, made)
	}
	if err := n.Do(func() error { return wanted }); !errors.Is(err, wanted) {
		t.Errorf("Do = %v; want the function's error", err)
	}
	// Entering succeeds and fn never returns: the nil of entering must not be
	// taken for fn's.
	if err := n.Do(func() error { goruntime.Goexit(); return nil }); !errors.Is(err, errAborted) {
		t.Errorf("Do with Goexit = %v; want %v", err, errAborted)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := n.Do(func() error { ran = true; return nil }); err == nil || ran {
		t.Errorf("Do after Close = %v, ran %v; want an error and nothing run", err, ran)
	}
}

// The main thread must never end up in a sandbox's namespace, wherever the
// scheduler puts the goroutine.
func TestWorkNeverHappensOnTheMainThread(t *testing.T) {
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			err := onThread(func() error {
				if unix.Gettid() == unix.Getpid() {
					return errors.New("fn runs on the main thread")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkCreate(b *testing.B) {
	needRoot(b)
	dir := newPath(b)
	i := 0
	for b.Loop() {
		path := fmt.Sprintf("%s%d", dir, i)
		if err := Create(path); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := Remove(path); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		i++
	}
}
