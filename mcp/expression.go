package mcp

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// expression translates a pattern of RE2 to the same one for grep -E, which takes POSIX
// extended expressions and the GNU \b: it would read \d as the letter d. A search is by
// line, so that greed makes no difference. ripgrep takes the first form. A grep without
// UTF-8, such as that of busybox, takes a dot for one byte.
//
// https://pubs.opengroup.org/onlinepubs/9699919799/basedefs/V1_chap09.html
func expression(pattern string) (re2, extended string, err error) {
	re, err := syntax.Parse(pattern, syntax.Perl&^syntax.OneLine)
	if err != nil {
		return "", "", err
	}
	extended, err = posix(re)
	return re.String(), extended, err
}

var fixed = map[syntax.Op]string{
	syntax.OpEmptyMatch: "()", syntax.OpAnyCharNotNL: ".", syntax.OpAnyChar: ".", syntax.OpBeginLine: "^", syntax.OpEndLine: "$",
	syntax.OpWordBoundary: `\b`, syntax.OpNoWordBoundary: `\B`,
}

func posix(re *syntax.Regexp) (string, error) {
	switch re.Op {
	case syntax.OpLiteral:
		return literal(re)
	case syntax.OpCharClass:
		return bracket(re.Rune)
	case syntax.OpCapture:
		return group(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		sub, err := group(re.Sub[0])
		times, ok := map[syntax.Op]string{syntax.OpStar: "*", syntax.OpPlus: "+", syntax.OpQuest: "?"}[re.Op]
		if !ok {
			times = repeat(re.Min, re.Max)
		}
		if max(re.Min, re.Max) > 255 {
			err = errors.New("a repetition of more than 255 times")
		}
		return sub + times, err
	case syntax.OpConcat, syntax.OpAlternate:
		var parts []string
		for _, sub := range re.Sub {
			part, err := posix(sub)
			if sub.Op == syntax.OpAlternate {
				part = "(" + part + ")"
			}
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, map[syntax.Op]string{syntax.OpAlternate: "|"}[re.Op]), nil
	}
	if text, ok := fixed[re.Op]; ok {
		return text, nil
	}
	return "", fmt.Errorf("%s has no counterpart in a search by line", re)
}

func group(re *syntax.Regexp) (string, error) {
	s, err := posix(re)
	return "(" + s + ")", err
}

func repeat(least, most int) string {
	switch most {
	case least:
		return fmt.Sprintf("{%d}", least)
	case -1:
		return fmt.Sprintf("{%d,}", least)
	}
	return fmt.Sprintf("{%d,%d}", least, most)
}

func literal(re *syntax.Regexp) (string, error) {
	var b strings.Builder
	for _, r := range re.Rune {
		upper, lower := unicode.ToUpper(r), unicode.ToLower(r)
		switch {
		case r == '\n' || r == 0:
			return "", errors.New("a line end or a zero byte, in a search by line")
		case re.Flags&syntax.FoldCase != 0 && upper != lower:
			fmt.Fprintf(&b, "(%c|%c)", upper, lower)
		case strings.ContainsRune(`\.[]{}()*+?^$|`, r):
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), nil
}

// mostListed is how many characters outside ASCII a class may have: they are listed, as
// ranges of them depend on the locale of grep.
const mostListed = 100

// bracket is a class of characters, or of all others.
func bracket(ranges []rune) (string, error) {
	in := func(r rune) bool {
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i] <= r && r <= ranges[i+1] {
				return true
			}
		}
		return false
	}
	others := len(ranges) > 0 && ranges[len(ranges)-1] == unicode.MaxRune
	var listed strings.Builder
	for i, n := 0, 0; i < len(ranges); i += 2 {
		lo, hi := max(ranges[i], 0x80), ranges[i+1]
		if n += max(0, int(hi-lo)+1); others && lo > 0x80 || !others && n > mostListed {
			return "", fmt.Errorf("a class with more than %d characters outside ASCII, or of all but such", mostListed)
		}
		for r := lo; !others && r <= hi; r++ {
			fmt.Fprintf(&listed, "|%c", r)
		}
	}
	set := members(func(r rune) bool { return in(r) != others })
	switch {
	case others && set == "":
		return ".", nil
	case others:
		return "[^" + strings.TrimPrefix(set, `\`) + "]", nil
	case set == "":
		return "(" + strings.TrimPrefix(listed.String(), "|") + ")", nil
	case set != `\^`:
		set = "[" + set + "]"
	}
	if listed.Len() > 0 {
		return "(" + set + listed.String() + ")", nil
	}
	return set, nil
}

// members lists the ASCII characters of a class where none has a special sense: ] comes
// first, then ^ and - last. One ^ alone can stand in no brackets.
func members(has func(rune) bool) string {
	var b strings.Builder
	for r := rune(1); r < 0x80; r++ {
		if r != '\n' && r != ']' && r != '^' && r != '-' && has(r) {
			b.WriteRune(r)
		}
	}
	set := b.String()
	if has(']') {
		set = "]" + set
	}
	switch {
	case has('^') && has('-') && set == "":
		return "-^"
	case has('^') && has('-'):
		return set + "^-"
	case has('^') && set == "":
		return `\^`
	case has('^'):
		return set + "^"
	case has('-'):
		return set + "-"
	}
	return set
}
