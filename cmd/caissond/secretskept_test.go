package main

import (
	"maps"
	"os"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
)

// The file of references is read as it was written, and one that is broken is said to be.
func TestKeptSecrets(t *testing.T) {
	root := t.TempDir()
	if got, err := readKept(root); err != nil || len(got) != 0 {
		t.Errorf("without a file: %v, %v", got, err)
	}
	want := map[string]keptSecret{"a": {Source: "file:/k", Refresh: config.Duration(time.Minute)}, "b": {Source: "command:/bin/pass show b"}, "gone": {Source: "env:KEY"}}
	if err := writeKept(root, want); err != nil {
		t.Fatal(err)
	}
	got, err := readKept(root)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	d := &daemon{}
	d.kept.Store(&got)
	if beside := d.keptBeside(config.Config{Secrets: map[string]string{"a": "file:/other"}}); len(beside) != 1 || beside["b"] != (config.SecretSource{Kind: config.SecretCommand, From: "/bin/pass show b"}) {
		t.Errorf("beside the configuration: %v", beside)
	}
	if err := os.WriteFile(keptFile(root), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKept(root); sbxerr.Of(err) != sbxerr.StateDir || sbxerr.RemedyOf(err) == "" {
		t.Errorf("a broken file: %v", err)
	}
}

// A value that is printed replaces the one before, a run that fails does not.
func TestReplacePrinted(t *testing.T) {
	p := commandSecrets{}
	file := func(text string) *os.File {
		f, err := hide(string([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	printed := func() string {
		f, err := p.open("x")
		if err != nil {
			return err.Error()
		}
		defer f.Close()
		b := make([]byte, 64)
		n, _ := f.ReadAt(b, 0)
		return string(b[:n])
	}
	p.replace("x", file("the-first-value"), nil)
	p.replace("x", nil, os.ErrDeadlineExceeded)
	if got := printed(); got != "the-first-value" || p.failure("x") == nil {
		t.Errorf("after a failure: %q, %v", got, p.failure("x"))
	}
	p.replace("x", file("the-second-value"), nil)
	if got := printed(); got != "the-second-value" || p.failure("x") != nil {
		t.Errorf("after another value: %q, %v", got, p.failure("x"))
	}
	p.forget(func(line string) bool { return line == "x" })
	if got := printed(); got != `command "x" has not run` {
		t.Errorf("forgotten: %q", got)
	}
}
