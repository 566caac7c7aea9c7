package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// lines are some of a file's.
type lines struct {
	content []byte
	seen    int  // the last line of the file that was read
	more    bool // the file goes on
}

// readLines reads a file from the line first on: as many lines as limit says, or as fit.
func (s *Server) readLines(ctx context.Context, ref, name string, first, limit int) (lines, *caissonv1.FileInfo, error) {
	r, w := io.Pipe()
	read := make(chan *caissonv1.FileInfo, 1)
	go func() {
		info, err := s.client.ReadFile(ctx, &caissonv1.ReadFileRequest{Ref: ref, Path: name}, w)
		_ = w.CloseWithError(err) // never fails
		read <- info
	}()
	l, err := takeLines(bufio.NewReaderSize(r, 64<<10), first, limit)
	_ = r.Close() // never fails
	info := <-read
	if info == nil && err == nil { // the rest was not read
		info, err = s.client.Stat(ctx, &caissonv1.StatRequest{Ref: ref, Path: name, Follow: true})
	}
	return l, info, err
}

// takeLines ends at the end of a line, but in a line that is longer than all that fits.
func takeLines(r *bufio.Reader, first, limit int) (l lines, err error) {
	for line := 1; ; {
		part, err := r.ReadSlice('\n')
		if len(part) > 0 {
			l.seen = line
		}
		switch fits := len(l.content)+len(part) <= maxRead && (limit == 0 || line < first+limit); {
		case line < first || len(part) == 0:
		case fits:
			l.content = append(l.content, part...)
		default:
			l.more = true
			if i := bytes.LastIndexByte(l.content, '\n'); i >= 0 {
				l.content = l.content[:i+1]
			} else {
				l.content = append(l.content, part[:maxRead-len(l.content)]...)
			}
			return l, nil
		}
		switch {
		case err == nil:
			line++
		case errors.Is(err, io.EOF):
			return l, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return l, err
		}
	}
}

// count is how many lines the content has; the last may have no end.
func (l lines) count() int {
	n := bytes.Count(l.content, []byte{'\n'})
	if len(l.content) > 0 && l.content[len(l.content)-1] != '\n' {
		n++
	}
	return n
}
