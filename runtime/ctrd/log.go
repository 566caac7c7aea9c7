package ctrd

import (
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/owndir"
)

// logSize is how large each of the two log files of containerd becomes, in bytes.
const logSize = 4 << 20

// tailSize is how much of the end of the log is kept for error messages, in bytes.
const tailSize = 2 << 10

// boundedLog writes to a file and starts it again when it is full, keeping one
// predecessor. Its Write never fails: an error would stop the copying of
// containerd's output, whose pipe would then fill and block it. What a full disk
// makes it drop is lost, and only the tail in memory remains.
type boundedLog struct {
	path string
	max  int64

	mu   sync.Mutex
	file *os.File // nil when it could not be opened
	size int64
	tail []byte
}

func openLog(path string, max int64) (*boundedLog, error) {
	l := &boundedLog{path: path, max: max}
	return l, l.open(0)
}

// open opens the log, and empties it where flags say so.
func (l *boundedLog) open(flags int) error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, st.Size()
	return nil
}

// Write keeps p, or drops it. It always reports success.
func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if over := len(l.tail) - tailSize; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		l.rotate()
	}
	if l.file != nil {
		l.file.Write(p)
	}
	l.size += int64(len(p))
	return len(p), nil
}

// rotate keeps the bound even if the predecessor cannot be kept: then the file is
// emptied.
func (l *boundedLog) rotate() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
	flags := 0
	if owndir.Rename(l.path, filepath.Base(l.path)+".1") != nil {
		flags = os.O_TRUNC
	}
	if l.open(flags) != nil {
		l.size = 0 // tries again when a further max bytes were dropped
	}
}

// Tail returns the last bytes that were written.
func (l *boundedLog) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.tail)
}

func (l *boundedLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
