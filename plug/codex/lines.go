package codex

import (
	"bufio"
	"errors"
	"io"
	"sync"
)

// lines carries a message in a line.
type lines struct {
	in  *bufio.Scanner
	end func()

	mu sync.Mutex
	w  io.Writer
}

func newLines(r io.Reader, w io.Writer, end func()) *lines {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxMessage)
	return &lines{in: in, w: w, end: end}
}

func (l *lines) read() ([]byte, error) {
	for l.in.Scan() {
		if len(l.in.Bytes()) > 0 {
			return l.in.Bytes(), nil
		}
	}
	switch err := l.in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, refuse(codeRequest, "a message is longer than %d bytes", maxMessage)
	case err != nil:
		return nil, err
	}
	return nil, io.EOF
}

func (l *lines) write(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(append(message, '\n'))
	return err
}

// confirm has nothing to wait for: Codex never comes back to a pipe.
func (l *lines) confirm() error { return nil }

func (l *lines) close() { l.end() }
