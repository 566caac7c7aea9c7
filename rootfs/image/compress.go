package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// compression is how a stream is packed.
type compression string

const (
	plain      compression = "none"
	gzipped    compression = "gzip"
	zstandard  compression = "zstd"
	anyPacking compression = ""
)

// maxWindow bounds what one zstd frame may make the decoder allocate. Builders of
// images use no larger one; the zstd command does with --ultra or --long.
const maxWindow = 32 << 20

// format is a compression that is known by the first bytes of its streams.
type format struct {
	name  compression
	magic string
	open  func(io.Reader) (io.ReadCloser, error) // nil: known by name only, to refuse it by name
}

var formats = []format{
	{gzipped, "\x1f\x8b", openGzip},
	{zstandard, "\x28\xb5\x2f\xfd", openZstd},
	{"xz", "\xfd7zXZ\x00", nil},
	{"bzip2", "BZh", nil},
	{"lz4", "\x04\x22\x4d\x18", nil},
	{"lzma", "\x5d\x00\x00", nil},
	{"lzip", "LZIP", nil},
	{"compress", "\x1f\x9d", nil},
	{"zip", "PK\x03\x04", nil},
	{"7z", "7z\xbc\xaf\x27\x1c", nil},
}

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
func expand(r io.Reader, want compression, b *budget, read func(io.Reader) error) error {
	const op = "image.expand"
	in := &counter{r: r}
	br := bufio.NewReaderSize(in, 64<<10)
	f, err := sniff(br)
	if err != nil {
		return coded(sbxerr.ImageFormat, op, err)
	}
	if want != anyPacking && want != f.name {
		return sbxerr.New(sbxerr.ImageFormat, op, "the content's compression is %s, its media type says %s", f.name, want)
	}
	if f.open == nil {
		b.begin(nil)
		return read(meteredReader{br, b})
	}
	d, err := f.open(br)
	if err != nil {
		return coded(sbxerr.ImageFormat, op, fmt.Errorf("open %s: %w", f.name, err))
	}
	defer d.Close() // frees the decoder; what was wrong with the stream was said by Read
	b.begin(in)
	if err := read(meteredReader{codedReader{d, sbxerr.ImageFormat, "image." + string(f.name)}, b}); err != nil {
		return err
	}
	// Decoders refuse what follows their stream, but need not have seen its end,
	// which is where its digest is verified.
	_, err = io.Copy(io.Discard, br)
	return coded(sbxerr.ImageFormat, op, err)
}

// sniff finds the format of what br holds. A format that cannot be read is an
// error that names it; what has no known magic is not packed.
func sniff(br *bufio.Reader) (format, error) {
	head, err := br.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return format{}, err
	}
	for _, f := range formats {
		if !bytes.HasPrefix(head, []byte(f.magic)) {
			continue
		}
		if f.open == nil {
			return format{}, fmt.Errorf("the compression %s is not supported: use gzip, zstd or none", f.name)
		}
		return f, nil
	}
	return format{name: plain}, nil
}
