package pid1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/caisson-run/caisson/initproto"
)

// Command says what to start, and as whom. Nothing is added: Env is all of the
// environment. Limits that Rlimits does not name and the umask are those of PID 1.
type Command struct {
	// Number is chosen by the caller and never 0. It stands for the
	// command for as long as PID 1 lives, also towards a later daemon.
	Number uint32
	Args   []string // Args[0] is looked up in Env's PATH unless it has a slash
	Env    []string // K=V
	Cwd    string   // absolute, in the sandbox
	UID    uint32   // in the sandbox's user namespace
	GID    uint32
	Groups []uint32 // all supplementary groups

	// The command's streams, of which Start makes blocking ones and leaves the
	// closing to the caller. Nil is the sandbox's own /dev/null.
	Stdin, Stdout, Stderr *os.File

	// The other ends of the streams, pipes all, of which PID 1 keeps copies until
	// Exec.Release, so that a later daemon gets them. Nil is not held. The copies
	// are open file descriptions of their own: whether the caller's blocks is
	// not PID 1's to change.
	HeldStdin, HeldStdout, HeldStderr *os.File
	// HeldStaging is a pipe from which the caller moves input to HeldStdin, held like that.
	HeldStaging *os.File

	// TTY makes a terminal the command's three streams and its controlling
	// terminal. Stdin and Stdout, which PID 1 then makes non-blocking, are what
	// it copies from and to; there can be no Stderr. The end of Stdin types the
	// terminal's end-of-file character.
	TTY *WinSize

	Rlimits []Rlimit

	// Inputs are files that PID 1 makes before the command starts, and removes when it ends.
	Inputs []Input

	// Tag, where it is set, is a cgroup in which the command begins; see package cgroups.
	Tag *Tag

	// Place is called with the process that is about to become the command, by
	// its pid in the sandbox and PID 1's word, before it may run. Its error ends
	// the start. Nil: nobody needs to see the process first.
	Place func(ctx context.Context, pid int) error
}

// Tag is two files that move the thread that writes "0" to them: Enter into the command's
// cgroup, and Leave back into that of PID 1. Both stay the caller's.
type Tag struct{ Enter, Leave *os.File }

// files returns the files of t, in the order of a Start.
func (t *Tag) files() []*os.File {
	if t == nil {
		return nil
	}
	return []*os.File{t.Enter, t.Leave}
}

// WinSize is the size of a terminal in characters.
type WinSize struct{ Rows, Cols uint16 }

// Rlimit is a resource limit as for setrlimit(2). math.MaxUint64 is none.
type Rlimit struct {
	Resource   int // unix.RLIMIT_*
	Soft, Hard uint64
}

// Input is a file for one command. Nothing may be at its path.
type Input struct {
	Path string // absolute, in the sandbox, on a tmpfs of its own
	Mode uint32 // permission bits
	Data []byte
}

// Validate reports every reason why no sandbox could start c.
func (c Command) Validate() error {
	var errs []error
	if len(c.Args) == 0 || c.Args[0] == "" {
		errs = append(errs, errors.New("no command given"))
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("argument %d holds a NUL byte", i))
		}
	}
	for _, kv := range c.Env {
		if err := checkEnv(kv); err != nil {
			errs = append(errs, err)
		}
	}
	if !path.IsAbs(c.Cwd) || strings.ContainsRune(c.Cwd, 0) {
		errs = append(errs, fmt.Errorf("working directory %q is not an absolute path", c.Cwd))
	}
	return errors.Join(append(errs, c.checkStreams(), c.checkRlimits())...)
}

func (c Command) checkStreams() error {
	var errs []error
	if c.TTY != nil && c.Stderr != nil {
		errs = append(errs, errors.New("a terminal has no separate standard error"))
	}
	streams := []*os.File{c.Stdin, c.Stdout, c.Stderr}
	for i, f := range []*os.File{c.HeldStdin, c.HeldStdout, c.HeldStderr} {
		if f != nil && streams[i] == nil {
			errs = append(errs, fmt.Errorf("stream %d is to be held but not given", i))
		}
	}
	if c.HeldStaging != nil && c.HeldStdin == nil {
		errs = append(errs, errors.New("a staging pipe without an input is to be held"))
	}
	return errors.Join(errs...)
}

func (c Command) checkRlimits() error {
	var errs []error
	seen := map[int]bool{}
	for _, r := range c.Rlimits {
		switch {
		case r.Resource < 0 || r.Resource >= initproto.MaxRlimits:
			errs = append(errs, fmt.Errorf("there is no resource limit %d", r.Resource))
		case seen[r.Resource]:
			errs = append(errs, fmt.Errorf("resource limit %d is given twice", r.Resource))
		case r.Soft > r.Hard:
			errs = append(errs, fmt.Errorf("resource limit %d: soft limit %d is above the hard limit %d", r.Resource, r.Soft, r.Hard))
		}
		seen[r.Resource] = true
	}
	return errors.Join(errs...)
}

// checkEnv names the variable only: its value may be a secret.
func checkEnv(kv string) error {
	name, _, found := strings.Cut(kv, "=")
	switch {
	case !found || name == "":
		return errors.New("an environment entry is not NAME=VALUE")
	case strings.ContainsRune(kv, 0):
		return fmt.Errorf("environment variable %q holds a NUL byte", name)
	}
	return nil
}

// present returns those of a command's files that are there, which are in the order of
// initproto.Stdio.
func present(list ...*os.File) (set initproto.Stdio, files []*os.File) {
	for i, f := range list {
		if f != nil {
			set |= 1 << i
			files = append(files, f)
		}
	}
	return set, files
}

// message returns c's Start.
func (c Command) message() initproto.Start {
	m := initproto.Start{Exec: c.Number, Place: c.Place != nil, Inputs: len(c.Inputs) > 0, Tag: c.Tag != nil}
	m.Stdio, _ = present(c.Stdin, c.Stdout, c.Stderr)
	m.Held, _ = present(c.HeldStdin, c.HeldStdout, c.HeldStderr, c.HeldStaging)
	if c.TTY != nil {
		m.Terminal, m.Rows, m.Cols = true, c.TTY.Rows, c.TTY.Cols
	}
	return m
}

// inputPaths names all input files.
func (c Command) inputPaths() string {
	var paths []string
	for _, f := range c.Inputs {
		paths = append(paths, f.Path)
	}
	return strings.Join(paths, ", ")
}

// inputData is the content of all input files, one after the other.
func (c Command) inputData() []byte {
	var all [][]byte
	for _, f := range c.Inputs {
		all = append(all, f.Data)
	}
	return bytes.Join(all, nil)
}

// encode renders what the payload holds.
func (c Command) encode() ([]byte, error) {
	p := initproto.Payload{Args: c.Args, Env: c.Env, Cwd: c.Cwd, UID: c.UID, GID: c.GID, Groups: c.Groups}
	for _, r := range c.Rlimits {
		p.Rlimits = append(p.Rlimits, initproto.Rlimit{Resource: uint32(r.Resource), Soft: r.Soft, Hard: r.Hard})
	}
	for _, f := range c.Inputs {
		p.Inputs = append(p.Inputs, initproto.Input{Path: f.Path, Mode: f.Mode, Size: uint32(len(f.Data))})
	}
	b, err := p.Encode()
	if err != nil {
		return nil, fmt.Errorf("arguments and environment exceed %d bytes: %w", initproto.MaxPayload, err)
	}
	return b, nil
}
