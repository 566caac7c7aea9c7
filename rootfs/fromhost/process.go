package fromhost

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Collection is software that a collector's process has found and copies.
type Collection struct {
	Summary string   // one line on its size
	Env     []string // PATH and LANG that suit the content, K=V

	ctx     context.Context
	request Request
	cmd     *exec.Cmd // nil after its end
	cancel  context.CancelFunc
	out     *bufio.Reader
	stderr  *capped
}

// Sink takes the entries of an image: package image's Writer is one.
type Sink interface {
	// Entry adds one entry. content is nil unless hdr is that of a file.
	Entry(hdr *tar.Header, content io.Reader) error
}

// Collect reads the host and finds what r names and all that this needs. It
// changes nothing. Everything that is wrong with the request is reported at
// once. Errors are SBX-101 and SBX-102 for a request that can never succeed,
// SBX-204 beyond a limit, SBX-002 when ctx ends, and SBX-209 else.
// The caller closes the collection.
func Collect(ctx context.Context, r Request) (*Collection, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := &Collection{ctx: ctx, request: r}
	if err := c.start(); err != nil {
		return nil, err
	}
	return c, nil
}

const op = "fromhost.collect"

// start starts a collector: this program again, as a user without any rights.
func (c *Collection) start() error {
	request, err := json.Marshal(c.request)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	if cause := context.Cause(c.ctx); cause != nil {
		return sbxerr.Wrap(sbxerr.Canceled, op, cause)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.cancel = cancel
	c.cmd = exec.CommandContext(ctx, "/proc/self/exe")
	c.cmd.Args, c.cmd.Env, c.cmd.Dir = []string{collectorName}, []string{}, "/"
	c.cmd.Stdin = bytes.NewReader(request)
	c.stderr = &capped{limit: maxEnd}
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = time.Second
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: ID, Gid: ID}}
	out, err := c.cmd.StdoutPipe()
	// What the daemon inherited from whoever started it may lack the mark.
	err = errors.Join(err, unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC))
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		cancel()
		c.cmd = nil
		return sbxerr.Wrap(sbxerr.FromHost, op, fmt.Errorf("start the collector: %w", err))
	}
	c.out = bufio.NewReaderSize(out, 256<<10)
	var b begun
	line, err := c.out.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &b)
	}
	if err != nil {
		_, err = c.end(err)
		return err
	}
	c.Summary, c.Env = b.Summary, b.Env
	return nil
}

// Write copies the collection into sink and returns what the caller should know,
// a line each. A second call collects again.
func (c *Collection) Write(sink Sink) (warnings []string, err error) {
	if c.cmd == nil {
		if err := c.start(); err != nil {
			return nil, err
		}
	}
	in := tar.NewReader(c.out)
	for {
		hdr, err := in.Next()
		if errors.Is(err, io.EOF) {
			return c.end(nil)
		}
		if err != nil {
			return c.end(err)
		}
		var content io.Reader
		if hdr.Typeflag == tar.TypeReg {
			content = in
		}
		if err := sink.Entry(hdr, content); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return c.end(err)
			}
			c.Close()
			return nil, err
		}
	}
}

// Close ends the collector, if it still runs.
func (c *Collection) Close() {
	if c.cmd == nil {
		return
	}
	c.cancel()
	_ = c.cmd.Wait() // it was killed
	c.cmd = nil
}

// end waits for the collector, of which the output has ended: with err, or as it
// should. The collector's own error says more than err.
func (c *Collection) end(err error) ([]string, error) {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.cancel() // it is not over
	}
	waited := c.cmd.Wait()
	c.cancel()
	c.cmd = nil
	var said ended
	switch parsed := json.Unmarshal(c.stderr.buf.Bytes(), &said); {
	case context.Cause(c.ctx) != nil:
		return nil, sbxerr.Wrap(sbxerr.Canceled, op, context.Cause(c.ctx))
	case parsed == nil && said.Error != "":
		return nil, sbxerr.New(said.Code, op, "%s", said.Error)
	case parsed != nil || waited != nil || err != nil:
		return nil, sbxerr.New(sbxerr.FromHost, op, "the collector ended: %w: %.400q", errors.Join(err, waited, parsed), c.stderr.buf.String())
	}
	return said.Warnings, nil
}

// maxEnd bounds what is kept of the collector's last words.
const maxEnd = 256 << 10

// capped keeps the first limit bytes.
type capped struct {
	buf   bytes.Buffer
	limit int
}

// Write implements io.Writer.
func (c *capped) Write(p []byte) (int, error) {
	c.buf.Write(p[:min(len(p), c.limit-c.buf.Len())])
	return len(p), nil
}
