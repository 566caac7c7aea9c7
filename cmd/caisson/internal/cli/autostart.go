package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	// idleTimeout is when a daemon that was started like this leaves.
	idleTimeout = "10m"
	// startTimeout is how long a daemon has until it answers.
	startTimeout = 20 * time.Second
	// firstPoll and lastPoll are the waits between looks at the socket.
	firstPoll = 5 * time.Millisecond
	lastPoll  = 100 * time.Millisecond
	// logTail is how much of the daemon's log an error quotes, in bytes.
	logTail = 2 << 10
)

// ensureDaemon starts a daemon in the background where none listens, and waits
// until it answers. Callers that race are put in line by a lock: one starts the daemon, the
// others find it. Where systemd has a unit of the daemon, only systemd starts it.
func (a *App) ensureDaemon(ctx context.Context) error {
	if err := api.Ping(ctx, a.Socket); !errors.Is(err, sbxerr.DaemonOff) {
		return err
	}
	if a.isService() {
		return a.waitForService(ctx)
	}
	path, err := a.FindDaemon()
	if err != nil {
		return err
	}
	dir := filepath.Dir(a.Socket)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "caisson.start", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "autostart.lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "caisson.start", err)
	}
	defer lock.Close() // which unlocks it
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errNoAnswer)
	defer cancel()
	s := &starter{path: path, socket: a.Socket, log: filepath.Join(dir, DaemonName+".log"), lock: lock}
	return s.wait(ctx)
}

var errNoAnswer = errors.New("it does not answer")

// starter brings one daemon up.
type starter struct {
	path, socket, log string
	lock              *os.File
	began             int64         // size of the log before
	exited            chan struct{} // nil until started; closed when the daemon ended
}

// wait looks at the socket until somebody listens. It starts a daemon as soon
// as nobody else is doing that.
func (s *starter) wait(ctx context.Context) error {
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		over := s.over()
		err := api.Ping(ctx, s.socket)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return s.failure(context.Cause(ctx))
		case over: // looked at before the socket, so its last word counts
			return s.failure(errors.New("it ended at once"))
		}
		if s.exited == nil && syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if err := s.start(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
}

// over reports whether our daemon has ended for a reason of its own. Where
// another one holds the root, that one is about to answer.
func (s *starter) over() bool {
	select {
	case <-s.exited: // never, while nil
		return !strings.Contains(s.tail(), string(sbxerr.Locked))
	default:
		return false
	}
}

// start starts the daemon, unless one has come up since the last look. It gets
// nothing of our environment: that is no part of its configuration.
func (s *starter) start(ctx context.Context) error {
	if api.Ping(ctx, s.socket) == nil {
		return nil
	}
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "caisson.start", err)
	}
	defer log.Close()
	if s.began, err = log.Seek(0, io.SeekEnd); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "caisson.start", err)
	}
	cmd := exec.Command(s.path, "--socket", s.socket, "--idle-timeout", idleTimeout)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // our terminal's signals are not for it
	if err := cmd.Start(); err != nil {
		return sbxerr.Wrap(sbxerr.Binary, "caisson.start", err)
	}
	s.exited = make(chan struct{})
	go func() {
		defer close(s.exited)
		_ = cmd.Wait() // the log says why
	}()
	return nil
}

func (s *starter) failure(cause error) error {
	if errors.Is(cause, context.Canceled) {
		return cause
	}
	if tail := s.tail(); tail != "" {
		cause = fmt.Errorf("%w: %s", cause, tail)
	}
	err := fmt.Errorf("start %s for %s: %w", s.path, s.socket, cause)
	return sbxerr.WithRemedy(sbxerr.DaemonOff, "caisson.start", err, "see "+s.log+", or run caissond in the foreground; caisson doctor examines the host")
}

// tail is the end of what was logged since the start, on one line.
func (s *starter) tail() string {
	log, err := os.Open(s.log)
	if err != nil {
		return ""
	}
	defer log.Close()
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil || s.exited == nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(log, max(s.began, size-logTail), logTail))
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\n"), []byte("; ")))
}

// DaemonName is the daemon's program.
const DaemonName = "caissond"

// FindDaemon returns the daemon's program: the one beside this program, else
// the one in PATH.
func (a *App) FindDaemon() (string, error) {
	self, err := a.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), DaemonName)
		if _, err = os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", sbxerr.Wrap(sbxerr.Binary, "caisson.daemon", err)
	}
	path, err := exec.LookPath(DaemonName)
	if err != nil {
		return "", sbxerr.New(sbxerr.Binary, "caisson.daemon", "%s is neither beside %s nor in PATH", DaemonName, self)
	}
	return path, nil
}
