package server

import (
	"context"
	"errors"
	"io"
	"math"

	"connectrpc.com/connect"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// forwardStream is a caller's stream to a port inside a sandbox.
type forwardStream = connect.BidiStream[caissonv1.ForwardRequest, caissonv1.ForwardResponse]

// Forward implements NetworkServiceHandler.
func (n network) Forward(ctx context.Context, stream *forwardStream) error {
	m, err := stream.Receive()
	if err != nil {
		return fail(receiveError(err))
	}
	if err = checkRef("ref", m.Ref); err == nil && (m.Port < 1 || m.Port > math.MaxUint16) {
		err = refuse("port is %d, give 1 to 65535", m.Port)
	}
	if err != nil {
		return fail(err)
	}
	connected := func() error { return stream.Send(&caissonv1.ForwardResponse{}) }
	return fail(n.forwards.Forward(ctx, m.Ref, uint16(m.Port), &forwardReader{stream, m.Data}, forwardWriter{stream}, connected))
}

// forwardReader is what the caller sends.
type forwardReader struct {
	stream *forwardStream
	rest   []byte
}

func (r *forwardReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.stream.Receive()
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return 0, receiveError(err)
		case err != nil:
			return 0, io.EOF
		case m.Ref != "" || m.Port != 0:
			return 0, sbxerr.New(sbxerr.APIUsage, "server.forward", "ref and port belong into the first message alone")
		}
		r.rest = m.Data
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// forwardWriter sends what comes back.
type forwardWriter struct{ stream *forwardStream }

func (w forwardWriter) Write(p []byte) (int, error) {
	return len(p), w.stream.Send(&caissonv1.ForwardResponse{Data: p})
}
