package cli

import (
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Shown returns the writer for bytes that come from a sandbox. On a terminal, control
// characters are shown escaped: an escape sequence could retitle the window, move the
// cursor over earlier lines or make the terminal type an answer, and a bidirectional
// control could reorder the text (CVE-2021-42574). Pipes and files get the bytes as they
// are, and so does a terminal with --raw.
func (a *App) Shown(w io.Writer) io.Writer {
	if !a.raw && OnTerminal(w) {
		return &screen{w: w}
	}
	return w
}

func OnTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && IsTerminal(f)
}

// RawFlag gives cmd --raw.
func (a *App) RawFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.raw, "raw", false, "print control characters of the output unescaped")
}

// screen escapes control characters. The escapes are valid inside JSON strings for
// every character that encoding/json leaves as it is.
type screen struct {
	w   io.Writer
	cut []byte // the character that the last write ended in; its bytes are written already
}

// Write implements io.Writer. Every byte that needs no escape is written at once.
func (s *screen) Write(p []byte) (int, error) {
	data, written := append(s.cut, p...), len(s.cut)
	var out []byte
	for len(data) > 0 && (utf8.FullRune(data) || !utf8.RuneStart(data[0])) {
		r, size := utf8.DecodeRune(data)
		out = appendShown(out, r, data[:size], written)
		data, written = data[size:], max(0, written-size)
	}
	if written < len(data) {
		out = append(out, data[written:]...)
	}
	s.cut = append([]byte(nil), data...)
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// appendShown appends the character r of these bytes to out. The first written bytes
// have left already: a control whose first bytes have left is broken by escaping the rest.
func appendShown(out []byte, r rune, bytes []byte, written int) []byte {
	rest := bytes[min(written, len(bytes)):]
	switch {
	case !isControl(r):
		return append(out, rest...)
	case len(rest) == len(bytes) && len(bytes) > 1:
		return fmt.Appendf(out, `\u%04x`, r)
	}
	for _, b := range rest {
		out = fmt.Appendf(out, `\x%02x`, b)
	}
	return out
}

// isControl tells characters that may make a terminal act, or reorder text.
func isControl(r rune) bool {
	return r != '\n' && r != '\r' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}
