package server

import (
	"errors"
	"io"

	"connectrpc.com/connect"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// firstOf returns the first message of a stream.
func firstOf[T any](stream *connect.ClientStream[T]) (*T, error) {
	if stream.Receive() {
		return stream.Msg(), nil
	}
	if err := stream.Err(); err != nil {
		return nil, receiveError(err)
	}
	return nil, receiveError(io.EOF)
}

// chunkReader reads the chunks of a caller's stream. Its side must end cleanly:
// a connection that breaks is an error and not the end.
type chunkReader[T any] struct {
	stream *connect.ClientStream[T]
	chunk  func(*T) (chunk []byte, ok bool)
	rest   []byte
	err    error
}

// Read implements io.Reader.
func (c *chunkReader[T]) Read(p []byte) (int, error) {
	for len(c.rest) == 0 && c.err == nil {
		c.rest, c.err = c.next()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	if n == 0 && len(p) > 0 {
		return 0, c.err
	}
	return n, nil
}

func (c *chunkReader[T]) next() ([]byte, error) {
	if !c.stream.Receive() {
		if err := c.stream.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, receiveError(err)
		}
		return nil, io.EOF
	}
	chunk, ok := c.chunk(c.stream.Msg())
	if !ok {
		return nil, sbxerr.New(sbxerr.APIUsage, "server.receive", "after header, every message must hold a chunk")
	}
	return chunk, nil
}

// receiveError puts a failure to receive under the code of its reason: our own
// refusals keep theirs, malformed messages are usage, and for the rest the caller
// went away.
func receiveError(err error) error {
	if sbxerr.Of(err) != sbxerr.Unknown {
		return err
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeResourceExhausted:
		return sbxerr.Wrap(sbxerr.APIUsage, "server.receive", err)
	}
	if errors.Is(err, io.EOF) {
		return sbxerr.New(sbxerr.APIUsage, "server.receive", "the call ended before its first message")
	}
	return sbxerr.Wrap(sbxerr.Canceled, "server.receive", err)
}
