package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// ratioFrom is how much must have been expanded before the ratio counts:
// small files of zeros are honest.
const ratioFrom = 64 << 20

// budget bounds what is made of an input, in total and in proportion.
type budget struct {
	what  string
	max   int64
	ratio int64

	total int64    // ever spent
	part  int64    // spent since begin
	in    *counter // what part is made of; nil has no ratio
}

func (b *budget) begin(in *counter) { b.part, b.in = 0, in }

func (b *budget) spend(n int) error {
	b.total += int64(n)
	b.part += int64(n)
	if b.total > b.max {
		return sbxerr.New(sbxerr.ImageTooBig, "image.limit", "%s has more than %d bytes", b.what, b.max)
	}
	if b.in != nil && b.part > ratioFrom && b.part/b.ratio > b.in.n {
		return sbxerr.WithRemedy(sbxerr.ImageTooBig, "image.limit", fmt.Errorf("%s expands to more than %d times the %d bytes read", b.what, b.ratio, b.in.n),
			"compress it less, or raise images.max_ratio in the configuration")
	}
	return nil
}

// counter counts what is read through it.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// meteredReader spends what is read through it.
type meteredReader struct {
	r io.Reader
	b *budget
}

func (m meteredReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if over := m.b.spend(n); over != nil {
		return 0, over
	}
	return n, err
}

// meteredWriter spends before it writes.
type meteredWriter struct {
	w io.Writer
	b *budget
}

func (m meteredWriter) Write(p []byte) (int, error) {
	if err := m.b.spend(len(p)); err != nil {
		return 0, err
	}
	return m.w.Write(p)
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// contextReader ends with ctx. It cannot interrupt a Read that waits.
func contextReader(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if err := ctxErr(ctx); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

// contextWriter is contextReader for writes.
func contextWriter(ctx context.Context, w io.Writer) io.Writer {
	return writeFunc(func(p []byte) (int, error) {
		if err := ctxErr(ctx); err != nil {
			return 0, err
		}
		return w.Write(p)
	})
}

// ctxErr returns why ctx ended, under the code of that reason.
func ctxErr(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	code := sbxerr.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = sbxerr.Deadline
	}
	return sbxerr.Wrap(code, "image.context", context.Cause(ctx))
}

// coded puts err under code unless what it wraps has one already: a stream
// passes through several readers, and the one that refused knows best why.
func coded(code sbxerr.Code, op string, err error) error {
	if err == nil {
		return nil
	}
	if inner := sbxerr.Of(err); inner != sbxerr.Unknown {
		return sbxerr.Wrap(inner, op, err)
	}
	return sbxerr.Wrap(code, op, err)
}

// codedReader puts the errors of r under a code.
type codedReader struct {
	r    io.Reader
	code sbxerr.Code
	op   string
}

func (c codedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = coded(c.code, c.op, err)
	}
	return n, err
}
