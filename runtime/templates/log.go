package templates

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/runtime/images"
)

const (
	maxLog   = 256 << 10 // bytes that are kept of what a set-up wrote: the last ones
	maxLines = 5         // of them in the message of a failure
	maxLine  = 200
)

// buildLog is what a set-up wrote.
type buildLog struct {
	text bytes.Buffer
	cut  bool
	last int // where the output of the last step begins
}

func (l *buildLog) add(e images.BuildEvent) {
	if len(e.Output) > 0 {
		l.text.Write(e.Output)
	} else if e.Text != "" {
		cached := ""
		if e.Cached {
			cached = " (cached)"
		}
		if n := l.text.Len(); n > 0 && l.text.Bytes()[n-1] != '\n' {
			l.text.WriteByte('\n')
		}
		fmt.Fprintf(&l.text, "[%d/%d] %s%s\n", e.Step, e.Steps, e.Text, cached)
		l.last = l.text.Len()
	}
	if over := l.text.Len() - maxLog; over > 0 {
		l.text.Next(over)
		l.last, l.cut = max(0, l.last-over), true
	}
}

// String is what is kept.
func (l *buildLog) String() string {
	text := strings.ToValidUTF8(l.text.String(), "�")
	if l.cut {
		return "[the beginning is cut]\n" + text
	}
	return text
}

// tail are the last lines of the step that failed, in one.
func (l *buildLog) tail() string {
	lines := strings.FieldsFunc(strings.ToValidUTF8(string(l.text.Bytes()[l.last:]), "�"), func(r rune) bool { return r == '\n' || r == '\r' })
	lines = lines[max(0, len(lines)-maxLines):]
	for n, line := range lines {
		if runes := []rune(line); len(runes) > maxLine {
			lines[n] = string(runes[:maxLine]) + "…"
		}
	}
	return strings.Join(lines, " | ")
}
