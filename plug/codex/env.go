package codex

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// envPolicy says which variables a command keeps. Codex has the same settings under
// shell_environment_policy.
type envPolicy struct {
	Inherit               string // all, core or none
	IgnoreDefaultExcludes bool
	Exclude               []string // patterns of names
	Set                   map[string]string
	IncludeOnly           []string // patterns; none: all
}

var (
	core           = []string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"}
	defaultExclude = []string{"*KEY*", "*SECRET*", "*TOKEN*"}
)

// apply returns the variables that are set beside those of the sandbox, and those of the
// sandbox that are not kept. A nil policy keeps none.
func (p *envPolicy) apply(sandbox []string, env map[string]string) (set map[string]string, unset []string, err error) {
	if p == nil {
		p = &envPolicy{Inherit: "none"}
	}
	var inherited func(string) bool
	switch p.Inherit {
	case "all":
		inherited = func(string) bool { return true }
	case "core":
		inherited = func(name string) bool { return slices.Contains(core, name) }
	case "none":
		inherited = func(string) bool { return false }
	default:
		return nil, nil, refuse(codeParams, "envPolicy.inherit %.100q is none of all, core, none", p.Inherit)
	}
	exclude := p.Exclude
	if !p.IgnoreDefaultExcludes {
		exclude = append(slices.Clone(exclude), defaultExclude...)
	}
	for _, pattern := range slices.Concat(exclude, p.IncludeOnly) {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, nil, refuse(codeParams, "envPolicy: the pattern %.100q is malformed", pattern)
		}
	}
	included := func(name string) bool { return len(p.IncludeOnly) == 0 || matches(p.IncludeOnly, name) }
	set = map[string]string{}
	for name, value := range p.Set {
		if included(name) {
			set[name] = value
		}
	}
	maps.Copy(set, env)
	for _, name := range sandbox {
		if _, ok := set[name]; !ok && !(inherited(name) && !matches(exclude, name) && included(name)) {
			unset = append(unset, name)
		}
	}
	return set, unset, nil
}

// matches reports whether a name matches one of the patterns, in any case.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(strings.ToUpper(pattern), strings.ToUpper(name)) // apply refuses bad patterns
		return ok
	})
}

// without has a program start without some of the sandbox's variables.
func without(unset, argv []string) ([]string, error) {
	if len(unset) == 0 {
		return argv, nil
	}
	if strings.Contains(argv[0], "=") {
		return nil, refuse(codeParams, "a program with = in its path cannot be started without variables: %.100q", argv[0])
	}
	args := []string{"env"}
	for _, name := range unset {
		args = append(args, "-u", name)
	}
	return append(args, argv...), nil
}
