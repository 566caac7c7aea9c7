package filter

import (
	"bufio"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image/internal/flow"
)

// anyPacking takes any packing that is read.
const anyPacking flow.Packing = ""

// maxWindow bounds what one zstd frame may make the decoder allocate. Builders of
// images use no larger one; the zstd command does with --ultra or --long.
const maxWindow = 32 << 20

// openers begin to unpack.
var openers = map[flow.Packing]func(io.Reader) (io.ReadCloser, error){flow.Gzip: openGzip, flow.Zstd: openZstd}

func openGzip(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

func openZstd(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// expand calls read with the uncompressed content of r, whose packing must be
// want unless that is anyPacking. What is expanded is spent from b. When read
// has read to the end, so has expand.
func expand(r io.Reader, want flow.Packing, b *flow.Budget, read func(io.Reader) error) error {
	const op = "image.expand"
	in := &flow.Counter{R: r}
	br := bufio.NewReaderSize(in, 64<<10)
	packing, err := flow.Sniff(br)
	if err != nil {
		return flow.Coded(sbxerr.ImageFormat, op, err)
	}
	if want != anyPacking && want != packing {
		return sbxerr.New(sbxerr.ImageFormat, op, "the content's compression is %s, its media type says %s", packing, want)
	}
	open := openers[packing]
	if open == nil {
		b.Begin(nil)
		return read(flow.MeteredReader{R: br, B: b})
	}
	d, err := open(br)
	if err != nil {
		return flow.Coded(sbxerr.ImageFormat, op, fmt.Errorf("open %s: %w", packing, err))
	}
	defer d.Close() // frees the decoder; what was wrong with the stream was said by Read
	b.Begin(in)
	if err := read(flow.MeteredReader{R: flow.CodedReader{R: d, Code: sbxerr.ImageFormat, Op: "image." + string(packing)}, B: b}); err != nil {
		return err
	}
	// Decoders refuse what follows their stream, but need not have seen its end,
	// which is where its digest is verified.
	_, err = io.Copy(io.Discard, br)
	return flow.Coded(sbxerr.ImageFormat, op, err)
}
