package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// DefaultSize is the size of a terminal where ours is not known.
var DefaultSize = api.Size{Rows: 24, Cols: 80}

// Terminal is ours while a command has one.
type Terminal struct {
	Resizes chan api.Size

	File    *os.File // nil: there is none
	before  *unix.Termios
	cursor  *cursor
	changed chan os.Signal
	done    chan struct{}
	once    sync.Once
}

// cursor is where the cursor of our terminal stands, so that a line of ours begins at its
// left edge.
type cursor struct {
	raw     atomic.Bool // a line feed alone does not return to the left edge
	midLine atomic.Bool // the command's output did not end with a line feed
}

// below is what leads to a new line, if a command's output ended in the middle of one.
func (c *cursor) below() string {
	if c.midLine.Swap(false) {
		return "\r\n"
	}
	return ""
}

// lineEnd ends a line of ours.
func (c *cursor) lineEnd() string {
	if c.raw.Load() {
		return "\r\n"
	}
	return "\n"
}

// ToTerminal passes a command's output to our terminal.
func (a *App) ToTerminal(w io.Writer) io.Writer { return &cursorWriter{w, &a.cursor} }

// cursorWriter notes where the output leaves the cursor.
type cursorWriter struct {
	io.Writer
	cursor *cursor
}

func (w *cursorWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if n > 0 {
		w.cursor.midLine.Store(p[n-1] != '\n')
	}
	return n, err
}

// OpenTerminal prepares the terminal that is our input or output. With raw,
// where it is our input, what is typed goes to the command as it is: also
// Ctrl-C. close undoes it.
func (a *App) OpenTerminal(raw bool) (*Terminal, error) {
	t := &Terminal{cursor: &a.cursor, Resizes: make(chan api.Size, 1), changed: make(chan os.Signal, 1), done: make(chan struct{})}
	for _, stream := range []any{a.Stdin, a.Stdout, a.Stderr} {
		if f, ok := stream.(*os.File); ok && t.File == nil && IsTerminal(f) {
			t.File = f
		}
	}
	in, ok := a.Stdin.(*os.File)
	if raw && (!ok || !IsTerminal(in)) {
		return nil, sbxerr.WithRemedy(sbxerr.ClientIO, "caisson.terminal", errors.New("-i and -t: standard input is not a terminal"),
			"leave -t away, or give a terminal as standard input")
	}
	if raw {
		before, err := makeRaw(in)
		if err != nil {
			return nil, sbxerr.Wrap(sbxerr.ClientIO, "caisson.terminal", fmt.Errorf("make the terminal raw: %w", err))
		}
		t.before = before
		t.cursor.raw.Store(true)
	}
	if t.File != nil {
		signal.Notify(t.changed, syscall.SIGWINCH)
		go t.watch()
	}
	return t, nil
}

// InheritTERM gives a command on a terminal the caller's TERM, unless given has one.
func (a *App) InheritTERM(spec *caissonv1.ExecSpec, given map[string]string) {
	term, _ := a.LookupEnv("TERM")
	if _, chosen := given["TERM"]; spec.Tty == nil || chosen || term == "" {
		return
	}
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	spec.Env["TERM"] = term
}

// Size is the terminal's now.
func (t *Terminal) Size() api.Size {
	if t.File == nil {
		return DefaultSize
	}
	var w *unix.Winsize
	err := control(t.File, func(fd int) (err error) {
		w, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil || w.Row == 0 || w.Col == 0 {
		return DefaultSize
	}
	return api.Size{Rows: w.Row, Cols: w.Col}
}

// watch passes the size on when it changes.
func (t *Terminal) watch() {
	for {
		select {
		case <-t.done:
			return
		case <-t.changed:
		}
		select {
		case t.Resizes <- t.Size():
		case <-t.done:
			return
		}
	}
}

// Close restores the terminal. It may be called again.
func (t *Terminal) Close() {
	t.once.Do(func() {
		signal.Stop(t.changed)
		close(t.done)
		if t.before == nil {
			return
		}
		_ = control(t.File, func(fd int) error { // the command is over: an error changes nothing
			return unix.IoctlSetTermios(fd, unix.TCSETS, t.before)
		})
		t.cursor.raw.Store(false)
	})
}

func IsTerminal(f *os.File) bool {
	return control(f, func(fd int) error {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	}) == nil
}

// makeRaw is cfmakeraw(3). It returns what to restore.
func makeRaw(f *os.File) (before *unix.Termios, err error) {
	err = control(f, func(fd int) error {
		if before, err = unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
			return err
		}
		raw := *before
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Oflag &^= unix.OPOST
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		return unix.IoctlSetTermios(fd, unix.TCSETS, &raw)
	})
	return before, err
}

// control calls fn with f's descriptor. Unlike Fd, it leaves f as it is.
func control(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}
