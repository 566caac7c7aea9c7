package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// dialError marks a failure to reach the socket at all.
type dialError struct {
	socket string
	err    error
}

func (e *dialError) Error() string { return fmt.Sprintf("connect to %s: %v", e.socket, e.err) }
func (e *dialError) Unwrap() error { return e.err }

// decode turns what connect returns for a call under ctx into an *Error. The
// clean end of a stream stays what it is.
func decode(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	var dial *dialError
	if errors.As(err, &dial) {
		return daemonOff(dial)
	}
	var call *connect.Error
	if !errors.As(err, &call) {
		return Explain(sbxerr.Wrap(sbxerr.APIBroken, "api.call", err))
	}
	if e := detailOf(call); e != nil {
		return e
	}
	if refused := tlsRefused(err); refused != nil {
		return Explain(sbxerr.Wrap(sbxerr.TLSRefused, "api.call", fmt.Errorf("the daemon refused the connection: %w", refused)))
	}
	if code := codeOfCall(ctx, call); code != sbxerr.APIBroken || !errors.Is(call, io.ErrUnexpectedEOF) {
		return Explain(sbxerr.Wrap(code, "api.call", fallback(call)))
	}
	return Explain(sbxerr.Wrap(sbxerr.APIBroken, "api.call", fmt.Errorf("the daemon ended, or closed the connection, before the call was over: %w", io.ErrUnexpectedEOF)))
}

// fallback is the text of an error that came without a detail: one of the
// transport's, or of a peer that is not caissond.
func fallback(call *connect.Error) error {
	if inner := call.Unwrap(); inner != nil {
		return inner
	}
	return errors.New(call.Message())
}

// codeOfCall places an error without a detail. connect calls it cancelled too
// when the peer breaks the connection off: it is not, unless ctx is.
func codeOfCall(ctx context.Context, call *connect.Error) sbxerr.Code {
	switch call.Code() {
	case connect.CodeCanceled:
		if ctx.Err() == nil {
			return sbxerr.APIBroken
		}
		return sbxerr.Canceled
	case connect.CodeDeadlineExceeded:
		return sbxerr.Deadline
	case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeResourceExhausted:
		return sbxerr.APIUsage
	}
	return sbxerr.APIBroken
}

func detailOf(call *connect.Error) *Error {
	for _, d := range call.Details() {
		value, err := d.Value()
		if err != nil {
			continue
		}
		if d, ok := value.(*caissonv1.ErrorDetail); ok {
			return Told(d)
		}
	}
	return nil
}

// Told is the error that a message tells of.
func Told(d *caissonv1.ErrorDetail) *Error {
	return &Error{
		Code: sbxerr.Code(d.GetCode()), Message: d.GetMessage(), Cause: d.GetCause(), Remedy: d.GetRemedy(),
		Class: sbxerr.Class(d.GetClass()), Retryable: d.GetRetryable(), RequestID: d.GetRequestId(),
	}
}

// daemonOff explains why the socket cannot be reached.
func daemonOff(dial *dialError) *Error {
	message, remedy := "the daemon cannot be reached on %s", ""
	switch {
	case errors.Is(dial.err, syscall.ENOENT):
		message = "no daemon listens on %s: there is no such socket"
	case errors.Is(dial.err, syscall.ECONNREFUSED):
		message = "no daemon listens on %s: the socket is what an ended daemon left behind"
		remedy = "start it again as root: caissond"
	case errors.Is(dial.err, syscall.EACCES):
		message = "this user may not use %s"
		remedy = reachRemedy(dial.socket)
	case errors.Is(dial.err, context.DeadlineExceeded):
		message = "the daemon on %s does not accept connections"
	}
	if strings.Contains(dial.socket, "://") {
		return hostOff(dial)
	}
	e := Explain(sbxerr.WithRemedy(sbxerr.DaemonOff, "api.dial", fmt.Errorf(message, dial.socket), remedy))
	e.Cause = dial.err.Error()
	return e
}

// hostOff explains why a daemon elsewhere cannot be reached.
func hostOff(dial *dialError) *Error {
	const op = "api.dial"
	host := withoutUser(dial.socket)
	if refused := tlsRefused(dial.err); refused != nil {
		return Explain(sbxerr.Wrap(sbxerr.TLSRefused, op, fmt.Errorf("connect to %s: %w", host, refused)))
	}
	remedy := "check the name and the port, that the daemon there runs with listen.tcp, and what lies between"
	if strings.HasPrefix(host, "ssh://") {
		remedy = "try it by hand: ssh HOST caisson version"
	}
	return Explain(sbxerr.WithRemedy(sbxerr.DaemonOff, op, fmt.Errorf("the daemon on %s cannot be reached: %w", host, dial.err), remedy))
}

// reachRemedy says who may connect to a socket that this user may not use.
func reachRemedy(socket string) string {
	const groupWrites = 0o020
	if st, err := os.Stat(socket); err == nil && st.Mode().Perm()&groupWrites == 0 {
		return fmt.Sprintf("run the command as root, or have root list this user in the daemon's configuration, peers: [{uids: [%d]}], and run caisson config reload", os.Geteuid())
	}
	return "run the command as root, or as a member of the socket's group (ls -l shows it)"
}

// decoder gives every call of a client errors of type *Error.
type decoder struct{}

func (decoder) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, decode(ctx, err)
	}
}

func (decoder) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return decodingConn{next(ctx, spec), ctx}
	}
}

func (decoder) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type decodingConn struct {
	connect.StreamingClientConn
	ctx context.Context // of the call, which the connection is
}

func (c decodingConn) Send(msg any) error { return decode(c.ctx, c.StreamingClientConn.Send(msg)) }

func (c decodingConn) Receive(msg any) error {
	return decode(c.ctx, c.StreamingClientConn.Receive(msg))
}

func (c decodingConn) CloseRequest() error {
	return decode(c.ctx, c.StreamingClientConn.CloseRequest())
}

func (c decodingConn) CloseResponse() error {
	return decode(c.ctx, c.StreamingClientConn.CloseResponse())
}
