package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A call that would never return is interrupted; one that returns is not touched.
func TestInterruptibly(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := int(r.Fd()) // blocking from now on
	read := func() error { _, err := unix.Read(fd, make([]byte, 1)); return err }
	poll := func() error { // not restarted after a handler, as the kernel's loop of reclaiming is not
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		return err
	}
	if err := interruptibly(20*time.Millisecond, poll); !errors.Is(err, unix.EINTR) {
		t.Errorf("a call that waits = %v; want EINTR", err)
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if err := interruptibly(time.Minute, read); err != nil {
		t.Errorf("a call that returns = %v", err)
	}
}

func TestWriteReclaiming(t *testing.T) {
	if err := writeReclaiming("", "memory.max", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a hierarchy: %v", err)
	}
	if err := writeReclaiming(t.TempDir(), "memory.max", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}
