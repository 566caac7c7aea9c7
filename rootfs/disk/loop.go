package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// loopAttempts bounds how often another program may take the free device first.
const loopAttempts = 64

// attachLoop returns a loop device of image. It goes with its last user. Where the host's
// file system can, it passes the page cache by: pages of the disk are cached once, and
// charged to the sandbox.
func attachLoop(image *os.File) (device *os.File, err error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	for range loopAttempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: blockSize}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(image.Name()))
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device, nil
		}
		err = errors.Join(err, device.Close())
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", device.Name(), err)
		}
	}
	return nil, errors.New("other programs take each free loop device")
}

// loopOf returns the loop device that has image, or nil. It stays as long as the file is open.
func loopOf(image *os.File) (device *os.File, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &st); err != nil {
		return nil, err
	}
	used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, name := range used {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "/sys/block/"), "/")
		device, err := os.OpenFile("/dev/"+number, os.O_RDWR, 0)
		if err != nil {
			continue // it has gone
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == st.Dev && info.Inode == st.Ino {
			return device, nil
		}
		_ = device.Close() // it was not written to
	}
	return nil, nil
}
