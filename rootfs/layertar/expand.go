package layertar

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// maxWindow bounds what a packed stream may make its decoder allocate.
const maxWindow = 64 << 20

// errPacking is a stream that does not begin as its magic says.
var errPacking = errors.New("the stream is damaged")

// packings are known by the first bytes of their streams, as tar(1) knows them.
var packings = []struct {
	magic string
	open  func(io.Reader) (io.ReadCloser, error)
}{
	{"\x1f\x8b", func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{"BZh", func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(bzip2.NewReader(r)), nil }},
	{"\xfd7zXZ\x00", func(r io.Reader) (io.ReadCloser, error) {
		x, err := xz.NewReader(r, maxWindow)
		return io.NopCloser(x), err
	}},
	{"\x28\xb5\x2f\xfd", func(r io.Reader) (io.ReadCloser, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}},
}

// expand reads what r holds, unpacked if it is packed.
func expand(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, p := range packings {
		if !bytes.HasPrefix(head, []byte(p.magic)) {
			continue
		}
		stream, err := p.open(br)
		if err != nil {
			return nil, errors.Join(errPacking, err)
		}
		return stream, nil
	}
	return io.NopCloser(br), nil
}
