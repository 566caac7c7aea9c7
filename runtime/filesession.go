package runtime

import (
	"context"
	"os"
	"syscall"

	"github.com/caisson-run/caisson/runtime/files"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// Files returns what works on the files of the sandbox that ref names.
func (m *Manager) Files(ctx context.Context, ref string) (*files.Session, error) {
	s, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.acceptsLocked(); err != nil {
		return nil, err
	}
	if s.files == nil {
		s.files = files.NewSession(m.fileProcesses(s), files.DefaultLimits())
	}
	return s.files, nil
}

// ownCommand is a command of the daemon's own in s. It has no record: one that a
// daemon leaves behind is ended by the next.
func (s *sandbox) ownCommand(args []string) pid1.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastExec++
	r := s.record
	return pid1.Command{
		Number: s.lastExec, Args: args, Env: r.Env, Cwd: "/", UID: r.User.UID, GID: r.User.GID, Groups: r.User.Groups,
	}
}

// fileProcesses starts processes that work on the files of s.
func (m *Manager) fileProcesses(s *sandbox) files.Start {
	return func(ctx context.Context, args []string, socket *os.File) (func(), error) {
		s.mu.Lock()
		err := s.acceptsLocked()
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		cmd := s.ownCommand(args)
		cmd.Stdin = socket
		proc, err := s.init.Start(ctx, cmd)
		if err != nil {
			return nil, err
		}
		_ = failpoint("files/started") // only to be killed at: nothing was asked of the process
		return func() {
			_ = failpoint("files/ended") // only to be killed at: the process did what was asked, the caller does not know
			go m.endFileProcess(context.WithoutCancel(ctx), s, proc)
		}, nil
	}
}

// endFileProcess ends a process whose connection was closed.
func (m *Manager) endFileProcess(ctx context.Context, s *sandbox, proc *pid1.Exec) {
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	_, _ = proc.SignalAll(ctx, syscall.SIGKILL) // it may have ended with its connection
	if _, err := proc.Wait(ctx); err != nil {
		m.log.Debug("end file process", "sandbox", s.id, "err", err)
		return
	}
	if err := proc.Release(); err != nil {
		m.log.Debug("release file process", "sandbox", s.id, "err", err)
	}
}
