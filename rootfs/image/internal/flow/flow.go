// Package flow has what the bytes of images pass through: bounds, contexts, and codes for errors.
package flow

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// RatioFrom is how much must have been expanded before the ratio counts:
// small files of zeros are honest.
const RatioFrom = 64 << 20

// Budget bounds what is made of an input, in total and in proportion.
type Budget struct {
	What  string
	Max   int64
	Ratio int64 // expanded : read, once much is expanded; looked at where Begin was given an input

	total int64    // ever spent
	part  int64    // spent since begin
	in    *Counter // what part is made of; nil has no ratio
}

// Begin begins a part, which is made of in. A nil one has no ratio.
func (b *Budget) Begin(in *Counter) { b.part, b.in = 0, in }

// Spend takes n bytes, or says that there are not so many.
func (b *Budget) Spend(n int) error {
	b.total += int64(n)
	b.part += int64(n)
	if b.total > b.Max {
		return sbxerr.New(sbxerr.ImageTooBig, "image.limit", "%s has more than %d bytes", b.What, b.Max)
	}
	if b.in != nil && b.part > RatioFrom && b.part/b.Ratio > b.in.N {
		return sbxerr.WithRemedy(sbxerr.ImageTooBig, "image.limit", fmt.Errorf("%s expands to more than %d times the %d bytes read", b.What, b.Ratio, b.in.N),
			"compress it less, or raise images.max_ratio in the configuration")
	}
	return nil
}

// Counter counts what is read through it.
type Counter struct {
	R io.Reader
	N int64
}

// Read implements io.Reader.
func (c *Counter) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	c.N += int64(n)
	return n, err
}

// MeteredReader spends what is read through it.
type MeteredReader struct {
	R io.Reader
	B *Budget
}

// Read implements io.Reader.
func (m MeteredReader) Read(p []byte) (int, error) {
	n, err := m.R.Read(p)
	if over := m.B.Spend(n); over != nil {
		return 0, over
	}
	return n, err
}

// MeteredWriter spends before it writes.
type MeteredWriter struct {
	W io.Writer
	B *Budget
}

// Write implements io.Writer.
func (m MeteredWriter) Write(p []byte) (int, error) {
	if err := m.B.Spend(len(p)); err != nil {
		return 0, err
	}
	return m.W.Write(p)
}

// ReadFunc is an io.Reader.
type ReadFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f ReadFunc) Read(p []byte) (int, error) { return f(p) }

// WriteFunc is an io.Writer.
type WriteFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f WriteFunc) Write(p []byte) (int, error) { return f(p) }

// ContextReader ends with ctx. It cannot interrupt a Read that waits.
func ContextReader(ctx context.Context, r io.Reader) io.Reader {
	return ReadFunc(func(p []byte) (int, error) {
		if err := CtxErr(ctx); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

// ContextWriter is ContextReader for writes.
func ContextWriter(ctx context.Context, w io.Writer) io.Writer {
	return WriteFunc(func(p []byte) (int, error) {
		if err := CtxErr(ctx); err != nil {
			return 0, err
		}
		return w.Write(p)
	})
}

// CtxErr returns why ctx ended, under the code of that reason.
func CtxErr(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	code := sbxerr.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = sbxerr.Deadline
	}
	return sbxerr.Wrap(code, "image.context", context.Cause(ctx))
}

// Coded puts err under code unless what it wraps has one already: a stream
// passes through several readers, and the one that refused knows best why.
func Coded(code sbxerr.Code, op string, err error) error {
	if err == nil {
		return nil
	}
	if inner := sbxerr.Of(err); inner != sbxerr.Unknown {
		return sbxerr.Wrap(inner, op, err)
	}
	return sbxerr.Wrap(code, op, err)
}

// CodedReader puts the errors of r under a code.
type CodedReader struct {
	R    io.Reader
	Code sbxerr.Code
	Op   string
}

// Read implements io.Reader.
func (c CodedReader) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = Coded(c.Code, c.Op, err)
	}
	return n, err
}

// Quote renders a name that may be long or hold anything.
func Quote(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// CodedWriter puts the errors of W under a code.
type CodedWriter struct {
	W    io.Writer
	Code sbxerr.Code
	Op   string
}

// Write implements io.Writer.
func (c CodedWriter) Write(p []byte) (int, error) {
	n, err := c.W.Write(p)
	return n, Coded(c.Code, c.Op, err)
}
