package execs

import (
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
)

// execFlags are the flags of exec.
type execFlags struct {
	specflags.CommandFlags
	user, envFile      string
	memory, cpus, pids string
	env                []string
}

func (f *execFlags) register(cmd *cobra.Command) {
	f.CommandFlags.Register(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&f.Detach, "detach", "d", false, "run in the background and print the ID of the command; with -i its input stays open for attach -i")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set environment variable `K=V`; K alone copies its value from here")
	flags.StringVar(&f.envFile, "env-file", "", "set the variables of `FILE`, one on each line, as with --env")
	flags.StringVarP(&f.user, "user", "u", "", "`USER`: name, uid or uid:gid (default: the sandbox's)")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory limit `SIZE` of this command, at most the sandbox's")
	flags.StringVar(&f.cpus, "cpus", "", "number `N` of CPUs of this command, at most the sandbox's")
	flags.StringVar(&f.pids, "pids", "", "limit of `N` processes and threads of this command, at most the sandbox's")
}

// spec is what the flags and the words after SANDBOX make, or all reasons why
// they make nothing.
func (f *execFlags) spec(cmd *cobra.Command, words []string, a *cli.App) (*caissonv1.ExecSpec, error) {
	p := cli.Parser{Flags: cmd.Flags()}
	spec := f.CommandFlags.Spec(&p)
	p.NotEmpty("user")
	spec.User, spec.Env = f.user, p.Environment(f.envFile, f.env, a.LookupEnv)
	spec.Limits = f.limits(&p)
	args, err := commandOf(words)
	if err != nil {
		p.Refuse(err)
		return nil, p.End(spec)
	}
	f.Command(&p, spec, args, a.Stdin, cmd.UseLine())
	return spec, p.End(spec)
}

// limits is nil where none is given: then the command needs no cgroup.
func (f *execFlags) limits(p *cli.Parser) *caissonv1.ExecLimits {
	l := &caissonv1.ExecLimits{
		MemoryBytes: p.Number("memory", f.memory, units.ParseSize),
		MilliCpu:    p.Number("cpus", f.cpus, units.ParseCPU),
		Pids:        p.Number("pids", f.pids, units.ParseCount),
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
		return nil, cli.Usage("flags come before SANDBOX; a command that is called %q comes after --", words[0])
	}
	return words, nil
}
