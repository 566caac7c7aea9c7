package server

import (
	"context"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// operationInterceptor tells the operation of a call what goes by.
type operationInterceptor struct{}

// WrapUnary implements [connect.Interceptor].
func (operationInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		op := operationOf(ctx)
		op.asked(r.Any())
		res, err := next(ctx, r)
		if err != nil {
			return nil, op.failed(err)
		}
		op.answered(res.Any())
		return res, nil
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (operationInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (operationInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		op := operationOf(ctx)
		return op.failed(next(ctx, &operationConn{StreamingHandlerConn: conn, op: op}))
	}
}

type operationConn struct {
	connect.StreamingHandlerConn
	op    *operation
	asked bool
}

// Receive implements [connect.StreamingHandlerConn]. The first request names things.
func (c *operationConn) Receive(m any) error {
	err := c.StreamingHandlerConn.Receive(m)
	if err == nil && !c.asked {
		c.asked = true
		c.op.asked(headerOf(m))
	}
	return err
}

// Send implements [connect.StreamingHandlerConn].
func (c *operationConn) Send(m any) error {
	c.op.answered(m)
	return c.StreamingHandlerConn.Send(m)
}

// headerOf is the part of a first request that names things.
func headerOf(m any) any {
	switch m := m.(type) {
	case *caissonv1.WriteFileRequest:
		return m.GetHeader()
	case *caissonv1.CopyInRequest:
		return m.GetHeader()
	}
	return m
}
