package unified

import (
	"fmt"
	"strings"
)

// quoted is a name in a header, as git quotes it with core.quotePath. A space before a slash git
// does not quote, but git apply does not find where such a name ends.
func quoted(name string) string {
	if !strings.ContainsFunc(name, needsQuote) && !strings.Contains(name, " /") {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.Write([]byte{'\\', c})
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func needsQuote(r rune) bool { return r < ' ' || r >= 0x7f || r == '"' || r == '\\' }

// ended is a name at the end of a line that may have more after a tab: a space does not end it.
func ended(name string) string {
	if strings.Contains(name, " ") {
		return name + "\t"
	}
	return name
}
