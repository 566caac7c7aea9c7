package image

import (
	"context"
	"io"
	"os"

	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/sbxerr"
)

// spool writes r, unpacked as a whole if it is packed, to a file in dir that
// has no name: it goes away with its descriptor, also in a crash. The caller
// closes it.
func spool(ctx context.Context, r io.Reader, dir string, l Limits) (_ *os.File, err error) {
	const op = "image.spool"
	f, err := os.CreateTemp(dir, ".import-*")
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	defer func() {
		if err != nil {
			f.Close() // the first error says it
		}
	}()
	if err := owndir.Remove(f.Name()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	// An archive cannot be longer than the limit, packed or not.
	packed := &budget{what: "the archive", max: l.Bytes}
	src := meteredReader{codedReader{contextReader(ctx, r), sbxerr.APIBroken, op}, packed}
	out := &budget{what: "the archive", max: l.Bytes, ratio: l.Ratio}
	err = expand(src, anyPacking, out, func(plain io.Reader) error {
		// Hidden, so that io.Copy does not hand the file to a reader's WriteTo
		// and errors of reading and writing stay apart.
		_, err := io.Copy(codedWriter{f, sbxerr.StateDir, op}, plain)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// codedWriter puts the errors of w under a code.
type codedWriter struct {
	w    io.Writer
	code sbxerr.Code
	op   string
}

func (c codedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	return n, coded(c.code, c.op, err)
}
