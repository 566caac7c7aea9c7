package execs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// Task is a command in the foreground: of run, exec or attach.
type Task struct {
	Terminal, Stdin  bool
	Limit            *int64 // of each stream that is kept for one object
	stdout0, stderr0 int64  // offsets at which the output begins
	Consequence      string // of a second Ctrl-C
	remedy           string // of that, where the usual one is none
	Hints            hints  // where it ran into a limit
	timeout          *durationpb.Duration
	end              endTask // for a caller that leaves; nil: its connection does it
	// before, if set, is called while the terminal is still as it was.
	before     func(ctx context.Context, c *api.Client) error
	detaches   bool   // the command outlives the caller's terminal
	detachKeys []byte // leave it, typed on a terminal; nil: nothing leaves it
	// Run runs it. A nil size is no terminal.
	Run func(ctx context.Context, c *api.Client, size *caissonv1.WinSize, rio api.IO) (*caissonv1.Result, error)
}

// Foreground connects t with our own streams, signals and terminal.
func Foreground(a *cli.App, ctx context.Context, t Task) error {
	if t.Terminal && a.Output == cli.FormatJSON {
		return cli.Usage("-t and --json exclude each other: a terminal's output is for a person")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	relay := newRelay(a.Grace, t.Consequence, cancel)
	relay.remedy, relay.detaches, relay.background = t.remedy, t.detaches, t.detachKeys != nil
	go relay.run(ctx)

	client, err := a.Client(ctx)
	if err != nil {
		return relay.explain(ctx, err)
	}
	defer client.Close()
	out := newTaskOutput(a, t)
	var running atomic.Pointer[caissonv1.Exec]
	over := sayOver(a, t)
	defer over.stop()
	rio := api.IO{Stdout: out.stdout, Stderr: out.stderr, Signals: relay.forward, Started: func(s *caissonv1.Started) {
		running.Store(s.GetExec())
		relay.started()
		over.start()
		out.start(s)
	}}
	widen(a.Stdout)
	if t.Stdin {
		rio.Stdin = a.Stdin
		widen(a.Stdin)
	}
	if t.Stdin && t.Terminal {
		rio.Stdin = &detacher{Reader: a.Stdin, keys: t.detachKeys, leave: func(why error) { leave(a, ctx, t, why, cancel) }}
	}
	if t.Terminal || t.end != nil { // a write to a closed pipe must not end us before we have cleaned up
		signal.Ignore(syscall.SIGPIPE)
	}
	var size *caissonv1.WinSize
	restore := func() {}
	if t.Terminal && t.before != nil {
		if err := t.before(ctx, client); err != nil {
			return out.failed(relay.explain(ctx, err))
		}
	}
	if t.Terminal {
		screen, err := a.OpenTerminal(t.Stdin)
		if err != nil {
			return err
		}
		defer screen.Close()
		size, rio.Resizes = screen.Size().Message(), screen.Resizes
		restore = screen.Close
	}
	defer a.LeaveWhenStuck(ctx, func() error {
		err := context.Cause(ctx)
		if e := running.Load(); t.end != nil && e != nil && !errors.Is(err, errDetached) { // its own call may be stuck
			err = cmp.Or(t.end(ctx, client, e), err)
		}
		return out.failed(relay.explain(ctx, err))
	})()
	result, err := t.Run(ctx, client, size, rio)
	over.stop()
	restore() // before anything is said below the output
	return outcome(a, ctx, out, relay, running.Load(), result, err)
}

// leave ends the call of t with cancel. A command that a closed terminal kills has got its HUP,
// and has the grace to act on it.
func leave(a *cli.App, ctx context.Context, t Task, why error, cancel context.CancelCauseFunc) {
	if errors.Is(why, errHungUp) && !t.detaches {
		select {
		case <-ctx.Done():
		case <-time.After(a.Grace):
		}
	}
	cancel(why)
}

// outcome tells how the call of the command e ended.
func outcome(a *cli.App, ctx context.Context, out taskOutput, relay *relay, e *caissonv1.Exec, result *caissonv1.Result, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errDetached) {
		sayDetached(a, e)
		return nil
	}
	if err != nil && errors.Is(context.Cause(ctx), errHungUp) {
		return cli.ExitStatus(hungUp)
	}
	if err != nil {
		return out.failed(relay.explain(ctx, err))
	}
	if err := out.end(result); err != nil {
		return err
	}
	if result.LostBytes > 0 {
		return lost(a, result)
	}
	return cli.ExitStatus(result.ExitCode)
}

// overNotice says on a terminal that a command does not end though its time is over: until
// it is killed, nothing else tells.
type overNotice struct {
	timer *time.Timer
	after time.Duration // 0 is never
	once  sync.Once
}

// overGrace is how long after its time a command may end before that is said.
const overGrace = 200 * time.Millisecond

func sayOver(a *cli.App, t Task) *overNotice {
	n := &overNotice{}
	if t.Terminal && t.timeout != nil && a.Stream == "" {
		n.after = t.timeout.AsDuration() + overGrace
	}
	n.timer = time.AfterFunc(math.MaxInt64, func() {
		a.Progress("caisson: the command's time is over (--timeout): it got TERM and HUP, and is killed when the daemon's stop_grace is over")
	})
	return n
}

// start says that the command runs.
func (n *overNotice) start() {
	if n.after > 0 {
		n.once.Do(func() { n.timer.Reset(n.after) })
	}
}

func (n *overNotice) stop() { n.timer.Stop() }

// widePipe is how much a pipe of input or output may hold, in bytes: as much as one call
// sends. With the usual 64 KiB input takes four times as long, and output a third more.
const widePipe = 1 << 20

// widen enlarges the pipe that stream may be. That the host does not allow it is no failure.
func widen(stream any) {
	f, ok := stream.(*os.File)
	if !ok {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe) })
}

// lost tells, in every form of output, that the caller does not have all that the command
// wrote: its exit code alone would say that all is well.
func lost(a *cli.App, r *caissonv1.Result) error {
	err := sbxerr.New(sbxerr.OutputLost, "caisson.output", "%d bytes of the command's output were lost: the daemon's disk did not take them; the command exited with %d", r.LostBytes, r.ExitCode)
	fmt.Fprintf(a.Stderr, "caisson: %v\n  remedy: %s\n", api.Explain(err), sbxerr.RemedyOf(err))
	return cli.ExitStatus(cli.ExitRuntime)
}
