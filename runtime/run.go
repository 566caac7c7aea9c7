package runtime

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/runtime/output"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/sbxerr"
)

// ErrRemoved is the cause with which Remove ends a running sandbox.
var ErrRemoved = errors.New("the sandbox was removed")

// Run makes a sandbox, runs one command in it, and removes the sandbox. When
// it returns a result, every process of the sandbox has ended and all output
// was delivered; what is left of the sandbox on the host is removed right
// after, while the caller goes on. When ctx ends, so does the command.
func (m *Manager) Run(ctx context.Context, r Request, streams IO) (*Result, error) {
	defer m.Busy()()
	s, err := m.create(ctx, r, false)
	if err != nil {
		return nil, err
	}
	result, err := m.execute(ctx, s, streams)
	if err != nil {
		return nil, errors.Join(err, m.destroy(ctx, s))
	}
	s.finish(result)
	go m.destroy(ctx, s) // logs what fails; Close waits for it
	m.report(s, result)
	return result, nil
}

// Start makes a sandbox, starts one command in it, and returns. The sandbox
// and its output stay until they are removed.
func (m *Manager) Start(ctx context.Context, r Request) (Info, error) {
	defer m.Busy()()
	s, err := m.create(ctx, r, true)
	if err != nil {
		return Info{}, err
	}
	c, err := m.begin(ctx, s, nil) // still the caller's: nobody else knows of the sandbox yet
	if err != nil {
		return Info{}, errors.Join(err, m.destroy(ctx, s))
	}
	go m.outlive(context.WithoutCancel(ctx), s, c)
	return s.info(), nil
}

// outlive sees a detached command to its end.
func (m *Manager) outlive(ctx context.Context, s *sandbox, c *command) {
	result, err := m.complete(ctx, s, c, IO{})
	if err != nil {
		m.log.Error("end of command", "sandbox", s.plan.id, "err", err)
	}
	if err := m.retire(ctx, s); err != nil { // removal tries again
		m.log.Error("retire sandbox", "sandbox", s.plan.id, "err", err)
	}
	s.finish(result)
	m.report(s, result)
	s.release()
}

func (m *Manager) report(s *sandbox, r *Result) {
	m.log.Info("command ended", "sandbox", s.plan.id, "code", r.ExitCode, "reason", string(r.Reason), "dur", r.Duration)
}

func (m *Manager) execute(ctx context.Context, s *sandbox, streams IO) (*Result, error) {
	c, err := m.begin(ctx, s, streams.Stdin)
	if err != nil {
		return nil, err
	}
	if streams.Started != nil {
		streams.Started(s.info())
	}
	return m.complete(ctx, s, c, streams)
}

// command is a started command and what reads from it.
type command struct {
	exec    *pid1.Exec
	started time.Time
	pumps   sync.WaitGroup // copy the command's pipes into the stores
	pipes   []*os.File     // the daemon's ends, for closing a pipe that will not end
	stdin   *os.File       // nil where the command gets none
}

// begin starts the command. The stores fill from then on.
func (m *Manager) begin(ctx context.Context, s *sandbox, stdin io.Reader) (*command, error) {
	stdout, outErr := output.New(m.paths.stdout(s.plan.id), s.plan.outputLimit)
	stderr, errErr := output.New(m.paths.stderr(s.plan.id), s.plan.outputLimit)
	if err := errors.Join(outErr, errErr); err != nil {
		return nil, err
	}
	s.update(func() { s.stdout, s.stderr = stdout, stderr })
	p, err := newPipes(stdin != nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, initTimeout,
		sbxerr.New(sbxerr.Init, "runtime.exec", "caisson-init did not start the command within %s", initTimeout))
	defer cancel()
	c := &command{}
	err = s.timed("exec", func() error {
		c.exec, err = s.init.Start(ctx, pid1.Command{
			Args: s.plan.args, Env: s.plan.env, Cwd: s.plan.cwd,
			UID: s.plan.user.uid, GID: s.plan.user.gid, Groups: s.plan.user.groups,
			Stdin: p.inside[0], Stdout: p.inside[1], Stderr: p.inside[2],
		})
		return err
	})
	err = errors.Join(err, p.closeInside())
	if err != nil {
		return nil, errors.Join(err, p.closeOutside())
	}
	c.started = time.Now()
	c.pump(p, s, stdin)
	return c, nil
}

func (c *command) pump(p *pipes, s *sandbox, stdin io.Reader) {
	for store, pipe := range map[*output.Store]*os.File{s.stdout: p.stdout, s.stderr: p.stderr} {
		c.pipes = append(c.pipes, pipe)
		c.pumps.Go(func() {
			_, _ = io.CopyBuffer(onlyWriter{store}, onlyReader{pipe}, make([]byte, 64<<10)) // ends with the last writer
			store.Finish()
			_ = pipe.Close()
		})
	}
	if stdin == nil {
		return
	}
	c.stdin = p.stdin
	go func() { // not waited for: the caller may never end its input
		_, _ = io.Copy(p.stdin, stdin) // the command may close its end at any time
		_ = p.stdin.Close()
	}()
}

// onlyWriter and onlyReader keep io.CopyBuffer on the given buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// complete waits for the end of c, whatever brings it, and then ends the whole
// sandbox. It returns a result also when something failed on the way.
func (m *Manager) complete(ctx context.Context, s *sandbox, c *command, streams IO) (*Result, error) {
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.endBy(cancel)
	var followers sync.WaitGroup
	follow(runCtx, &followers, s.stdout, streams.Stdout)
	follow(runCtx, &followers, s.stderr, streams.Stderr)

	e := m.await(runCtx, s, c, streams.Signals)
	duration := time.Since(c.started)
	err := m.endAll(ctx, s, c)
	result := m.result(s, e, duration)
	followers.Wait()
	return result, err
}

func follow(ctx context.Context, wg *sync.WaitGroup, store *output.Store, w io.Writer) {
	if w == nil {
		return
	}
	wg.Go(func() {
		_ = store.Follow(ctx, w, true) // a reader that left is the caller's affair; the store keeps the output
	})
}

// ending is how a command ended, before it is told.
type ending struct {
	exit     pid1.Exit
	known    bool // PID 1 told how; otherwise it ended first
	reason   Reason
	timedOut bool
}

// await returns when the command has ended, by itself or because its time was
// over, its caller left, or PID 1 is gone.
func (m *Manager) await(ctx context.Context, s *sandbox, c *command, signals <-chan syscall.Signal) ending {
	type told struct {
		exit pid1.Exit
		err  error
	}
	waited := make(chan told, 1)
	go func() {
		exit, err := c.exec.Wait(context.WithoutCancel(ctx))
		waited <- told{exit, err}
	}()
	var e ending
	deadline, stop := after(s.plan.timeout)
	defer stop()
	var grace <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case t := <-waited:
			e.exit, e.known = t.exit, t.err == nil
			return e.settle()
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			m.signal(ctx, s, c, sig)
		case <-deadline:
			e.timedOut = true
			grace = time.After(m.opts.StopGrace)
			m.signal(ctx, s, c, syscall.SIGTERM)
		case <-grace:
			m.kill(s)
		case <-done:
			e.reason, done = ReasonCanceled, nil
			m.kill(s)
		}
	}
}

// settle names the reason, as far as the command itself tells it.
func (e ending) settle() ending {
	switch {
	case e.timedOut:
		e.reason = ReasonTimeout
	case e.reason != "":
	case !e.known:
		e.reason = ReasonLost
	case e.exit.Signal != 0:
		e.reason = ReasonSignaled
	default:
		e.reason = ReasonExited
	}
	return e
}

// after is time.After, where 0 is never.
func after(d time.Duration) (<-chan time.Time, func()) {
	if d == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// signal passes a signal to the command's process group. A command that has
// ended meanwhile is no failure.
func (m *Manager) signal(ctx context.Context, s *sandbox, c *command, sig syscall.Signal) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := c.exec.Signal(ctx, sig); err != nil {
		m.log.Debug("signal command", "sandbox", s.plan.id, "signal", int(sig), "err", err)
	}
}

// kill ends the sandbox and takes no more of PID 1's word: its end is awaited
// elsewhere, and bounded there.
func (m *Manager) kill(s *sandbox) {
	if err := errors.Join(s.process.kill(), s.init.Close()); err != nil {
		m.log.Error("kill PID 1", "sandbox", s.plan.id, "err", err)
	}
}

// endAll kills whatever still runs in the sandbox and waits until nothing
// does. The command's pipes then have no writer left, so their readers end
// with the last byte.
func (m *Manager) endAll(ctx context.Context, s *sandbox, c *command) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), destroyTimeout,
		sbxerr.New(sbxerr.Deadline, "runtime.end", "the processes of sandbox %s did not end within %s", s.plan.id, destroyTimeout))
	defer cancel()
	err := errors.Join(s.process.kill(), s.process.wait(ctx))
	if err != nil { // a writer may live on: do not wait for it
		for _, pipe := range c.pipes {
			_ = pipe.SetReadDeadline(past)
		}
	}
	c.pumps.Wait()
	return errors.Join(err, ignoreClosed(closeAll(c.stdin)))
}
