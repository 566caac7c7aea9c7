package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
)

// brief makes a connection for each call and writes and reads it where the call is
// made. What http.Transport does for the calls after the first one, with goroutines of
// its own, is a tenth of the life of a program that makes one.
type brief struct{ socket string }

// RoundTrip implements http.RoundTripper.
func (b brief) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	conn, err := dial(ctx, b.socket)
	if err != nil {
		return nil, err
	}
	body := &briefBody{ctx: ctx, conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	res, err := exchange(conn, req)
	if err != nil {
		return nil, body.end(err)
	}
	body.ReadCloser, res.Body = res.Body, body
	return res, nil
}

// exchange writes req in one piece, which wakes the daemon once. A daemon that takes
// no more of it may have answered why.
func exchange(conn net.Conn, req *http.Request) (*http.Response, error) {
	var whole bytes.Buffer
	if err := req.Write(&whole); err != nil {
		return nil, err
	}
	_, unsent := whole.WriteTo(conn)
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, cmp.Or(unsent, err)
	}
	return res, nil
}

// briefBody is the body of an answer, with which the connection ends.
type briefBody struct {
	io.ReadCloser
	ctx  context.Context // the call's, which the connection is
	conn net.Conn
	stop func() bool
}

func (b *briefBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, b.cause(err)
}

// Close does not read the rest of the answer: nobody uses the connection again.
func (b *briefBody) Close() error { return b.end(nil) }

func (b *briefBody) end(err error) error {
	b.stop()
	_ = b.conn.Close()
	return b.cause(err)
}

// cause makes err the end of the call, where that closed the connection.
func (b *briefBody) cause(err error) error {
	if err != nil && b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	return err
}
