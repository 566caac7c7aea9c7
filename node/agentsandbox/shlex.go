package agentsandbox

import (
	"errors"
	"strings"
)

// The errors of split, as Python has them.
var (
	errQuotation = errors.New("no closing quotation")
	errEscaped   = errors.New("no escaped character")
)

// split cuts a line into words as Python's shlex.split does: quotes as in a POSIX shell, and no
// comments, variables or patterns.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\r', '\n':
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case '\\':
			if i++; i == len(line) {
				return nil, errEscaped
			}
			word.WriteByte(line[i])
			begun = true
		case '\'', '"':
			n, err := quoted(&word, line[i+1:], c)
			if err != nil {
				return nil, err
			}
			i += n
			begun = true
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted adds what stands before the closing quote to word, and returns the length with that quote.
func quoted(word *strings.Builder, rest string, quote byte) (int, error) {
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == quote:
			return i + 1, nil
		case c == '\\' && quote == '"':
			if i++; i == len(rest) {
				return 0, errEscaped
			}
			if rest[i] != '"' && rest[i] != '\\' { // of others the backslash stays
				word.WriteByte('\\')
			}
			word.WriteByte(rest[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, errQuotation
}
