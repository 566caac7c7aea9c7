package ctrd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var errDown = errors.New("no connection to the server")

// call does fn, again when the server went away meanwhile, each time after the
// connection is back. fn must therefore bear being repeated after it took effect.
// The context it gets names the Engine's namespace.
// Errors are placed under a code; op is for programs, verb and object for people.
func (e *Engine) call(ctx context.Context, op, verb, object string, fn func(context.Context) error) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	return e.callOpen(ctx, op, verb, object, fn)
}

// callUnbounded is call for work on the content of images, which may take as long as ctx
// allows and can fill the disk.
func (e *Engine) callUnbounded(ctx context.Context, op, verb, object string, fn func(context.Context) error) error {
	return noRoom(op, e.callOpen(ctx, op, verb, object, fn))
}

func (e *Engine) callOpen(ctx context.Context, op, verb, object string, fn func(context.Context) error) error {
	if err := e.awaitOpen(ctx); err != nil {
		return classify(ctx, op, verb, object, err)
	}
	return e.attempt(ctx, op, verb, object, fn)
}

// callUnopened is call for Open.
func (e *Engine) callUnopened(ctx context.Context, op, verb, object string, fn func(context.Context) error) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	return e.attempt(ctx, op, verb, object, fn)
}

func (e *Engine) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	most := e.cfg.CallTimeout
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %s: %w", most, context.DeadlineExceeded))
}

func (e *Engine) attempt(ctx context.Context, op, verb, object string, fn func(context.Context) error) error {
	ctx = namespaces.WithNamespace(ctx, e.cfg.Namespace)
	var err error
	pause := e.cfg.Backoff
	for try := 1; ; try++ {
		if err = e.ready(ctx); err != nil {
			break
		}
		if err = native(fn(ctx)); !errdefs.IsUnavailable(err) || try == e.cfg.Attempts {
			break
		}
		if !sleep(ctx, pause) {
			break
		}
		pause *= 2
	}
	return classify(ctx, op, verb, object, err)
}

// native turns a gRPC status into the error class that errdefs knows. What is no
// status, the client's own conversion among them, stays as it is.
func native(err error) error {
	if _, ok := status.FromError(err); ok {
		return errgrpc.ToNative(err)
	}
	return err
}

// sleep reports whether all of d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// classify places err under its code. An error that has one keeps it.
func classify(ctx context.Context, op, verb, object string, err error) error {
	if err == nil || sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	err = fmt.Errorf("%s %q: %w", verb, object, withCause(ctx, err))
	return sbxerr.Wrap(codeOf(err), op, err)
}

// filterMemory is how runc says that the kernel could not compile a filter, because
// net.core.bpf_jit_limit is used up: ENOTSUPP, which is no error for programs and has no name.
const filterMemory = "error loading seccomp filter: errno 524"

// diskFull reports whether containerd found no room on its disk. It only says so in words.
func diskFull(err error) bool { return strings.Contains(err.Error(), unix.ENOSPC.Error()) }

// noRoom puts a full disk under its code. Containers are no case of it: runc has the same
// words for other limits of the host.
func noRoom(op string, err error) error {
	if code := sbxerr.Of(err); err == nil || code != sbxerr.Unknown && code != sbxerr.Engine || !diskFull(err) {
		return err
	}
	return sbxerr.WithRemedy(sbxerr.StateDir, op, err,
		"make room on the disk of the daemon's root: caisson image prune --filter unused removes images that nothing needs")
}

func codeOf(err error) sbxerr.Code {
	switch {
	case errors.Is(err, errDown), errdefs.IsUnavailable(err):
		return sbxerr.EngineDown
	case errors.Is(err, context.DeadlineExceeded), errdefs.IsDeadlineExceeded(err):
		return sbxerr.Deadline
	case errors.Is(err, context.Canceled), errdefs.IsCanceled(err):
		return sbxerr.Canceled
	case errdefs.IsAlreadyExists(err):
		return sbxerr.Exists
	case strings.Contains(err.Error(), filterMemory):
		return sbxerr.SeccompMemory
	case strings.Contains(err.Error(), syscall.EMFILE.Error()), strings.Contains(err.Error(), syscall.ENFILE.Error()):
		return sbxerr.NoFiles // met by containerd, a shim or runc
	}
	return sbxerr.Engine
}

// withCause adds why ctx ended: gRPC reports only that it did.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}
