package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// errNoAnswer is a file system that took too long.
var errNoAnswer = errors.New("no answer")

// opened is an opened directory with its file status.
type opened struct {
	file *os.File
	stat unix.Stat_t
	err  error
}

func (o opened) drop() {
	if o.file != nil {
		_ = o.file.Close() // nobody waits for it any more
	}
}

// access is what a caller asks for: to read a directory, or to write in it.
type access struct {
	write bool
	file  bool // it may be a regular file
}

// open opens path as the caller on a goroutine of its own, which it leaves
// behind when ctx ends: a system call cannot be cancelled. How many can be left
// behind is bounded for each user.
func (g Grant) open(ctx context.Context, path string, a access) (opened, error) {
	return g.opening(ctx, func() opened { return g.openAs(path, a) })
}

func (g Grant) opening(ctx context.Context, open func() opened) (opened, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return opened{}, err
	}
	done, gone := make(chan opened), make(chan struct{})
	go func() {
		defer leave()
		o := open()
		select {
		case done <- o:
		case <-gone:
			o.drop()
		}
	}()
	select {
	case o := <-done:
		return o, o.err
	case <-ctx.Done():
		close(gone)
		return opened{}, noAnswer(ctx)
	}
}

// Bounded runs fn, which looks at files of the caller. It leaves fn behind when ctx ends or
// the file system of dir does not answer.
func (g Grant) Bounded(ctx context.Context, dir string, fn func() error) error {
	const op = "peer.workspace"
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("the file system of %q did not answer in %s", sbxerr.Clip(dir), checkTimeout))
	defer cancel()
	leave, err := g.enter(ctx)
	if err != nil {
		return sbxerr.Wrap(workspaceCode(err), op, err)
	}
	done := make(chan error, 1)
	go func() {
		defer leave()
		done <- fn()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err := noAnswer(ctx)
		return sbxerr.Wrap(workspaceCode(err), op, err)
	}
}

// enter takes one of the places of the caller. Root has no end of them: it
// gains nothing by stopping itself.
func (g Grant) enter(ctx context.Context) (leave func(), err error) {
	if g.asRoot() {
		return func() {}, nil
	}
	return g.gates.enter(ctx, g.caller.UID)
}

func noAnswer(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
}

// openAs opens path with the caller's rights.
func (g Grant) openAs(path string, a access) (o opened) {
	if g.asRoot() {
		return openHere(path, 0, a)
	}
	onThrowawayThread(func() {
		if err := become(g.caller); err != nil {
			o = opened{err: err}
			return
		}
		o = openHere(path, g.caller.UID, a)
	})
	return o
}

// openHere opens path with the rights of this thread, under its real name.
func openHere(path string, uid uint32, a access) opened {
	path, err := resolve(path, uid)
	if err != nil {
		return opened{err: err}
	}
	return openAt(unix.AT_FDCWD, path, path, 0, a)
}

// openAt opens the path at fd under a name, with the rights of this thread. It follows no link,
// and resolves the path as it is told besides.
func openAt(at int, path, name string, resolve uint64, a access) opened {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: resolve | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if !a.file {
		how.Flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Openat2(at, path, &how)
	if err != nil {
		return opened{err: err}
	}
	o := opened{file: os.NewFile(uintptr(fd), name)}
	err = unix.Fstat(fd, &o.stat)
	if err == nil {
		err = errors.Join(a.check(fd, o.stat.Mode), notOfTheKernel(fd))
	}
	if err != nil {
		return opened{err: errors.Join(err, o.file.Close())}
	}
	return o
}

// kernelFS are file systems that check more of a caller than its file system ids. For
// example, the daemon may always enter its own /proc/PID/fd (proc(5)).
var kernelFS = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
	unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC,
}

func notOfTheKernel(fd int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if slices.Contains(kernelFS, int64(st.Type)) {
		return sbxerr.New(sbxerr.Workspace, "peer.workspace", "it lies on a file system of the kernel's own (%#x)", st.Type)
	}
	return nil
}
