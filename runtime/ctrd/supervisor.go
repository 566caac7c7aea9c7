package ctrd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const (
	startTimeout = 30 * time.Second // of the first start, which may have a database to recover
	endTimeout   = 10 * time.Second // of a process that was killed
	minBackoff   = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	stable       = 30 * time.Second // a life this long starts the backoff anew
)

// ServerConfig is what a Supervisor needs to know.
type ServerConfig struct {
	Paths
	BinDir string       // holds EnginePrograms and runc
	Logger *slog.Logger // nil drops; containerd's own output goes to Paths.Log
	// Changed is called when the server was started, and with how it ended when it has. It
	// may be nil.
	Changed func(up bool, ended error)
}

// Supervisor keeps one private containerd running until Stop. One that ends, or
// does not answer any more, is started again.
//
// The server dies with the daemon, even with one that was killed (PR_SET_PDEATHSIG).
// Its shims, and so the sandboxes, live on. A server that is left all the same is
// found and ended by the next Supervise.
//
// Whoever ends a server kills it. One that is asked to end while it finds its shims
// again takes those that it has not found yet for dead, and has their containers
// killed (cleanupAfterDeadShim in containerd's core/runtime/v2). Its database bears
// being killed as it bears a crash.
type Supervisor struct {
	cfg  ServerConfig
	out  *boundedLog
	stop chan struct{} // closed by Stop
	done chan struct{} // closed when the server is gone for good

	stopOnce sync.Once
	mu       sync.Mutex
	proc     *os.Process // of the running server; nil in between
	status   ServerStatus
}

// ServerStatus says how the private containerd does.
type ServerStatus struct {
	PID      int    // 0 while it is down
	Restarts int    // since Supervise
	LastExit string // how it ended last; empty if it never did
}

// Supervise starts the private containerd and returns once it serves. The caller
// holds the lock of cfg.Root; ctx bounds only the start.
func Supervise(ctx context.Context, cfg ServerConfig) (*Supervisor, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := superviseOnce(ctx, cfg)
	if err == nil || !blamesDatabase(err) {
		return s, err
	}
	if err := setAside(cfg.Paths, cfg.Logger, err); err != nil {
		return nil, err
	}
	return superviseOnce(ctx, cfg)
}

func superviseOnce(ctx context.Context, cfg ServerConfig) (*Supervisor, error) {
	if err := prepare(ctx, cfg); err != nil {
		return nil, err
	}
	out, err := openLog(cfg.Log(), logSize)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, "ctrd.supervise", err)
	}
	s := &Supervisor{cfg: cfg, out: out, stop: make(chan struct{}), done: make(chan struct{})}
	firstExit := make(chan error, 1)
	go s.loop(firstExit)
	if err := s.awaitReady(ctx, firstExit); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Address is the socket of the server.
func (s *Supervisor) Address() string { return s.cfg.Socket() }

// Status returns how the server does.
func (s *Supervisor) Status() ServerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Stop ends the server for good. Sandboxes are left as they are. Stopping twice is
// fine.
func (s *Supervisor) Stop() {
	s.stopOnce.Do(func() { close(s.stop) })
	s.mu.Lock()
	if s.proc != nil { // it holds a pidfd, and so reaches no other process
		s.proc.Kill() // fails only if it has just ended, which is what we want
	}
	s.mu.Unlock()
	<-s.done
}

// prepare makes the directories and the configuration, and ends a server of an
// earlier daemon.
func prepare(ctx context.Context, cfg ServerConfig) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	if err := checkBinaries(cfg.BinDir, append(EnginePrograms(), "runc")...); err != nil {
		return err
	}
	if err := endOldServer(ctx, cfg.Paths); err != nil {
		return err
	}
	if err := setAsideBroken(cfg.Paths, cfg.Logger); err != nil {
		return err
	}
	if err := writeLayout(cfg.Paths); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "ctrd.supervise", err)
	}
	// Nobody goes on with an upload. A server that was killed at the begin of one has no name
	// for it, and never removes it.
	return sbxerr.Wrap(sbxerr.StateDir, "ctrd.supervise", errors.Join(removeDeadSockets(cfg.ShimSockets()), owndir.RemoveTree(cfg.uploads())))
}

// removeDeadSockets removes the sockets of shims that were killed.
func removeDeadSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, held := socketHolder(path); held {
			continue
		}
		if err := owndir.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// writeLayout makes what the server needs. The directories on the way to a bundle
// may be traversed, not listed: the first process of a sandbox, root only in its
// own user namespace, opens its bundle by path.
func writeLayout(p Paths) error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{p.serverRoot(), 0o700}, {p.serverState(), 0o711}, {p.RuncRoot(), 0o711}, {p.ShimSockets(), 0o700}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return err
		}
		if err := owndir.GiveDir(d.path, d.mode); err != nil { // whatever the umask was
			return err
		}
	}
	return os.WriteFile(p.config(), []byte(serverConfig(p)), 0o600)
}

// checkBinaries reports every program that is not in dir.
func checkBinaries(dir string, names ...string) error {
	var errs []error
	for _, n := range names {
		if _, err := exec.LookPath(filepath.Join(dir, n)); err != nil {
			errs = append(errs, fmt.Errorf("find %s: %w", n, err))
		}
	}
	return sbxerr.Wrap(sbxerr.Binary, "ctrd.supervise", errors.Join(errs...))
}

// loop starts the server again and again, until Stop. It keeps its thread for
// itself and for good: the kernel sends the parent-death signal when the thread
// ends that started the child, not only when the process does (prctl(2)).
func (s *Supervisor) loop(firstExit chan<- error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	defer close(s.done)
	defer s.out.Close()
	if err := becomeLate(); err != nil {
		s.cfg.Logger.Warn("let the timers of containerd be late", "err", err)
	}
	defer becomePunctual() // the thread is used again
	backoff := minBackoff
	for {
		began := time.Now()
		err := s.runOnce()
		select {
		case firstExit <- err:
		default:
		}
		if time.Since(began) >= stable {
			backoff = minBackoff
		}
		select {
		case <-s.stop:
			return
		case <-time.After(backoff):
		}
		s.cfg.Logger.Warn("containerd ended; starting it again", "err", err, "after", backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// runOnce starts the server, when what the one before had called is ended, and returns
// how it ended, never nil.
func (s *Supervisor) runOnce() error {
	if err := endOldCalls(context.Background(), s.cfg.Paths); err != nil {
		s.cfg.Logger.Warn("start containerd beside calls of an earlier one", "err", err)
	}
	cmd := s.command()
	if err := s.start(cmd); err != nil {
		return err
	}
	s.changed(true, nil)
	lowerOOMScore(cmd.Process.Pid)
	watch, end := context.WithCancel(context.Background())
	go s.killHung(watch, cmd.Process)
	err := cmd.Wait()
	end()
	s.mu.Lock()
	s.proc, s.status.PID = nil, 0
	s.status.LastExit = cmd.ProcessState.String()
	s.mu.Unlock()
	err = fmt.Errorf("run containerd: %s: %w", cmd.ProcessState, errors.Join(errServerEnded, err))
	s.changed(false, err)
	return err
}

func (s *Supervisor) changed(up bool, ended error) {
	if s.cfg.Changed != nil {
		s.cfg.Changed(up, ended)
	}
}

var errServerEnded = errors.New("the server ended")

// start starts cmd unless Stop came first, so that Stop's signal cannot fall
// between the decision to start and the start.
func (s *Supervisor) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		return errServerEnded
	default:
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	if s.status.LastExit != "" {
		s.status.Restarts++
	}
	s.proc, s.status.PID = cmd.Process, cmd.Process.Pid
	return nil
}

// command is the server's: nothing of the daemon's environment, and a PATH on
// which there are only our own programs, so that nothing of the host is run.
func (s *Supervisor) command() *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.cfg.BinDir, "containerd"), "--config", s.cfg.config())
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + s.cfg.BinDir}
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.WaitDelay = time.Second // a child of it may hold the pipe open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// awaitReady returns when the server serves, or why it does not.
func (s *Supervisor) awaitReady(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("start containerd within %s: %w", startTimeout, context.DeadlineExceeded))
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- awaitServing(ctx, s.Address()) }()
	select {
	case err := <-served:
		return sbxerr.Wrap(sbxerr.EngineDown, "ctrd.supervise", err)
	case err := <-ended:
		cancel()
		<-served
		return sbxerr.New(sbxerr.EngineDown, "ctrd.supervise", "%w; its last words: %s", err, strings.TrimSpace(s.out.Tail()))
	}
}

// lowerOOMScore makes the kernel prefer others when memory is short. Best effort:
// it needs CAP_SYS_RESOURCE.
func lowerOOMScore(pid int) {
	os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("-900"), 0)
}
