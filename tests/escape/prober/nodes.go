package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nodes locks the device nodes named by args, says which it got, and where args
// begin with "watch" stays and says whenever somebody opens one.
func nodes(args []string) error {
	stay := len(args) > 0 && args[0] == "watch"
	if stay {
		args = args[1:]
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	names := map[int32]string{}
	locked := []string{}
	for _, name := range args {
		fd, err := unix.Open("/dev/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			locked = append(locked, name)
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", name, err)
		}
		wd, err := unix.InotifyAddWatch(watch, "/dev/"+name, unix.IN_OPEN)
		if err != nil {
			return fmt.Errorf("watch %s: %w", name, err)
		}
		names[int32(wd)] = name
	}
	fmt.Println("locked", locked)
	for stay {
		if err := sayOpened(watch, names); err != nil {
			return err
		}
	}
	return nil
}

func sayOpened(watch int, names map[int32]string) error {
	buf := make([]byte, 64*unix.SizeofInotifyEvent)
	n, err := unix.Read(watch, buf)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for ; n >= unix.SizeofInotifyEvent; n -= unix.SizeofInotifyEvent {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		fmt.Fprintln(&out, "opened", names[event.Wd])
		buf = buf[unix.SizeofInotifyEvent:] // the name is empty: what is watched is no directory
	}
	_, err = os.Stdout.Write(out.Bytes())
	return err
}
