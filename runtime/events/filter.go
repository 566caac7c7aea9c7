package events

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Filter chooses events. The zero Filter takes all.
type Filter map[string][]string

// keys are what a filter compares, by the name of the key.
var keys = map[string]func(*Event) []string{
	"type":    func(e *Event) []string { return []string{string(e.Type)} },
	"sandbox": func(e *Event) []string { return []string{e.Data.SandboxID, e.Data.Name} },
	"exec":    func(e *Event) []string { return []string{e.Data.ExecID} },
	"session": func(e *Event) []string { return []string{e.Data.Session} },
	"task":    func(e *Event) []string { return []string{e.Data.Task} },
	"image":   func(e *Event) []string { return []string{e.Data.Image} },
	"caller":  func(e *Event) []string { return []string{e.Data.Caller} },
	"code":    func(e *Event) []string { return []string{string(e.Data.Code)} },
	"verdict": func(e *Event) []string { return []string{e.Data.Verdict} },
	"request": func(e *Event) []string { return []string{e.Data.RequestID} },
}

// maxTerms bounds the terms of a filter.
const maxTerms = 64

// ParseFilter reads terms of the form KEY=VALUE. Several values of one key are
// alternatives; all keys must match. * stands for any text in the value of type.
func ParseFilter(terms []string) (Filter, error) {
	f := Filter{}
	var errs []error
	if len(terms) > maxTerms {
		errs = append(errs, fmt.Errorf("%d terms, at most %d", len(terms), maxTerms))
		terms = nil
	}
	for _, term := range terms {
		key, value, found := strings.Cut(term, "=")
		switch _, known := keys[key]; {
		case !found || value == "":
			errs = append(errs, fmt.Errorf("%q is not KEY=VALUE", sbxerr.Clip(term)))
		case !known:
			errs = append(errs, unknownKey(key))
		case key == "type":
			errs = append(errs, checkType(value))
		}
		f[key] = append(f[key], value)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.EventsFilter, "events.filter", err,
			"give KEY=VALUE, where KEY is one of "+strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
	}
	return f, nil
}

func unknownKey(key string) error {
	if near := sbxerr.Nearest(key, slices.Sorted(maps.Keys(keys))); near != "" {
		return fmt.Errorf("there is no key %q, did you mean %q?", sbxerr.Clip(key), near)
	}
	return fmt.Errorf("there is no key %q", sbxerr.Clip(key))
}

// checkType refuses a pattern that no type matches: it would show nothing for ever.
func checkType(pattern string) error {
	for _, t := range Types() {
		if matches(pattern, string(t)) {
			return nil
		}
	}
	return fmt.Errorf("no event has the type %q", sbxerr.Clip(pattern))
}

// matches reports whether the type is that of the pattern, with or without the prefix of
// the wire.
func matches(pattern, t string) bool {
	found, err := path.Match(strings.TrimPrefix(pattern, Prefix), t)
	return found && err == nil
}

// Takes reports whether e is one of those that f chooses.
func (f Filter) Takes(e *Event) bool {
	for key, values := range f {
		have := keys[key](e)
		if !slices.ContainsFunc(values, func(want string) bool {
			return slices.ContainsFunc(have, func(is string) bool { return is == want || key == "type" && matches(want, is) })
		}) {
			return false
		}
	}
	return true
}
