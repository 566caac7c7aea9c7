package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/mount"
)

// Use says how full a disk is.
type Use struct {
	Bytes, UsedBytes   int64
	Inodes, UsedInodes int64
}

// slack is how much may be free on a full disk: the kernel keeps some blocks for its own tables,
// and a large write takes up to 2 MiB at once or nothing.
const slack = 2<<20 + 32*blockSize

// Full reports whether no room for a file, or no inode, is left.
func (u Use) Full() bool { return u.Bytes-u.UsedBytes < slack || u.UsedInodes >= u.Inodes }

// UseOf tells of the disk that is mounted at point.
func UseOf(point string) (Use, error) {
	var st unix.Statfs_t
	dir, err := os.OpenFile(point, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Use{}, sbxerr.Wrap(sbxerr.Disk, "disk.use", err)
	}
	err = errors.Join(unix.Fstatfs(int(dir.Fd()), &st), dir.Close())
	if err == nil && st.Type != unix.EXT4_SUPER_MAGIC {
		err = fmt.Errorf("no disk is mounted at %q", point)
	}
	total, free := int64(st.Blocks), int64(st.Bavail)
	return Use{
		Bytes: total * st.Bsize, UsedBytes: (total - free) * st.Bsize,
		Inodes: int64(st.Files), UsedInodes: int64(st.Files - st.Ffree),
	}, sbxerr.Wrap(sbxerr.Disk, "disk.use", err)
}

// UseOfFile tells of the disk in file, which is mounted at point or nowhere. What its file system
// needs itself counts as used.
func UseOfFile(file, point string) (Use, error) {
	use, err := useOfFile(file, point)
	return use, sbxerr.Wrap(sbxerr.Disk, "disk.use", err)
}

func useOfFile(file, point string) (Use, error) {
	image, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Use{}, err
	}
	left, err := leftOf(image, point)
	st, e := image.Stat()
	if err = errors.Join(err, e, image.Close()); err != nil {
		return Use{}, err
	}
	return Use{Bytes: st.Size(), UsedBytes: st.Size() - left.bytes, Inodes: left.total, UsedInodes: left.total - left.inodes}, nil
}

// left is what is free on a disk, and how many inodes it has.
type left struct{ bytes, inodes, total int64 }

func leftOf(image *os.File, point string) (l left, err error) {
	mounted, err := mount.IsPoint(point)
	if err != nil {
		return l, err
	}
	if !mounted {
		return superblock(image)
	}
	var st unix.Statfs_t
	err = unix.Statfs(point, &st)
	return left{bytes: int64(st.Bfree) * st.Bsize, inodes: int64(st.Ffree), total: int64(st.Files)}, err
}

// superblock reads what ext4 wrote when the disk was unmounted (Documentation/filesystems/ext4,
// "The Super Block").
func superblock(image *os.File) (l left, err error) {
	const (
		at       = 1024
		inodes   = 0x0
		freeLow  = 0xc
		ffree    = 0x10
		magic    = 0x38
		freeHigh = 0x158 // of file systems with 64-bit block numbers
	)
	sb := make([]byte, 1024)
	if _, err := image.ReadAt(sb, at); err != nil {
		return l, err
	}
	if binary.LittleEndian.Uint16(sb[magic:]) != unix.EXT4_SUPER_MAGIC {
		return l, fmt.Errorf("%q holds no ext4", image.Name())
	}
	word := func(at int) int64 { return int64(binary.LittleEndian.Uint32(sb[at:])) }
	return left{bytes: (word(freeHigh)<<32 | word(freeLow)) * blockSize, inodes: word(ffree), total: word(inodes)}, nil
}

// Room returns how many bytes the disk that dir lies on has to give, besides a reserve.
func Room(dir string, reserve int64) (int64, error) {
	use, err := Host(dir, reserve)
	return use.Bytes - use.UsedBytes, err
}

// Host tells of the bytes of the file system that dir lies on, of which a reserve counts as used.
func Host(dir string, reserve int64) (Use, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Use{}, sbxerr.Wrap(sbxerr.StateDir, "disk.room", fmt.Errorf("statfs %q: %w", dir, err))
	}
	total, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	return Use{Bytes: total, UsedBytes: total - max(0, free-reserve)}, nil
}
