package main

import (
	"strings"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/initproto/files"
)

// watched is what inotify(7) reports of each file or directory.
const watched = syscall.IN_CREATE | syscall.IN_MODIFY | syscall.IN_DELETE | syscall.IN_MOVED_FROM | syscall.IN_MOVED_TO |
	syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF

// watch reports changes until the daemon closes the connection.
func (s *fileServer) watch(r files.Request) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return failedAt(r.Path, watchError(err))
	}
	defer syscall.Close(fd)
	w := watcher{conn: &s.fileConn, fd: fd, top: r.Path, recursive: r.Flags&files.FlagRecursive != 0, paths: map[int]string{}}
	if w.root, err = w.add(r.Path, "", 0); err != nil {
		return err
	}
	if w.recursive && isDir(r.Path) == nil {
		if err := w.addBelow("", false); err != nil {
			return err
		}
	}
	if err := s.send(files.Frame(files.KindReady)); err != nil {
		return err
	}
	return w.run()
}

type watcher struct {
	conn      *fileConn
	fd        int
	top       string
	root      int // watch of the top
	recursive bool
	paths     map[int]string // below the top, by watch
	lost      bool           // an overflow was told since the last event
}

// add watches one path. Failures name the watched top, and tell a limit of the
// kernel from others.
func (w *watcher) add(full, path string, flags uint32) (int, error) {
	if len(w.paths) >= files.MaxWatches {
		return 0, failedFor(files.ReasonWatches, w.top)
	}
	wd, err := syscall.InotifyAddWatch(w.fd, full, watched|flags)
	if err != nil {
		if watchError(err) == syscall.ENOSPC {
			return 0, failedFor(files.ReasonWatches, w.top)
		}
		return 0, failedAt(full, err)
	}
	w.paths[wd] = path
	return wd, nil
}

// watchError makes one of the errors of a limit: EMFILE is that of instances.
func watchError(err error) error {
	if err == syscall.EMFILE {
		return syscall.ENOSPC
	}
	return err
}

// addBelow watches all directories below path. With report, it tells what it
// finds: that was made before the watch. What is gone meanwhile or cannot be
// read is passed over.
func (w *watcher) addBelow(path string, report bool) error {
	if strings.Count(path, "/") >= files.MaxDepth {
		return failedFor(files.ReasonDepth, w.top)
	}
	fd, err := openDir(atCwd, w.full(path), path == "")
	if isShortage(err) {
		return failedFor(files.ReasonWatches, w.top)
	}
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	list, err := names(fd)
	if err != nil {
		return nil
	}
	for _, name := range list {
		if report {
			if err := w.tell(files.EventCreate, below(path, name)); err != nil {
				return err
			}
		}
		if err := w.addDir(fd, name, below(path, name), report); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) addDir(parent int, name, path string, report bool) error {
	stat, err := statAt(parent, name, atSymlinkNofollow)
	if err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return nil
	}
	_, err = w.add(w.full(path), path, syscall.IN_ONLYDIR|syscall.IN_DONT_FOLLOW)
	if failed, ok := err.(*fileFailure); ok && failed.Reason == files.ReasonErrno {
		return nil
	}
	if err != nil {
		return err
	}
	return w.addBelow(path, report)
}

func (w *watcher) full(path string) string {
	if path == "" {
		return w.top
	}
	return w.top + "/" + path
}

// run waits for changes, and for the daemon: anything from it ends the watch.
func (w *watcher) run() error {
	buf := make([]byte, 64<<10)
	for {
		fds := [2]pollFD{{fd: int32(w.conn.fd), events: pollIn}, {fd: int32(w.fd), events: pollIn}}
		if err := pollTwo(&fds); err != nil {
			return failedAt(w.top, err)
		}
		if fds[0].revents != 0 {
			return errFilesLost
		}
		n, err := syscall.Read(w.fd, buf)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			continue
		}
		if err != nil {
			return failedAt(w.top, err)
		}
		if err := w.events(buf[:n]); err != nil {
			return err
		}
	}
}

func (w *watcher) events(b []byte) error {
	for len(b) >= syscall.SizeofInotifyEvent {
		e := (*syscall.InotifyEvent)(unsafe.Pointer(&b[0]))
		end := syscall.SizeofInotifyEvent + int(e.Len)
		name, _, _ := strings.Cut(string(b[syscall.SizeofInotifyEvent:end]), "\x00")
		if err := w.event(int(e.Wd), e.Mask, name); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}

func (w *watcher) event(wd int, mask uint32, name string) error {
	if mask&syscall.IN_Q_OVERFLOW != 0 {
		return w.overflow()
	}
	dir, known := w.paths[wd]
	if mask&syscall.IN_IGNORED != 0 {
		delete(w.paths, wd)
		return nil
	}
	if !known || name == "" && wd != w.root {
		return nil // its directory tells the same
	}
	path := dir
	if name != "" {
		path = below(dir, name)
	}
	if t := eventOf(mask); t != 0 {
		if err := w.tell(t, path); err != nil {
			return err
		}
	}
	if !w.recursive || mask&syscall.IN_ISDIR == 0 || name == "" {
		return nil
	}
	return w.directory(mask, path)
}

// directory keeps the watches right when a directory comes or goes.
func (w *watcher) directory(mask uint32, path string) error {
	switch {
	case mask&syscall.IN_MOVED_FROM != 0:
		w.forget(path)
	case mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
		err := w.addDir(atCwd, w.full(path), path, true)
		if failed, ok := err.(*fileFailure); ok && failed.Reason != files.ReasonErrno {
			return w.overflow() // changes below it will be missing
		}
		return err
	}
	return nil
}

// forget ends the watches at and below path.
func (w *watcher) forget(path string) {
	for wd, p := range w.paths {
		if p == path || strings.HasPrefix(p, path+"/") {
			_, _ = syscall.InotifyRmWatch(w.fd, uint32(wd)) // it may be gone already
			delete(w.paths, wd)
		}
	}
}

// overflow tells that changes were lost, once in a row.
func (w *watcher) overflow() error {
	if w.lost {
		return nil
	}
	w.lost = true
	return w.conn.send(files.Event{Type: files.EventOverflow}.Frame())
}

func (w *watcher) tell(t files.EventType, path string) error {
	if len(path) > files.MaxPath {
		return w.overflow()
	}
	w.lost = false
	return w.conn.send(files.Event{Type: t, Path: path}.Frame())
}

func eventOf(mask uint32) files.EventType {
	switch {
	case mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
		return files.EventCreate
	case mask&syscall.IN_MODIFY != 0:
		return files.EventWrite
	case mask&(syscall.IN_DELETE|syscall.IN_DELETE_SELF) != 0:
		return files.EventRemove
	case mask&(syscall.IN_MOVED_FROM|syscall.IN_MOVE_SELF) != 0:
		return files.EventRename
	case mask&syscall.IN_ATTRIB != 0:
		return files.EventChmod
	}
	return 0
}

// pollTwo waits without a limit until one of fds has something.
func pollTwo(fds *[2]pollFD) error {
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(fds)), uintptr(len(fds)), 0, 0, 0, 0)
		if errno != syscall.EINTR {
			return asErrno(errno)
		}
	}
}
