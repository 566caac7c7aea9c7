package traffic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/gateway/dns"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/sbxerr"
)

// maxFile is where a file of entries is put aside for a new one, in bytes.
const maxFile = 1 << 20

// Files says where what is kept of a sandbox lies. The directories are others'
// to make and to remove; where there is none, nothing is kept.
type Files struct {
	Entries func(sandbox string) string
	Names   func(sandbox string) string
}

// Older is where the older half of the entries lies, by the path of the newer.
func Older(entries string) string { return entries + ".1" }

// Log keeps the attempts of all sandboxes. Its methods may be called at the same
// time.
type Log struct {
	files Files
	log   *slog.Logger

	author func(sandbox string, after, before time.Time) string

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed by the next entry
}

// New makes a Log, which opens nothing.
func New(f Files, log *slog.Logger) *Log {
	return &Log{files: f, log: log, waiting: map[string]chan struct{}{}, author: func(string, time.Time, time.Time) string { return "" }}
}

// Attribute has author asked which command tried something between two times, for
// which it has no answer where that is not certain. It must not block. It is set
// before anything is kept.
func (l *Log) Attribute(author func(sandbox string, after, before time.Time) string) {
	l.author = author
}

// Attempted keeps a connection.
func (l *Log) Attempted(a proxy.Attempt) {
	e := entryOfAttempt(a)
	e.Exec = l.author(a.Sandbox, a.After, a.Before)
	l.add(a.Sandbox, e)
}

// Arrived keeps a connection from outside.
func (l *Log) Arrived(a proxy.Arrival) { l.add(a.Sandbox, entryOfArrival(a)) }

// Queried keeps a question.
func (l *Log) Queried(q dns.Query) {
	e := entryOfQuery(q, time.Now())
	e.Exec = l.author(q.Sandbox, q.Came, q.Came)
	l.add(q.Sandbox, e)
}

// Named keeps the address that a name got.
func (l *Log) Named(sandbox string, name policy.Name, addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(sandbox, appendLine(l.files.Names(sandbox), []byte(addr.String()+" "+string(name)+"\n")))
}

func (l *Log) add(sandbox string, e Entry) {
	line, err := json.Marshal(e)
	if err != nil {
		l.note(sandbox, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	path := l.files.Entries(sandbox)
	first, err := rotate(path)
	l.note(sandbox, errors.Join(err, appendLine(path, append(append(first, line...), '\n'))))
	if c, ok := l.waiting[sandbox]; ok {
		close(c)
		delete(l.waiting, sandbox)
	}
}

// note logs that something of a sandbox could not be kept: its traffic goes on.
func (l *Log) note(sandbox string, err error) {
	if err != nil {
		l.log.Warn("keep traffic", "sandbox", sandbox, "err", err)
	}
}

// rotate puts a full file aside, and returns what a new one begins with.
func rotate(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return firstLine(path)
	case err != nil || info.Size() < maxFile:
		return nil, nil // one that is looked at by who appends
	}
	if err := os.Rename(path, Older(path)); err != nil {
		return nil, err
	}
	return firstLine(path)
}

// appendLine adds line to the file at path. A sandbox that is being removed has
// no directory any more, and no need of it.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close())
}

// Next is closed when the sandbox has an entry that is not there yet.
func (l *Log) Next(sandbox string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.waiting[sandbox]
	if !ok {
		c = make(chan struct{})
		l.waiting[sandbox] = c
	}
	return c
}

// Forget wakes whoever waits for an entry of a sandbox that is gone.
func (l *Log) Forget(sandbox string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.waiting[sandbox]; ok {
		close(c)
		delete(l.waiting, sandbox)
	}
}

// Entries returns what is kept of a sandbox's attempts, the oldest first, from
// where c stands on, and moves c. A torn last line, of a daemon that was killed,
// does not count.
func (l *Log) Entries(sandbox string, c *Cursor) ([]Entry, error) {
	l.mu.Lock() // no rotation in between
	defer l.mu.Unlock()
	path := l.files.Entries(sandbox)
	files := []string{Older(path), path}
	if c.file != 0 && inode(path) == c.file {
		files = files[1:] // the older one is read
	}
	var entries []Entry
	for _, file := range files {
		from := int64(0)
		if n := inode(file); n == c.file {
			from = c.offset
		}
		err := eachLine(file, from, func(text []byte) {
			var e line
			if json.Unmarshal(text, &e) == nil && e.Before == nil {
				entries = append(entries, e.Entry)
			}
			from += int64(len(text)) + 1
		})
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.StateDir, "traffic.read", err)
		}
		if n := inode(file); n != 0 {
			c.file, c.offset = n, from
		}
	}
	return entries, nil
}

// Cursor is where a reader of entries stands. The zero Cursor is the begin.
type Cursor struct {
	file   uint64 // inode
	offset int64
}

// inode is the number of the file at path, 0 where there is none.
func inode(path string) uint64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return st.Ino
}

// Names returns the addresses that the names of a sandbox got.
func (l *Log) Names(sandbox string) (map[policy.Name]netip.Addr, error) {
	const op = "traffic.names"
	names := map[policy.Name]netip.Addr{}
	var bad error
	err := eachLine(l.files.Names(sandbox), 0, func(line []byte) {
		address, text, _ := bytes.Cut(line, []byte(" "))
		addr, addrErr := netip.ParseAddr(string(address))
		name, nameErr := policy.ParseName(string(text))
		if err := errors.Join(addrErr, nameErr); err != nil {
			bad = errors.Join(bad, fmt.Errorf("line %q: %w", line, err))
			return
		}
		names[name] = addr
	})
	return names, sbxerr.Wrap(sbxerr.StateDir, op, errors.Join(err, bad))
}

// eachLine calls do with each whole line of the file at path after the offset from;
// a file that is absent has none.
func eachLine(path string, from int64, do func([]byte)) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil { // the end, and what has no newline is torn
			return nil
		}
		do(line[:len(line)-1])
	}
}
