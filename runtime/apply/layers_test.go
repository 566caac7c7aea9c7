package apply

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/tests/need"
)

// owner has the host's directory in tests.
const owner = 12345

// overlay is a copy-on-write workspace of a test: the host's directory and what the sandbox
// sees of it.
type overlay struct {
	host, upper, merged string
	live                bool
	since               int64
	files               Files
}

// mountOverlay mounts a workspace on a host's directory that fill makes. unmount takes it off,
// as when the sandbox ends.
func mountOverlay(t *testing.T, fill func(host string)) *overlay {
	t.Helper()
	need.Root(t, "it mounts an overlay")
	base := t.TempDir()
	must(t, unix.Mount("tmpfs", base, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(base, unix.MNT_DETACH)) })
	o := &overlay{
		host: base + "/host", upper: base + "/upper", merged: base + "/merged", live: true,
		files: Files{base + "/own/journal", base + "/own/applied"},
	}
	for _, dir := range []string{o.host, o.upper, o.merged, base + "/work", base + "/own"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	must(t, os.Chown(o.host, owner, owner))
	fill(o.host)
	must(t, filepath.WalkDir(o.host, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, owner, owner)
		}
		var st unix.Stat_t
		err = errors.Join(err, unix.Lstat(path, &st))
		o.since = max(o.since, st.Ctim.Nano()+1)
		return err
	}))
	must(t, unix.Mount("overlay", o.merged, "overlay", 0,
		"lowerdir="+o.host+",upperdir="+o.upper+",workdir="+base+"/work,redirect_dir=on,metacopy=off,index=off,xino=auto"))
	return o
}

func (o *overlay) unmount(t *testing.T) {
	t.Helper()
	must(t, unix.Unmount(o.merged, 0))
	o.live = false
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// look plans, with the layers of o.
func (o *overlay) look(t *testing.T, r Request) (*Plan, changes.Layers, error) {
	t.Helper()
	layers, err := changes.Open(o.upper, o.host)
	must(t, err)
	t.Cleanup(func() { _ = layers.Close() })
	r.Applied, err = ReadApplied(o.files.Applied)
	must(t, err)
	r.Live, r.Since = o.live, o.since
	p, err := Look(t.Context(), layers, r)
	return p, layers, err
}

// stage plans and stages.
func (o *overlay) stage(t *testing.T, r Request) (*Plan, *Staged) {
	t.Helper()
	p, layers, err := o.look(t, r)
	must(t, err)
	s, err := p.Stage(t.Context(), layers.Upper, o.hostDir(t), o.files)
	must(t, err)
	return p, s
}

func (o *overlay) hostDir(t *testing.T) Host {
	t.Helper()
	dir, err := os.OpenFile(o.host, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	t.Cleanup(func() { _ = dir.Close() })
	return Host{dir, peer.User(owner, owner, nil, 1)}
}

// apply does all of it.
func (o *overlay) apply(t *testing.T, r Request) (*Plan, Result) {
	t.Helper()
	p, s := o.stage(t, r)
	result, err := s.Commit()
	must(t, err)
	o.clean(t)
	return p, result
}

// clean checks that nothing of an apply is left.
func (o *overlay) clean(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(o.host + "/" + stagePrefix + "*")
	must(t, err)
	if _, err := os.Lstat(o.files.Journal); err == nil || len(left) > 0 {
		t.Fatalf("left: journal %v, %q", err == nil, left)
	}
}

// treeText is what a tree holds, but owners and set-ID bits: names, types, modes, links, content
// and, but for directories, times.
func treeText(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %s %o", strings.TrimPrefix(path, root), changes.TypeOf(st.Mode), st.Mode&0o1777)
		switch {
		case e.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if len(data) > 100 {
				data = fmt.Appendf(nil, "%d %x", len(data), crc32.ChecksumIEEE(data))
			}
			fmt.Fprintf(&b, " %d %q", st.Mtim.Nano(), data)
			if st.Blocks*512 > st.Size+64<<10 {
				fmt.Fprintf(&b, " %d blocks", st.Blocks)
			}
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d -> %q", st.Mtim.Nano(), to)
		}
		b.WriteString("\n")
		return nil
	}))
	return b.String()
}
