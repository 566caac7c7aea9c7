package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
)

// maxScript bounds a script of --shell, in bytes: it is one argument of /bin/sh, and
// the kernel bounds those (MAX_ARG_STRLEN, execve(2)).
const maxScript = 128<<10 - 1

// execFlags are the flags of exec.
type execFlags struct {
	commandFlags
	user, envFile      string
	memory, cpus, pids string
	env                []string
}

func (f *execFlags) register(cmd *cobra.Command) {
	f.commandFlags.register(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&f.detach, "detach", "d", false, "run in the background and print the ID of the command; with -i its input stays open for attach -i")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set environment variable `K=V`; K alone copies its value from here")
	flags.StringVar(&f.envFile, "env-file", "", "set the variables of `FILE`, one on each line, as with --env")
	flags.StringVarP(&f.user, "user", "u", "", "`USER`: name, uid or uid:gid (default: the sandbox's)")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory limit `SIZE` of this command, at most the sandbox's")
	flags.StringVar(&f.cpus, "cpus", "", "number `N` of CPUs of this command, at most the sandbox's")
	flags.StringVar(&f.pids, "pids", "", "limit of `N` processes and threads of this command, at most the sandbox's")
}

// spec is what the flags and the words after SANDBOX make, or all reasons why
// they make nothing.
func (f *execFlags) spec(cmd *cobra.Command, words []string, a *App) (*caissonv1.ExecSpec, error) {
	p := Parser{flags: cmd.Flags()}
	spec := f.commandFlags.spec(&p)
	p.NotEmpty("user")
	spec.User, spec.Env = f.user, p.Environment(f.envFile, f.env, a.LookupEnv)
	spec.Limits = f.limits(&p)
	args, err := commandOf(words)
	if err != nil {
		p.Refuse(err)
		return nil, p.End(spec)
	}
	f.command(&p, spec, args, a.Stdin, cmd.UseLine())
	return spec, p.End(spec)
}

// limits is nil where none is given: then the command needs no cgroup.
func (f *execFlags) limits(p *Parser) *caissonv1.ExecLimits {
	l := &caissonv1.ExecLimits{
		MemoryBytes: p.number("memory", f.memory, units.ParseSize),
		MilliCpu:    p.number("cpus", f.cpus, units.ParseCPU),
		Pids:        p.number("pids", f.pids, units.ParseCount),
	}
	if l.MemoryBytes == nil && l.MilliCpu == nil && l.Pids == nil {
		return nil
	}
	return l
}

// commandOf is the command in the words after SANDBOX.
func commandOf(words []string) ([]string, error) {
	switch {
	case len(words) == 0:
		return nil, nil
	case words[0] == "--":
		return words[1:], nil
	case strings.HasPrefix(words[0], "-"):
		return nil, Usage("flags come before SANDBOX; a command that is called %q comes after --", words[0])
	}
	return words, nil
}

func readScript(r io.Reader) (string, error) {
	script, err := io.ReadAll(io.LimitReader(r, maxScript+1))
	switch {
	case err != nil:
		return "", sbxerr.Wrap(sbxerr.ClientIO, "caisson.script", fmt.Errorf("read the script: %w", err))
	case len(script) > maxScript:
		return "", Usage("--shell: the script has more than %d bytes: copy it into the sandbox and run it there", maxScript)
	case len(script) == 0:
		return "", Usage("--shell: the script on standard input is empty")
	}
	return string(script), nil
}

// ulimits reads NAME=SOFT[:HARD], with names as ulimit's or as setrlimit's.
func (p *Parser) ulimits(list []string) []*caissonv1.Rlimit {
	var out []*caissonv1.Rlimit
	for _, entry := range list {
		name, values, given := strings.Cut(entry, "=")
		soft, hard, both := strings.Cut(values, ":")
		if !both {
			hard = soft
		}
		s, errSoft := parseRlimit(soft)
		h, errHard := parseRlimit(hard)
		if name == "" || !given || errors.Join(errSoft, errHard) != nil || s > h {
			p.Refuse(Usage("--ulimit: %q is not NAME=SOFT[:HARD] with SOFT up to HARD, such as nofile=64:128", entry))
			continue
		}
		name = strings.TrimPrefix(strings.ToLower(name), "rlimit_")
		out = append(out, &caissonv1.Rlimit{Name: name, Soft: s, Hard: h})
	}
	return out
}

// parseRlimit reads a value; "unlimited" is RLIM_INFINITY.
func parseRlimit(s string) (uint64, error) {
	if s == "unlimited" {
		return math.MaxUint64, nil
	}
	return strconv.ParseUint(s, 10, 64)
}
