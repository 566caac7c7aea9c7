package runtime

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/files"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// Files returns what works on the files of the sandbox that ref names.
func (m *Manager) Files(ctx context.Context, ref string) (*FileAccess, error) {
	s, err := m.findToEnter(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer s.keeper.Awake(ctx)()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.acceptsLocked(); err != nil {
		return nil, err
	}
	if s.files == nil {
		s.files = files.NewSession(m.fileProcesses(s), func() func() { return m.workOnFiles(s) }, m.holds(s), files.DefaultLimits())
	}
	return &FileAccess{Session: s.files, m: m, s: s}, nil
}

// firstOwn is a bit of the numbers of the daemon's own commands. Those of callers are
// counted without a gap.
const firstOwn = 1 << 31

// ownCommand is a command of the daemon's own in s: caisson-init in one of its modes.
// It has no record: one that a daemon leaves behind is ended by the next. The Go
// runtime starts with a thread less where it is told to use one processor.
func (s *sandbox) ownCommand(args []string) pid1.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastOwn++
	r := s.record
	return pid1.Command{
		Number: firstOwn | s.lastOwn, Args: args, Env: slices.Concat([]string{"GOMAXPROCS=1"}, r.Env), Cwd: "/", UID: r.User.UID, GID: r.User.GID, Groups: r.User.Groups,
	}
}

// fileProcesses starts processes that work on the files of s.
func (h *host) fileProcesses(s *sandbox) files.Start {
	return func(ctx context.Context, args []string, socket *os.File) (files.Started, error) {
		defer s.keeper.Awake(ctx)()
		s.mu.Lock()
		err, program := s.acceptsLocked(), s.spec.Process.Args[:1]
		s.mu.Unlock()
		if err != nil {
			return files.Started{}, err
		}
		args = slices.Concat(program, args[1:]) // it lies elsewhere without isolation
		cmd := s.ownCommand(args)
		cmd.Stdin = socket
		proc, err := s.init.Start(ctx, cmd)
		if errors.Is(err, sbxerr.Processes) {
			err = errNoFileProcess
		}
		if err != nil {
			return files.Started{}, s.orEnded(err)
		}
		_ = failpoint.At("files/started") // only to be killed at: nothing was asked of the process
		return files.Started{
			Stop: func() {
				_ = failpoint.At("files/ended") // only to be killed at: the process did what was asked, the caller does not know
				go h.endFileProcess(context.WithoutCancel(ctx), s, proc)
			},
			Why: func(ctx context.Context, err error) error {
				if h.starved(ctx, s, proc) {
					return errNoFileProcess
				}
				return s.orEnded(err)
			},
		}, nil
	}
}

// errNoFileProcess is why files cannot be worked on in a sandbox whose commands have
// used up its processes.
var errNoFileProcess = sbxerr.New(sbxerr.Processes, "runtime.files", "the sandbox's limit of processes leaves no room for the process that works on its files")

// exitStarved is how the Go runtime ends a process that gets no thread.
const exitStarved = 2

// starved reports whether a process got no thread because of the limit of processes:
// as it says itself, and the kernel's count of refusals allows.
func (h *host) starved(ctx context.Context, s *sandbox, proc *pid1.Exec) bool {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	exit, err := proc.Wait(ctx)
	if err != nil || exit.Signal != 0 || exit.Code != exitStarved {
		return false
	}
	group, err := h.group(s.id)
	if err != nil {
		return false
	}
	events, err := group.Events()
	return err == nil && events.PIDsMaxHits > 0
}

// endFileProcess ends a process whose connection was closed.
func (h *host) endFileProcess(ctx context.Context, s *sandbox, proc *pid1.Exec) {
	awaitUndone(ctx, s, proc)
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeouts.Start)
	defer cancel()
	_, _ = proc.SignalAll(ctx, syscall.SIGKILL) // it may have ended with its connection
	if _, err := proc.Wait(ctx); err != nil {
		h.log.Debug("end file process", "sandbox", s.id, "err", err)
		return
	}
	if err := proc.Release(); err != nil {
		h.log.Debug("release file process", "sandbox", s.id, "err", err)
	}
}

// awaitUndone gives a process that was frozen the time to undo what it had begun, which
// it was given before only while it could not.
func awaitUndone(ctx context.Context, s *sandbox, proc *pid1.Exec) {
	for s.init.FrozenWithin(files.DefaultLimits().Undo) {
		ctx, cancel := context.WithTimeout(ctx, thawPoll)
		_, err := proc.Wait(ctx)
		cancel()
		if !errors.Is(err, sbxerr.Deadline) { // it has ended, or PID 1 has
			return
		}
	}
}

// thawPoll is how often it is looked whether a paused sandbox goes on.
const thawPoll = 100 * time.Millisecond
