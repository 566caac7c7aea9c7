package pid1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// sealed puts b into a memfd of that name that nobody can change any more. Its pages
// are charged to the daemon for as long as anybody keeps the descriptor, which seals
// bound to the size of b.
func sealed(name string, b []byte) (int, error) {
	fd, err := memfd(name)
	if err != nil {
		return -1, fmt.Errorf("make memfd: %w", err)
	}
	if err := fillAndSeal(fd, b); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func fillAndSeal(fd int, b []byte) error {
	n, err := unix.Pwrite(fd, b, 0)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write memfd: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	return nil
}

// memfd asks for one that can never be executed, which kernels before 6.3 do
// not know (memfd_create(2)).
func memfd(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		return unix.MemfdCreate(name, flags)
	}
	return fd, err
}

// unblock clears O_NONBLOCK, which Go sets on its pipes and which the command
// would inherit: few programs expect EAGAIN from their standard streams.
func unblock(files []*os.File) error {
	for _, f := range files {
		var err error
		if cerr := control(f, func(fd int) { err = unix.SetNonblock(fd, false) }); cerr != nil {
			return cerr
		}
		if err != nil {
			return fmt.Errorf("make %q blocking: %w", f.Name(), err)
		}
	}
	return nil
}

// The roles of a command's outside ends: as PID 1 holds them, and as the daemon uses
// them. The daemon both fills and empties the staging pipe.
var outsideModes = [4]struct{ held, own int }{
	{unix.O_WRONLY, unix.O_WRONLY}, {unix.O_RDONLY, unix.O_RDONLY}, {unix.O_RDONLY, unix.O_RDONLY}, {unix.O_RDONLY, unix.O_RDWR},
}

// duplicates opens what PID 1 is to hold of cmd once more. A dup(2) would share
// its flags with the caller's, and a PID 1 that clears O_NONBLOCK would have the
// daemon's threads sleep in its reads.
func duplicates(cmd Command) (list []int, err error) {
	for i, f := range []*os.File{cmd.HeldStdin, cmd.HeldStdout, cmd.HeldStderr, cmd.HeldStaging} {
		if f == nil {
			continue
		}
		copied := -1
		var oerr error
		cerr := control(f, func(fd int) { copied, oerr = reopen(fd, outsideModes[i].held) })
		if err := errors.Join(cerr, oerr); err != nil {
			return list, fmt.Errorf("hold %q: %w", f.Name(), err)
		}
		list = append(list, copied)
	}
	return list, nil
}

// errNotPipe is what checkPipe says of anything else. The wrong end of a pipe
// is not one either.
var errNotPipe = errors.New("not the expected end of a pipe")

// checkPipe reports whether fd is an end of an anonymous pipe, opened for mode
// and for nothing else. None of its calls can block.
func checkPipe(fd, mode int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO || int64(fs.Type) != unix.PIPEFS_MAGIC || flags&(unix.O_ACCMODE|unix.O_PATH) != mode {
		return errNotPipe
	}
	return nil
}

// reopen opens the pipe that fd is an end of for mode, as an open file
// description that nobody else has, non-blocking. That needs no other end: the
// kernel treats a pipe without a name so (fifo_open in fs/pipe.c).
func reopen(fd, mode int) (int, error) {
	got, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), mode|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open pipe: %w", err)
	}
	return got, nil
}
