package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// maxScript is the longest script in bytes. The kernel bounds a single argument
// (MAX_ARG_STRLEN, execve(2)).
const maxScript = 128<<10 - 1

// Bounds of the lists of a command. Each entry is checked, so the length is checked first.
const (
	maxWords   = 64 << 10 // of the arguments, and of an environment
	MaxRlimits = 16       // as many as Linux has
)

// Command is the plan of a command: an [ExecRequest] with every question answered.
type Command struct {
	Args        []string
	Env         []string
	Cwd         string
	User        User
	Stdin       bool
	TTY         *WinSize
	Timeout     time.Duration // 0 is none
	OutputLimit int64
	Rlimits     []pid1.Rlimit
	Limits      ExecLimits
	Inputs      []pid1.Input // with secrets: gone once the command was started
	Main        bool         // the sandbox is for this command alone
}

// Check reports every reason why no sandbox could run r.
func (r ExecRequest) Check() error {
	errs := []error{r.checkCommand(), checkEnv(r.Env), checkCwd(r.Cwd), r.checkTimes(), r.checkTTY(), r.checkInputs(), r.Limits.Child().Validate()}
	_, err := r.rlimits()
	if err := errors.Join(append(errs, err)...); err != nil {
		return sbxerr.Wrap(CodeOf(err), "runtime.plan", err)
	}
	return nil
}

// AtMost refuses a list that is longer than most.
func AtMost(n, most int, what string) error {
	if n > most {
		return Invalid("%d %s are more than %d", n, what, most)
	}
	return nil
}

func (r ExecRequest) checkCommand() error {
	if err := AtMost(len(r.Args), maxWords, "arguments"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	switch {
	case r.Shell != "" && len(r.Args) > 0:
		reasons.Add(Invalid("give a command or a script for the shell, not both"))
	case len(r.Shell) > maxScript:
		reasons.Add(Invalid("the script takes %d bytes, more than %d: write it to a file first", len(r.Shell), maxScript))
	case strings.ContainsRune(r.Shell, 0):
		reasons.Add(Invalid("the script holds a NUL byte"))
	case r.Shell == "" && (len(r.Args) == 0 || r.Args[0] == ""):
		reasons.Add(Invalid("no command: give it after --, or use an image that has one"))
	}
	for i, arg := range r.Args {
		if strings.ContainsRune(arg, 0) {
			reasons.Add(Invalid("argument %d holds a NUL byte", i))
		}
	}
	return reasons.Err()
}

// checkEnv refuses malformed variables. It quotes names only: a value may be a secret.
func checkEnv(env []string) error {
	if err := AtMost(len(env), maxWords, "entries of the environment"); err != nil {
		return err
	}
	var reasons sbxerr.Reasons
	for i, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			reasons.Add(Invalid("environment entry %d is not NAME=VALUE", i))
		case name == "":
			reasons.Add(Invalid("environment entry %d has no name", i))
		case strings.ContainsRune(kv, 0):
			reasons.Add(Invalid("environment variable %.40q holds a NUL byte", name))
		}
	}
	return reasons.Err()
}

// checkSize bounds arguments and environment together. execve(2) refuses much larger
// ones only after the sandbox was made.
func checkSize(args, env []string) error {
	size := 0
	for _, s := range slices.Concat(args, env) {
		size += len(s) + 1
	}
	if size > maxArgsBytes {
		return Invalid("arguments and environment take %d bytes, more than %d: pass large input by -i or the workspace", size, maxArgsBytes)
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
		return Invalid("working directory %q is not a clean absolute path", sbxerr.Clip(cwd))
	}
	if cwd == "/proc" || strings.HasPrefix(cwd, "/proc/") {
		return Invalid("working directory %q lies in /proc", sbxerr.Clip(cwd))
	}
	return nil
}

func (r ExecRequest) checkTimes() error {
	var errs []error
	if t := r.Timeout; t != nil && (*t <= 0 || *t > MaxTimeout) {
		errs = append(errs, Invalid("timeout %s: give more than 0 and %s, such as 30s", *t, AtMostTimeout))
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
		return Invalid("terminal of %d rows and %d columns: give at least 1 of each", w.Rows, w.Cols)
	}
	return nil
}

// Any reports whether the command has limits of its own.
func (l ExecLimits) Any() bool { return l != ExecLimits{} }

// Child returns l as the limits of a child cgroup.
func (l ExecLimits) Child() cgroups.ChildLimits {
	return cgroups.ChildLimits{MemoryBytes: l.MemoryBytes, MilliCPU: l.MilliCPU, PIDs: l.PIDs}
}

// invalidName refuses a name that is not among names, and suggests the nearest.
func invalidName(what, name string, names []string) error {
	msg := fmt.Sprintf("no %s %q; there are %s", what, sbxerr.Clip(name), strings.Join(names, ", "))
	if near := sbxerr.Nearest(name, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return Invalid("%s", msg)
}

// Defaults are the settings that a command takes from its sandbox.
type Defaults struct {
	Env  []string
	Cwd  string
	User User

	Limits  Limits   // of the sandbox, now; zero is unknown
	Tmpfs   []string // targets of the sandbox's own mounts of this type
	Binds   []string // likewise, with the workspace's
	Tracing bool     // the profile allows it

	MaxTimeout time.Duration // the profile's; 0 is none
	Unisolated bool          // the host's files are those of the sandbox
}

// Command plans r for a sandbox with these defaults. lookup resolves a user by name in
// the sandbox's image.
func (r ExecRequest) Command(base Defaults, lookup func(name string) (User, error)) (*Command, error) {
	const op = "runtime.plan"
	if err := JoinReasons(r.Check(), base.check(r)); err != nil {
		return nil, err
	}
	e := &Command{
		Args: r.Args, Env: image.MergeEnv(base.env(r.Limits), r.Env), Cwd: cmp.Or(r.Cwd, base.Cwd), User: base.User,
		Stdin: r.Stdin, TTY: r.TTY, Limits: r.Limits, OutputLimit: settings.DefaultOutputLimit, Timeout: base.MaxTimeout,
	}
	Override(&e.Timeout, r.Timeout)
	Override(&e.OutputLimit, r.OutputLimit)
	if r.Shell != "" {
		e.Args = []string{"/bin/sh", "-c", r.Shell}
	}
	if e.TTY != nil {
		e.Env = image.MergeEnv([]string{"TERM=xterm-256color"}, e.Env)
		e.Stdin = true
	}
	var err error
	if e.Rlimits, err = r.rlimits(); err != nil {
		return nil, err
	}
	if e.Inputs, err = r.inputs(base.Tmpfs, base.Binds); err != nil {
		return nil, err
	}
	if r.User != "" {
		if e.User, err = lookup(r.User); err != nil {
			return nil, err
		}
		if err := errors.Join(e.User.checkOf(base.User, r.User), base.User.checkOther(e.User, r.User)); err != nil {
			return nil, err
		}
	}
	return e, sbxerr.Wrap(sbxerr.Config, op, checkSize(e.Args, e.Env))
}

// Override sets to where the request names a value.
func Override[T any](to *T, asked *T) {
	if asked != nil {
		*to = *asked
	}
}

// rlimits returns the limits that r names, as the kernel numbers them.
func (r ExecRequest) rlimits() ([]pid1.Rlimit, error) {
	if err := AtMost(len(r.Rlimits), MaxRlimits, "resource limits"); err != nil {
		return nil, err
	}
	var out []pid1.Rlimit
	var errs []error
	for _, l := range r.Rlimits {
		n, ok := RlimitNumbers[l.Name]
		if !ok {
			errs = append(errs, invalidName("resource limit", l.Name, slices.Sorted(maps.Keys(RlimitNumbers))))
			continue
		}
		if l.Soft > l.Hard {
			errs = append(errs, Invalid("%s: the soft limit %d is above the hard limit %d", l.Name, l.Soft, l.Hard))
		}
		out = append(out, pid1.Rlimit{Resource: n, Soft: l.Soft, Hard: l.Hard})
	}
	return out, errors.Join(errs...)
}

// RlimitNumbers are the limits of getrlimit(2) by the OCI spec's names.
var RlimitNumbers = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU, "RLIMIT_DATA": unix.RLIMIT_DATA,
	"RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS, "RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE,
	"RLIMIT_NICE": unix.RLIMIT_NICE, "RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}
