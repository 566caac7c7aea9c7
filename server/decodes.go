package server

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
)

// decodes is the interceptor that tells a body what was decoded of it, and refuses
// what could not be.
type decodes struct{}

// decodedBody tells the body of a call that its one message was read.
func decodedBody(ctx context.Context) error {
	if b, ok := ctx.Value(incomingKey{}).(*incoming); ok {
		return b.decoded()
	}
	return nil
}

// WrapUnary implements [connect.Interceptor].
func (decodes) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := decodedBody(ctx); err != nil {
			return nil, fail(err)
		}
		if err := unread(r.Any()); err != nil {
			return nil, fail(err)
		}
		return next(ctx, r)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (decodes) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (decodes) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if b, ok := ctx.Value(incomingKey{}).(*incoming); ok {
			conn = &decodedConn{conn, b}
		}
		return asRefusal(next(ctx, &readConn{conn}))
	}
}

// readConn refuses the messages that could not be read.
type readConn struct{ connect.StreamingHandlerConn }

// Receive implements [connect.StreamingHandlerConn].
func (c *readConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return asRefusal(err)
	}
	if err := unread(m); err != nil {
		return fail(err)
	}
	return nil
}

// asRefusal gives an error of the library, which has no details, the form of all others.
// The end of a stream stays one.
func asRefusal(err error) error {
	var bare *connect.Error
	if errors.Is(err, io.EOF) || !errors.As(err, &bare) || len(bare.Details()) > 0 {
		return err
	}
	switch bare.Code() {
	case connect.CodeResourceExhausted:
		return failAs(bare.Code(), unreadable(errors.New(bare.Message())))
	case connect.CodeInternal, connect.CodeUnknown, connect.CodeInvalidArgument, connect.CodeUnimplemented:
		return fail(unreadable(errors.New(bare.Message())))
	}
	return err // the caller left, or its time is over
}

type decodedConn struct {
	connect.StreamingHandlerConn
	body *incoming
}

// Receive implements [connect.StreamingHandlerConn]. A call of one request is not
// there before its end is, which Connect receives too; of a stream, who receives
// the next message is done with the one before.
func (c *decodedConn) Receive(m any) error {
	stream := c.Spec().StreamType&connect.StreamTypeClient != 0
	if stream {
		c.body.forget()
	}
	err := c.StreamingHandlerConn.Receive(m)
	if !stream && err == nil {
		return nil
	}
	if refusal := c.body.decoded(); refusal != nil && (err == nil || errors.Is(err, io.EOF)) {
		return fail(refusal)
	}
	return err
}
