package mount

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Base is a directory of the host as the lower layer of a copy-on-write workspace.
type Base struct {
	Since int64  `json:"since"` // when it became that, in nanoseconds since the epoch by the clock of files
	Ino   uint64 `json:"ino"`
	Born  int64  `json:"born"` // 0 where the file system does not tell
}

// BaseOf returns what an open directory is now.
func BaseOf(dir *os.File) (Base, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return Base{}, fmt.Errorf("read the clock: %w", err)
	}
	var st unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return Base{}, fmt.Errorf("statx %q: %w", dir.Name(), err)
	}
	b := Base{Since: now.Nano(), Ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		b.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return b, nil
}

// Is reports whether both are the same directory.
func (b Base) Is(other Base) bool { return b.Ino == other.Ino && b.Born == other.Born }

// CloneDir returns the content of a directory without the mounts below it.
func CloneDir(dir *os.File) (*os.File, error) {
	t, err := cloneTree(dir)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(t.fd), dir.Name()), nil
}
