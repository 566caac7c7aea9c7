package localtree

import (
	"bytes"
	"io"
	"os"
)

// block is the smallest hole that is kept: a block of most file systems.
const block = 4096

var zeros [block]byte

// copySparse copies r to f, which is empty, and leaves holes for blocks of zeros. An
// archive says nothing of holes: without this, a file of 3 GiB that takes no space
// would take 3 GiB here.
func copySparse(f *os.File, r io.Reader) (int64, error) {
	buf := make([]byte, 64*block)
	size := int64(0)
	for {
		n, err := io.ReadFull(r, buf)
		if writeErr := writeBlocks(f, buf[:n], size); writeErr != nil {
			return size, writeErr
		}
		size += int64(n)
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return size, f.Truncate(size) // the end may be a hole
		default:
			return size, err
		}
	}
}

// writeBlocks writes b at the offset at, but for whole blocks of zeros. Blocks with data
// that follow each other are written at once.
func writeBlocks(f *os.File, b []byte, at int64) error {
	for len(b) > 0 {
		n := run(b, false)
		if _, err := f.WriteAt(b[:n], at); n > 0 && err != nil {
			return err
		}
		n += run(b[n:], true)
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// run is how much of b begins with blocks that are zeros, or that are not. What is less
// than a block is no hole.
func run(b []byte, zero bool) int {
	n := 0
	for n < len(b) {
		next := b[n:min(n+block, len(b))]
		if bytes.Equal(next, zeros[:]) != zero {
			break
		}
		n += len(next)
	}
	return n
}
