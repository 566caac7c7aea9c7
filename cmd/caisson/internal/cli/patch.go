package cli

import (
	"bytes"

	"github.com/jedib0t/go-pretty/v6/text"
)

// PrintPatch writes a patch to standard output, on a terminal with control characters escaped,
// in colours, unless NO_COLOR or TERM ask for none, and by the pager.
func (a *App) PrintPatch(patch []byte) error {
	if OnTerminal(a.Stdout) {
		return a.page(shownPatch(patch))
	}
	_, err := a.Stdout.Write(patch)
	return OwnOutput(err)
}

// patchColours are those of git, by how a line begins.
var patchColours = map[byte]text.Color{'+': text.FgGreen, '-': text.FgRed, '@': text.FgCyan}

func shownPatch(patch []byte) []byte {
	var b bytes.Buffer
	inHeader := false
	for line := range bytes.Lines(patch) {
		inHeader = bytes.HasPrefix(line, []byte("diff --git ")) || inHeader && line[0] != '@'
		colour, coloured := patchColours[line[0]]
		if inHeader {
			colour, coloured = text.Bold, true
		}
		shown := shownLine(line)
		if coloured {
			shown = colour.Sprint(shown)
		}
		b.WriteString(shown + "\n")
	}
	return b.Bytes()
}

// shownLine is a line with its control characters escaped. A carriage return would let what
// follows cover the line.
func shownLine(line []byte) string {
	var b bytes.Buffer
	_, _ = (&screen{w: &b}).Write(bytes.ReplaceAll(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"), []byte(`\x0d`))) // a buffer never fails
	return b.String()
}
