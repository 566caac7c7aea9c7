package runtime

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/runtime/pid1"
	"github.com/caisson-run/caisson/sbxerr"
)

// maxScript is the longest script: the kernel bounds a single argument
// (MAX_ARG_STRLEN, execve(2)).
const maxScript = 128<<10 - 1

// How many entries the lists of a command may have. They are looked at one by one,
// so the bound comes first.
const (
	maxWords   = 64 << 10 // of the arguments, and of an environment
	maxRlimits = 16       // as many as Linux has
)

// execPlan is a request for a command with every question answered.
type execPlan struct {
	args        []string
	env         []string
	cwd         string
	user        user
	stdin       bool
	tty         *WinSize
	timeout     time.Duration // 0 is none
	outputLimit int64
	rlimits     []pid1.Rlimit
	limits      ExecLimits
	main        bool // the sandbox is for this command alone
}

// check reports every reason why no sandbox could run r.
func (r ExecRequest) check() error {
	errs := []error{r.checkCommand(), checkEnv(r.Env), checkCwd(r.Cwd), r.checkTimes(), r.checkTTY(), r.Limits.child().Validate()}
	_, err := r.rlimits()
	if err := errors.Join(append(errs, err)...); err != nil {
		return sbxerr.Wrap(codeOf(err), "runtime.plan", err)
	}
	return nil
}

// atMost refuses a list by its length alone.
func atMost(n, most int, what string) error {
	if n > most {
		return invalid("%d %s are more than %d", n, what, most)
	}
	return nil
}

func (r ExecRequest) checkCommand() error {
	if err := atMost(len(r.Args), maxWords, "arguments"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	switch {
	case r.Shell != "" && len(r.Args) > 0:
		reasons.Add(invalid("give a command or a script for the shell, not both"))
	case len(r.Shell) > maxScript:
		reasons.Add(invalid("the script takes %d bytes, more than %d: write it to a file first", len(r.Shell), maxScript))
	case strings.ContainsRune(r.Shell, 0):
		reasons.Add(invalid("the script holds a NUL byte"))
	case r.Shell == "" && (len(r.Args) == 0 || r.Args[0] == ""):
		reasons.Add(invalid("no command: give it after --"))
	}
	for i, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			reasons.Add(invalid("argument %d holds a NUL byte", i))
		}
	}
	return reasons.Err()
}

// checkEnv names the variables only: a value may be a secret.
func checkEnv(env []string) error {
	if err := atMost(len(env), maxWords, "entries of the environment"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	for i, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			reasons.Add(invalid("environment entry %d is not NAME=VALUE", i))
		case name == "":
			reasons.Add(invalid("environment entry %d has no name", i))
		case strings.ContainsRune(kv, 0):
			reasons.Add(invalid("environment variable %.40q holds a NUL byte", name))
		}
	}
	return reasons.Err()
}

// checkSize bounds what a command is started with: execve(2) would refuse
// what is much larger, after everything was made.
func checkSize(args, env []string) error {
	size := 0
	for _, s := range slices.Concat(args, env) {
		size += len(s) + 1
	}
	if size > maxArgsBytes {
		return invalid("arguments and environment take %d bytes, more than %d: pass large input by -i or the workspace", size, maxArgsBytes)
	}
	return nil
}

// checkCwd refuses working directories that could be a descriptor of the host
// (CVE-2024-21626).
func checkCwd(cwd string) error {
	if cwd == "" {
		return nil
	}
	if !path.IsAbs(cwd) || path.Clean(cwd) != cwd || strings.ContainsRune(cwd, 0) {
		return invalid("working directory %q is not a clean absolute path", sbxerr.Clip(cwd))
	}
	if cwd == "/proc" || strings.HasPrefix(cwd, "/proc/") {
		return invalid("working directory %q lies in /proc", sbxerr.Clip(cwd))
	}
	return nil
}

func (r ExecRequest) checkTimes() error {
	var errs []error
	if t := r.Timeout; t != nil && (*t <= 0 || *t > maxTimeout) {
		errs = append(errs, invalid("timeout %s: give more than 0 and %s, such as 30s", *t, atMostTimeout))
	}
	if n := r.OutputLimit; n != nil && (*n < 2 || *n > 1<<40) {
		errs = append(errs, sbxerr.New(sbxerr.Limits, "runtime.plan", "output limit %d: give at least 2 bytes, such as 10M", *n))
	}
	return errors.Join(errs...)
}

func (r ExecRequest) checkTTY() error {
	if r.TTY == nil {
		return nil
	}
	return r.TTY.check()
}

func (w WinSize) check() error {
	if w.Rows == 0 || w.Cols == 0 {
		return invalid("terminal of %d rows and %d columns: give at least 1 of each", w.Rows, w.Cols)
	}
	return nil
}

// set takes what was asked for, where it was.
func set[T any](to *T, asked *T) {
	if asked != nil {
		*to = *asked
	}
}

func (l ExecLimits) any() bool { return l != ExecLimits{} }

func (l ExecLimits) child() cgroups.ChildLimits {
	return cgroups.ChildLimits{MemoryBytes: l.MemoryBytes, MilliCPU: l.MilliCPU, PIDs: l.PIDs}
}

func invalidName(what, name string, names []string) error {
	msg := fmt.Sprintf("no %s %q; there are %s", what, sbxerr.Clip(name), strings.Join(names, ", "))
	if near := sbxerr.Nearest(name, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return invalid("%s", msg)
}

// plan answers r for the sandbox of base. lookup resolves a user by name in the
// sandbox's image.
func (r ExecRequest) plan(base record, lookup func(name string) (user, error)) (*execPlan, error) {
	const op = "runtime.plan"
	if err := r.check(); err != nil {
		return nil, err
	}
	e := &execPlan{
		args: r.Args, env: mergeEnv(base.Env, r.Env), cwd: firstNonEmpty(r.Cwd, base.Cwd), user: base.User,
		stdin: r.Stdin, tty: r.TTY, limits: r.Limits, outputLimit: DefaultOutputLimit,
	}
	set(&e.timeout, r.Timeout)
	set(&e.outputLimit, r.OutputLimit)
	if r.Shell != "" {
		e.args = []string{"/bin/sh", "-c", r.Shell}
	}
	if e.tty != nil {
		e.env = mergeEnv([]string{"TERM=xterm-256color"}, e.env)
		e.stdin = true
	}
	var err error
	if e.rlimits, err = r.rlimits(); err != nil {
		return nil, err
	}
	if r.User != "" {
		if e.user, err = lookup(r.User); err != nil {
			return nil, err
		}
		if err := errors.Join(e.user.check(r.User), base.User.checkOther(e.user, r.User)); err != nil {
			return nil, err
		}
	}
	return e, sbxerr.Wrap(sbxerr.Config, op, checkSize(e.args, e.env))
}
