package git

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of a Scope: the patterns of a list, and the bytes of each.
const (
	maxPatterns = 64
	maxPattern  = 256
)

// Scope is what a route passes on. Patterns are segments between slashes: in a segment * is
// any text, and ** as the last one is one or more segments.
type Scope struct {
	Repositories []string // patterns below the upstream, without .git
	Write        bool     // pushes pass
	Branches     []string `json:",omitempty"` // patterns of branches that a push may update; empty are all
}

// Check refuses a Scope that is not sound.
func (s Scope) Check() error {
	if len(s.Repositories) == 0 {
		return errors.New("repositories names none: give patterns such as acme/tools or acme/*")
	}
	if len(s.Branches) > 0 && !s.Write {
		return errors.New("branches are of pushes, which need access: write")
	}
	if len(s.Repositories) > maxPatterns || len(s.Branches) > maxPatterns {
		return fmt.Errorf("it has more than %d repositories or branches", maxPatterns)
	}
	for _, p := range s.Repositories {
		if err := checkPattern(p); err != nil {
			return fmt.Errorf("repositories: %q %w", clip(p), err)
		}
		if strings.HasSuffix(p, suffix) {
			return fmt.Errorf("repositories: %q ends in %s: write it without, both forms are meant", clip(p), suffix)
		}
	}
	for _, p := range s.Branches {
		if err := checkPattern(p); err != nil {
			return fmt.Errorf("branches: %q %w", clip(p), err)
		}
		if strings.HasPrefix(p, "refs/") {
			return fmt.Errorf("branches: %q is a ref: write the branch alone, such as agent/*", clip(p))
		}
	}
	return nil
}

// String is what passes, on one line.
func (s Scope) String() string {
	text := "fetches of " + strings.Join(s.Repositories, ", ")
	switch {
	case !s.Write:
	case len(s.Branches) == 0:
		text += ", and pushes to all branches"
	default:
		text += ", and pushes to " + strings.Join(s.Branches, ", ")
	}
	return text
}

func checkPattern(p string) error {
	fixed, _ := strings.CutSuffix("/"+p, "/**")
	switch {
	case len(p) > maxPattern:
		return fmt.Errorf("is longer than %d bytes", maxPattern)
	case strings.Contains(fixed, "**"):
		return errors.New("has ** before its end or as a part of a segment")
	case fixed == "":
		return nil
	}
	return checkName(strings.ReplaceAll(fixed[1:], "*", "x"))
}

// checkName refuses what is no name of a repository or branch, or one that servers may read
// in several ways.
func checkName(name string) error {
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return errors.New("is empty, or begins, ends or goes on with a slash too many")
		case strings.HasSuffix(segment, ".lock") || strings.HasSuffix(segment, "."):
			return errors.New("has a segment that ends in a dot or .lock")
		}
	}
	if !utf8.ValidString(name) || strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.ContainsAny(name, `\?*[]~^:`) ||
		strings.ContainsFunc(name, func(c rune) bool { return c == ' ' || unicode.IsControl(c) }) {
		return errors.New(`has a space or control character, .., @{ or one of :\?*[]~^`)
	}
	return nil
}

// matchesAny reports whether one of the patterns matches name.
func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	if fixed, open := strings.CutSuffix(pattern, "**"); open {
		parts := strings.SplitAfterN(name, "/", strings.Count(fixed, "/")+1)
		pattern, name = fixed, strings.Join(parts[:len(parts)-1], "")
	}
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}

// clip is text as it is shown.
func clip(text string) string {
	const most = 100
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
