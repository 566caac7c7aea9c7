package dockerfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func (p *planner) expandInto(to *string, i instruction, word string) (err error) {
	*to, err = p.expand(i, word)
	return err
}

// expand replaces the variables of a word, as the stage has them.
func (p *planner) expand(i instruction, word string) (string, error) {
	if len(p.plan.Stages) == 0 {
		return p.expandWith(i, word, p.global)
	}
	values := maps.Clone(p.args)
	for _, kv := range p.stage().Config.Env {
		name, value, _ := strings.Cut(kv, "=")
		values[name] = value
	}
	return p.expandWith(i, word, values)
}

func (p *planner) expandWith(i instruction, word string, values map[string]string) (string, error) {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	out, _, err := p.lex.ProcessWord(word, shell.EnvsFromSlice(env))
	if err != nil {
		return "", lineError(i.line, "%s", sbxerr.Clip(err.Error()))
	}
	return out, nil
}
