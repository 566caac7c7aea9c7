package image

import (
	"bufio"
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

const opSpool = "image.spool"

// receive writes r as it is to a file in dir. A packing that is not supported is
// refused at the first bytes.
func receive(ctx context.Context, r io.Reader, dir string, l Limits) (_ *os.File, err error) {
	received := &flow.Budget{What: "the archive", Max: l.Bytes}
	br := bufio.NewReaderSize(flow.MeteredReader{R: flow.CodedReader{R: flow.ContextReader(ctx, r), Code: sbxerr.APIBroken, Op: opSpool}, B: received}, 64<<10)
	if _, err := flow.Sniff(br); err != nil {
		return nil, flow.Coded(sbxerr.ImageFormat, opSpool, err)
	}
	f, err := Spool(dir)
	if err != nil {
		return nil, err
	}
	// Hidden, so that io.Copy does not hand the file to a reader's WriteTo and errors
	// of reading and writing stay apart.
	if _, err := io.Copy(flow.CodedWriter{W: f, Code: sbxerr.StateDir, Op: opSpool}, struct{ io.Reader }{br}); err != nil {
		f.Close() // the first error says it
		return nil, err
	}
	return f, nil
}

// Spool makes a file in dir that has no name: it goes away with its descriptor, also in a
// crash. The caller closes it.
func Spool(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	return f, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
}
