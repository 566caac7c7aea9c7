package flow

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Packing is how a stream is compressed.
type Packing string

// The packings that are read.
const (
	Plain Packing = "none"
	Gzip  Packing = "gzip"
	Zstd  Packing = "zstd"
)

// packings are known by the first bytes of their streams: those that are read, and others to
// refuse them by name.
var packings = []struct {
	name  Packing
	magic string
	read  bool
}{
	{Gzip, "\x1f\x8b", true},
	{Zstd, "\x28\xb5\x2f\xfd", true},
	{"xz", "\xfd7zXZ\x00", false},
	{"bzip2", "BZh", false},
	{"lz4", "\x04\x22\x4d\x18", false},
	{"lzma", "\x5d\x00\x00", false},
	{"lzip", "LZIP", false},
	{"compress", "\x1f\x9d", false},
	{"zip", "PK\x03\x04", false},
	{"7z", "7z\xbc\xaf\x27\x1c", false},
}

// Sniff finds the packing of what br holds. One that cannot be read is an error that names it;
// what has no known magic is not packed.
func Sniff(br *bufio.Reader) (Packing, error) {
	head, err := br.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, p := range packings {
		if !bytes.HasPrefix(head, []byte(p.magic)) {
			continue
		}
		if !p.read {
			return "", fmt.Errorf("the compression %s is not supported: use gzip, zstd or none", p.name)
		}
		return p.name, nil
	}
	return Plain, nil
}
