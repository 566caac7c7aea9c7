// Package contexts keeps the names that a user gave to daemons.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Lookup looks up a variable of the environment.
type Lookup func(name string) (string, bool)

// Context is a daemon that has a name. Keys and certificates stay in files of their own.
type Context struct {
	Host    string `json:"host"`
	CA      string `json:"tls_ca,omitempty"`
	Cert    string `json:"tls_cert,omitempty"`
	CertKey string `json:"tls_key,omitempty"`
	KeyFile string `json:"key_file,omitempty"`
}

// List is all contexts of a user.
type List struct {
	Current  string             `json:"current,omitempty"` // empty: that of the socket
	Contexts map[string]Context `json:"contexts"`
}

// Default is that of the socket. It is always there.
const Default = "default"

var contextName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`) })

// contextsFile is below the configuration of the user (XDG Base Directory Specification).
func fileOf(lookup Lookup) (string, error) {
	dir, _ := lookup("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home, _ := lookup("HOME")
		if !filepath.IsAbs(home) {
			return "", fs.ErrNotExist
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "caisson", "contexts.json"), nil
}

// Read returns the contexts of the user. One without a home has none.
func Read(lookup Lookup) (List, error) {
	all := List{Contexts: map[string]Context{}}
	file, err := fileOf(lookup)
	if err != nil {
		return all, nil
	}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err == nil:
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return all, sbxerr.WithRemedy(sbxerr.ClientIO, "caisson.context", fmt.Errorf("the contexts in %s: %w", file, err), "mend the file, or move it away and make its contexts again")
	}
	if all.Contexts == nil {
		all.Contexts = map[string]Context{}
	}
	return all, nil
}

// Write replaces the contexts of the user.
func Write(lookup Lookup, all List) error {
	const op = "caisson.context"
	file, err := fileOf(lookup)
	if err != nil {
		return sbxerr.WithRemedy(sbxerr.ClientIO, op, errors.New("there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set"), "set HOME, or give --host with each call")
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, op, err)
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".contexts-") // of mode 0600
	if err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, op, err)
	}
	_, err = next.Write(append(data, '\n'))
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next.Name()))
	}
	return sbxerr.Wrap(sbxerr.ClientIO, op, err)
}

// Find returns the context with a name.
func Find(lookup Lookup, name string) (Context, error) {
	all, err := Read(lookup)
	if err != nil {
		return Context{}, err
	}
	c, ok := all.Contexts[name]
	if !ok {
		return Context{}, Absent(name, all)
	}
	return c, nil
}

// Absent is the refusal of a name.
func Absent(name string, all List) error {
	err := fmt.Errorf("there is no context %q", sbxerr.Clip(name))
	if near := sbxerr.Nearest(name, slices.Sorted(maps.Keys(all.Contexts))); near != "" {
		err = fmt.Errorf("%w, did you mean %q?", err, near)
	}
	return sbxerr.Wrap(sbxerr.NoContext, "caisson.context", err)
}

// Current is the context in use; nil for that of the socket.
func Current(lookup Lookup) (*Context, error) {
	all, err := Read(lookup)
	if err != nil || all.Current == "" || all.Current == Default {
		return nil, err
	}
	c, ok := all.Contexts[all.Current]
	if !ok {
		return nil, Absent(all.Current, all)
	}
	return &c, nil
}

// CheckName refuses a name that a context cannot have.
func CheckName(name string) error {
	if !contextName().MatchString(name) || name == Default {
		return sbxerr.New(sbxerr.APIUsage, "caisson.context", "%q is no name for a context: give letters, digits, and . _ - between them; default is that of the socket", name)
	}
	return nil
}

// Complete offers the contexts of the user to a shell.
func Complete(lookup Lookup) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		all, err := Read(lookup)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return append(slices.Sorted(maps.Keys(all.Contexts)), Default), cobra.ShellCompDirectiveNoFileComp
	}
}
