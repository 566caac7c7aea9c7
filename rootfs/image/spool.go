package image

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
)

const opSpool = "image.spool"

// receive writes r as it is to a file in dir. A packing that is not supported is
// refused at the first bytes.
func receive(ctx context.Context, r io.Reader, dir string, l Limits) (*os.File, error) {
	received := &budget{what: "the archive", max: l.Bytes}
	br := bufio.NewReaderSize(meteredReader{codedReader{contextReader(ctx, r), sbxerr.APIBroken, opSpool}, received}, 64<<10)
	if _, err := sniff(br); err != nil {
		return nil, coded(sbxerr.ImageFormat, opSpool, err)
	}
	return spool(dir, br)
}

// unpack returns f unpacked, in a file in dir, and f itself where it is not packed.
// An archive cannot be longer than the limit, packed or not.
func unpack(ctx context.Context, f *os.File, dir string, l Limits) (*os.File, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	head := bufio.NewReader(f)
	if kind, err := sniff(head); err != nil || kind.open == nil {
		return f, coded(sbxerr.ImageFormat, opSpool, err)
	}
	out := &budget{what: "the archive", max: l.Bytes, ratio: l.Ratio}
	var plain *os.File
	err := expand(contextReader(ctx, head), anyPacking, out, func(r io.Reader) (err error) {
		plain, err = spool(dir, r)
		return err
	})
	if err != nil && plain != nil {
		plain.Close() // the first error says it
	}
	return plain, err
}

// spool writes r to a file in dir that has no name: it goes away with its
// descriptor, also in a crash. The caller closes it.
func spool(dir string, r io.Reader) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, ".import-*")
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	defer func() {
		if err != nil {
			f.Close() // the first error says it
		}
	}()
	if err := owndir.Remove(f.Name()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	// Hidden, so that io.Copy does not hand the file to a reader's WriteTo and errors
	// of reading and writing stay apart.
	_, err = io.Copy(codedWriter{f, sbxerr.StateDir, opSpool}, struct{ io.Reader }{r})
	return f, err
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
