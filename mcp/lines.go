package mcp

import (
	"bytes"
	"errors"
)

// errEnough ends a transfer of which all that is needed has come.
var errEnough = errors.New("enough of the file was read")

// lineReader takes the lines of a file from the first on, as many as limit says or fit.
type lineReader struct {
	first, limit int
	line         int // lines of the file that were passed before content
	passed       int
	partial      bool
	content      []byte
	more, full   bool
}

// Write implements io.Writer. It fails once it has enough.
func (l *lineReader) Write(p []byte) (int, error) {
	n := len(p)
	for l.passed < l.first-1 && len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.partial = true
			return n, nil
		}
		l.passed, l.partial, p = l.passed+1, false, p[i+1:]
	}
	if len(p) == 0 {
		return n, nil
	}
	l.line = l.first
	l.content = append(l.content, p...)
	if end := l.end(); end < len(l.content) {
		l.content, l.more, l.full = l.content[:end], true, true
		return 0, errEnough
	}
	return n, nil
}

// end is where the content ends that is returned: at a line, but for a line that is
// longer than all that is returned.
func (l *lineReader) end() int {
	end := len(l.content)
	if l.limit > 0 {
		at := 0
		for range l.limit {
			i := bytes.IndexByte(l.content[at:], '\n')
			if i < 0 {
				at = end
				break
			}
			at += i + 1
		}
		end = at
	}
	if end > maxRead {
		end = maxRead
		if i := bytes.LastIndexByte(l.content[:end], '\n'); i >= 0 {
			end = i + 1
		}
	}
	return end
}

func (l *lineReader) lines() int {
	n := bytes.Count(l.content, []byte{'\n'})
	if len(l.content) > 0 && l.content[len(l.content)-1] != '\n' {
		n++
	}
	return n
}

// seen is how many lines the file has, of one that ends before the first.
func (l *lineReader) seen() int {
	if l.partial {
		return l.passed + 1
	}
	return l.passed
}

// bounded refuses a file that is too large.
type bounded struct {
	b    *bytes.Buffer
	most int
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > w.most {
		return 0, refused("the file has more than %d bytes: edit it with a command", w.most)
	}
	return w.b.Write(p)
}
