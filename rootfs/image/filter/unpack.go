package filter

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

const opSpool = "image.spool"

// unpack writes f unpacked to spool, which it returns, and returns f itself where it is not
// packed. An archive cannot be longer than the limit, packed or not.
func unpack(ctx context.Context, f, spool *os.File, l Limits) (*os.File, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, sbxerr.Wrap(sbxerr.StateDir, opSpool, err)
	}
	head := bufio.NewReader(f)
	if packing, err := flow.Sniff(head); err != nil || packing == flow.Plain {
		return f, flow.Coded(sbxerr.ImageFormat, opSpool, err)
	}
	out := &flow.Budget{What: "the archive", Max: l.Bytes, Ratio: l.Ratio}
	err := expand(flow.ContextReader(ctx, head), anyPacking, out, func(r io.Reader) error {
		// Hidden, so that io.Copy does not hand the file to a reader's WriteTo and errors
		// of reading and writing stay apart.
		_, err := io.Copy(flow.CodedWriter{W: spool, Code: sbxerr.StateDir, Op: opSpool}, struct{ io.Reader }{r})
		return err
	})
	return spool, err
}
