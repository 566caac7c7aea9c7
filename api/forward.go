package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Forwarded is a stream to a port inside a sandbox. Read ends with [io.EOF] when the server closes
// its side. One goroutine may read while another writes.
type Forwarded struct {
	conn   net.Conn
	body   io.ReadCloser
	frames *bufio.Writer
	chunks io.WriteCloser
}

// Forward connects to a port on localhost inside a sandbox, published or not. ctx bounds the
// connecting alone.
func (c *Client) Forward(ctx context.Context, ref string, port uint16) (*Forwarded, error) {
	conn, err := c.transport.DialContext(ctx, "", "")
	if err != nil {
		return nil, decode(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	f, err := newForwarded(conn, c.key, ref, port)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(decode(ctx, err), conn.Close())
	}
	return f, nil
}

// newForwarded writes a request whose body goes on while its answer comes: net/http sends the
// headers of one only with the first bytes of its body.
func newForwarded(conn net.Conn, key, ref string, port uint16) (*Forwarded, error) {
	const head = "POST /v1/sandboxes/%s/forward/%d HTTP/1.1\r\nHost: caisson\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n%s\r\n"
	if key != "" {
		key = "Authorization: Bearer " + key + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, head, url.PathEscape(ref), port, key); err != nil {
		return nil, sbxerr.Wrap(sbxerr.APIBroken, "api.forward", err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.APIBroken, "api.forward", err)
	}
	if response.StatusCode != http.StatusOK {
		var told struct{ Error *Error }
		if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&told); err != nil || told.Error == nil {
			return nil, sbxerr.New(sbxerr.APIBroken, "api.forward", "the daemon answered %s", response.Status)
		}
		return nil, told.Error
	}
	frames := bufio.NewWriter(conn)
	return &Forwarded{conn: conn, body: response.Body, frames: frames, chunks: httputil.NewChunkedWriter(frames)}, nil
}

// Read implements [io.Reader].
func (f *Forwarded) Read(p []byte) (int, error) { return f.body.Read(p) }

// Write implements [io.Writer].
func (f *Forwarded) Write(p []byte) (int, error) {
	n, err := f.chunks.Write(p)
	return n, errors.Join(err, f.frames.Flush())
}

// CloseWrite ends the caller's side.
func (f *Forwarded) CloseWrite() error {
	err := f.chunks.Close()
	_, errEnd := io.WriteString(f.frames, "\r\n")
	return errors.Join(err, errEnd, f.frames.Flush())
}

// Close implements [io.Closer].
func (f *Forwarded) Close() error { return f.conn.Close() }
