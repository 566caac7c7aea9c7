package git

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The bounds of a pkt-line: its length, which is in front, is of four hexadecimal digits.
const (
	lengthSize = 4
	maxPacket  = 65520
)

// flush is the pkt-line that ends a list.
const flush = "0000"

// lines reads pkt-lines, and no byte past them. It keeps what it reads, up to a bound.
type lines struct {
	from io.Reader
	most int
	read []byte
}

// next returns the next pkt-line, or nil at the end of a list. It is valid as long as l.
func (l *lines) next() ([]byte, error) {
	head, err := l.take(lengthSize)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(head), 16, 16)
	switch {
	case err != nil:
		return nil, errors.New("a pkt-line does not begin with its length")
	case n == 0:
		return nil, nil
	case n <= lengthSize || n > maxPacket: // those below it are of other messages
		return nil, fmt.Errorf("a pkt-line has the length %d", n)
	}
	return l.take(int(n) - lengthSize)
}

func (l *lines) take(n int) ([]byte, error) {
	at := len(l.read)
	if at+n > l.most {
		return nil, fmt.Errorf("its list of refs is longer than %d bytes", l.most)
	}
	l.read = append(l.read, make([]byte, n)...)
	got, err := io.ReadFull(l.from, l.read[at:])
	if err != nil {
		l.read = l.read[:at+got]
		return nil, fmt.Errorf("its list of refs breaks off: %w", err)
	}
	return l.read[at:], nil
}

// pkt writes a pkt-line.
func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+lengthSize, text) }
