package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/config"
)

// What is shown of a source holds no argument of a command, and no text that is no reference.
func TestShownSources(t *testing.T) {
	c := config.Config{
		Secrets: map[string]string{"a": "file:/k", "b": "command:/bin/pass show word", "c": "env:KEY", "d": "credential:models", "e": "a-value"},
		Profiles: map[string]config.Profile{
			"x": {Routes: map[string]config.Route{"two": {Credential: "a"}, "one": {Credential: "a"}, "none": {}}},
			"b": {Routes: map[string]config.Route{"one": {Credential: "a"}, "other": {Credential: "b"}}},
		},
	}
	want := map[string]string{"a": "file:/k", "b": "command:/bin/pass", "c": "env:KEY", "d": "credential:models"}
	sources := c.SecretSources()
	if len(sources) != len(want) {
		t.Errorf("%v", sources)
	}
	for name, source := range sources {
		if got := shownSource(source); got != want[name] {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := routesWith(c, "a"); !slices.Equal(got, []string{"b/one", "x/one", "x/two"}) {
		t.Errorf("%q", got)
	}
	if got := routesWith(c, "d"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// The last run of a command counts, also if its value is kept.
func TestFailureOfSecretCommand(t *testing.T) {
	const line = "/nonexistent/program word"
	p := commandSecrets{timeout: commandTimeout, failed: map[string]error{"/before": errors.New("no")}}
	c := config.Config{Secrets: map[string]string{"key": "command:" + line, "twin": "command:" + line}}
	if err := p.run(t.Context(), c); err == nil || p.failure(line) == nil || p.failure("/before") != nil {
		t.Errorf("%v, %v, %v", err, p.failure(line), p.failure("/before"))
	}
}
