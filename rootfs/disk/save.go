package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// Save writes the disk in file, which is mounted at point, to a new file. What is not used
// takes no room there. Nothing may write to the disk meanwhile: its sandbox is frozen. It ends
// with ctx. On an error nothing stays.
func Save(ctx context.Context, file, point, to string) error {
	err := syncFS(point)
	if err == nil {
		var saved *os.File
		if saved, err = copyFile(ctx, file, to); err == nil {
			err = saved.Close()
		}
	}
	if err != nil {
		err = errors.Join(err, owndir.Unlink(to))
	}
	return sbxerr.Wrap(sbxerr.Disk, "disk.save", err)
}

// Release takes the disk in file off point, and moves the file. Nothing uses the disk any more.
func Release(file, point, to string) error {
	err := TakeOff(point)
	if err == nil {
		err = owndir.Move(file, to)
	}
	return sbxerr.Wrap(sbxerr.Disk, "disk.release", err)
}

// TakeOff unmounts the disk at point when all that was written is in its file. It is no error
// that nothing is mounted there.
func TakeOff(point string) error {
	mounted, err := mount.IsPoint(point)
	if mounted {
		err = syncFS(point)
	}
	return sbxerr.Wrap(sbxerr.Disk, "disk.release", errors.Join(err, mount.RemovePoint(point)))
}

// syncFS writes what the kernel holds of the file system at point.
func syncFS(point string) error {
	dir, err := os.Open(point)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// copyFile copies a sparse file with its holes. A file system that can shares the blocks
// (copy_file_range(2)).
func copyFile(ctx context.Context, from, to string) (_ *os.File, err error) {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	st, err := in.Stat()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err = out.Truncate(st.Size()); err == nil {
		err = copyData(ctx, out, in)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy %q: %w", from, err), out.Close())
	}
	return out, nil
}

// maxCopy is how many bytes are copied between two looks at the context.
const maxCopy = 16 << 20

func copyData(ctx context.Context, out, in *os.File) error {
	for end := int64(0); ; {
		begin, err := unix.Seek(int(in.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // holes alone
			return nil
		}
		if err == nil {
			end, err = unix.Seek(int(in.Fd()), begin, unix.SEEK_HOLE)
		}
		for at := begin; err == nil && at < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var n int
			to := at
			if n, err = unix.CopyFileRange(int(in.Fd()), &at, int(out.Fd()), &to, int(min(end-at, maxCopy)), 0); n == 0 && err == nil {
				err = errors.New("it became shorter")
			}
		}
		if err != nil {
			return err
		}
	}
}
