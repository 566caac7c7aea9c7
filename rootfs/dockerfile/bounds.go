package dockerfile

import (
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/command"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Bounds of a Dockerfile. Those of values are below what execve(2) takes: more could never
// run.
const (
	maxBytes        = 1 << 20
	maxInstructions = 512       // with those that ONBUILD of its images adds
	maxWord         = 64 << 10  // bytes of a word whose variables were replaced
	maxEnv          = 256 << 10 // bytes of the variables of a stage, and of its labels
	maxNames        = 1024      // variables of a stage, and labels
	maxExpanded     = 4 << 20   // bytes that variables add to a file
	maxSources      = 512       // of COPY or ADD
	maxDepth        = 8         // ${ inside of ${
	maxReplacing    = 1 << 10   // bytes of a word with ${NAME/OLD/NEW}, and of its variables
	maxArgument     = 128<<10 - 1
)

// checkDepth bounds the nesting of variables before anything reads them. Commands are left
// to their shells.
func checkDepth(node *parser.Node) error {
	texts := node.Flags
	if !slices.Contains([]string{command.Run, command.Cmd, command.Entrypoint, command.Healthcheck}, strings.ToLower(node.Value)) {
		texts = append(slices.Clone(texts), node.Original)
		for _, h := range node.Heredocs {
			texts = append(texts, h.Content)
		}
	}
	for _, text := range texts {
		if isDeep(text) {
			return lineError(node.StartLine, "variables are nested more than %d deep", maxDepth)
		}
	}
	return nil
}

func isDeep(text string) bool {
	depth := 0
	for n := 0; n < len(text) && depth <= maxDepth; n++ {
		switch {
		case strings.HasPrefix(text[n:], "${"):
			depth++
		case text[n] == '}' && depth > 0:
			depth--
		}
	}
	return depth > maxDepth
}

// replaces reports whether a word replaces text in a variable: ${NAME/OLD/NEW}. What comes
// out may be as long as one times the other.
func replaces(word string) (once, nested bool) {
	var open []bool // of each ${ that is open: it replaces
	for n := 0; n < len(word); n++ {
		switch {
		case strings.HasPrefix(word[n:], "${"):
			end := n + 2
			for end < len(word) && isNameByte(word[end]) {
				end++
			}
			slash := end < len(word) && word[end] == '/'
			for _, outer := range open {
				nested = nested || outer && slash
			}
			once = once || slash
			open = append(open, slash)
		case word[n] == '}' && len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	return once, nested
}

func isNameByte(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// values are the variables that a word may name. They count what they give.
type values struct {
	find func(name string) (string, bool)
	left int
	over bool
}

// Get implements shell.EnvGetter.
func (v *values) Get(name string) (string, bool) {
	value, ok := v.find(name)
	if v.left -= len(value); v.left < 0 {
		v.over = true
		return "", ok
	}
	return value, ok
}

// Keys implements shell.EnvGetter. They only serve suggestions.
func (v *values) Keys() []string { return nil }

// expand replaces the variables of a word.
func (p *planner) expand(line int, word string) (string, error) {
	find := p.find
	if len(p.plan.Stages) == 0 || p.inFrom {
		find = func(name string) (string, bool) {
			value, ok := p.global[name]
			return value, ok
		}
	}
	most := maxWord
	once, nested := replaces(word)
	if once {
		most = maxReplacing
	}
	v := values{find: find, left: min(most, p.budget)}
	before := v.left
	if nested || once && len(word) > maxReplacing {
		return "", lineError(line, "%s replaces text in a replacement, or in more than %d bytes: use a variable of its own", sbxerr.Clip(word), maxReplacing)
	}
	out, _, err := p.lex.ProcessWord(word, &v)
	p.budget -= before - max(v.left, 0)
	switch {
	case v.over, err == nil && len(out) > max(maxWord, len(word)):
		return "", lineError(line, "with its variables, %s becomes longer than %d bytes, or the file than %d", sbxerr.Clip(word), most, maxExpanded)
	case err != nil:
		return "", lineError(line, "%s", sbxerr.Clip(err.Error()))
	}
	return out, nil
}
