package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// reclaimTimeout bounds how long the kernel may look for memory to give up.
	reclaimTimeout = time.Second
	kickEvery      = 10 * time.Millisecond
)

// writeReclaiming is writeFile for writes that make the kernel reclaim memory. The kernel
// reclaims while it makes progress. A process that faults its pages in again can keep it
// busy forever. So the write is interrupted after a while, with errUsage.
func writeReclaiming(dir, file, value string) error {
	if dir == "" {
		return noHierarchy(file)
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = interruptibly(reclaimTimeout, func() error {
		_, err := unix.Write(int(f.Fd()), []byte(value)) // os.File would go on after EINTR
		return err
	})
	if errors.Is(err, unix.EINTR) {
		err = fmt.Errorf("%w: not reclaimed within %s: %w", errUsage, reclaimTimeout, err)
	}
	if err != nil {
		err = &fs.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	return errors.Join(err, f.Close())
}

// interruptibly does call, and sends its thread signals once it has taken atMost,
// until it returns. SIGURG is the one that Go sends to its own threads all the time;
// one that comes late means nothing.
func interruptibly(atMost time.Duration, call func() error) error {
	thread, done := make(chan int, 1), make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		thread <- unix.Gettid()
		done <- call()
	}()
	tid := <-thread
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
			_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // fails only if the thread has ended
			timer.Reset(kickEvery)                         // it may not have been in the kernel yet
		}
	}
}
