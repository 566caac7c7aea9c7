package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cgroups/units"
	"github.com/caisson-run/caisson/sbxerr"
)

// specFlags are the flags of run and spec that say what to run and how to
// confine it. What has a unit stays text until all flags are read, so that one
// refusal can name all that is wrong.
type specFlags struct {
	image, profile, workspace, network string
	memory, cpus, pids, files, tmpfs   string
	timeout, outputLimit               string
	cwd, user, name, session, task     string
	allow, env, labels                 []string
	interactive, terminal, detach      bool
}

func (f *specFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows CMD is CMD's
	flags.StringVar(&f.image, "image", "", "`IMAGE` to run in (default: the profile's)")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE`: strict, compat, debug, or one of the daemon's configuration (default strict)")
	flags.StringVar(&f.workspace, "workspace", "", "directory to work in, `DIR[:rw|ro]` (default rw)")
	flags.StringVarP(&f.cwd, "workdir", "w", "", "working directory `DIR` inside (default: the workspace, else the image's)")
	flags.StringVarP(&f.user, "user", "u", "", "`USER` inside: name, uid or uid:gid (default: the profile's)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `K=V`; K alone takes the value that it has here")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory `SIZE`, no swap, such as 512M")
	flags.StringVar(&f.cpus, "cpus", "", "`N` CPUs, such as 1.5")
	flags.StringVar(&f.pids, "pids", "", "`N` processes and threads, such as 256")
	flags.StringVar(&f.files, "open-files", "", "`N` open files of each process, such as 1024")
	flags.StringVar(&f.tmpfs, "tmpfs", "", "`SIZE` of each tmpfs, such as 64M")
	flags.StringVar(&f.timeout, "timeout", "", "end the command after `DURATION`, such as 30s or 5m (exit code 124)")
	flags.StringVar(&f.outputLimit, "output-limit", "", "`SIZE` that is kept of each output stream, head and tail (default 10M)")
	flags.StringVar(&f.network, "network", "", "network `MODE` (default none)")
	flags.StringArrayVar(&f.allow, "allow", nil, "destination that may be reached, `HOST[:PORT]`")
	flags.StringVar(&f.name, "name", "", "`NAME` of the sandbox (default: its ID)")
	flags.StringArrayVar(&f.labels, "label", nil, "label `K=V`")
	flags.StringVar(&f.session, "session", "", "the caller's session `ID`")
	flags.StringVar(&f.task, "task", "", "the caller's task `ID`")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "forward standard input")
	flags.BoolVarP(&f.terminal, "tty", "t", false, "give the command a terminal")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions( // the flag is there
		[]string{"strict", "compat", "debug"}, cobra.ShellCompDirectiveNoFileComp))
}

// spec is the request that the flags make, or all reasons why they make none.
func (f *specFlags) spec(flags *pflag.FlagSet, args []string, lookupEnv func(string) (string, bool)) (*caissonv1.RunSpec, error) {
	p := parser{flags: flags}
	spec := &caissonv1.RunSpec{
		Args: args, Cwd: f.cwd, User: f.user, Name: f.name,
		Image: f.image, Profile: f.profile, Network: f.network, Allow: f.allow,
		Session: f.session, Task: f.task, Tty: f.terminal, Stdin: f.interactive, Detach: f.detach,
		Limits: &caissonv1.Limits{
			MemoryBytes: p.number("memory", f.memory, units.ParseSize),
			MilliCpu:    p.number("cpus", f.cpus, units.ParseCPU),
			Pids:        p.number("pids", f.pids, parseCount),
			OpenFiles:   p.number("open-files", f.files, parseCount),
			TmpfsBytes:  p.number("tmpfs", f.tmpfs, units.ParseSize),
		},
		OutputLimitBytes: p.number("output-limit", f.outputLimit, units.ParseSize),
		Timeout:          p.duration("timeout", f.timeout),
		Env:              p.environment(f.env, lookupEnv),
		Labels:           p.labels(f.labels),
		Workspace:        p.workspace(f.workspace),
	}
	p.notEmpty("image", "profile", "network", "workdir", "user", "name", "session", "task")
	if f.detach && f.interactive {
		p.refuse(usage("-d and -i exclude each other: nobody is left to send input"))
	}
	if len(args) == 0 || args[0] == "" {
		p.refuse(usage("there is no command: caisson run [flags] -- CMD [ARG…]"))
	}
	if _, err := proto.Marshal(spec); err != nil {
		p.refuse(usage("what is not UTF-8 cannot be sent: %w", err))
	}
	return spec, errors.Join(p.errs...)
}

// parser reads the values of flags and gathers what is wrong with them.
type parser struct {
	flags *pflag.FlagSet
	errs  []error
}

func (p *parser) refuse(err error) { p.errs = append(p.errs, err) }

// notEmpty refuses flags that were given, but with no value: "" would mean
// the default, which is not what somebody who writes a flag wants.
func (p *parser) notEmpty(names ...string) {
	for _, name := range names {
		if p.flags.Changed(name) && p.flags.Lookup(name).Value.String() == "" {
			p.refuse(usage("--%s is empty: leave it out for the default", name))
		}
	}
}

// number reads a flag that may be absent. What is given is never taken for
// absent, so that "" and 0 are refused.
func (p *parser) number(name, text string, parse func(string) (int64, error)) *int64 {
	if !p.flags.Changed(name) {
		return nil
	}
	n, err := parse(text)
	if err != nil {
		p.refuse(fmt.Errorf("--%s: %w", name, err))
		return nil
	}
	return &n
}

func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, sbxerr.New(sbxerr.Limits, "caisson.count", "%q is not a positive count, give one such as 256", s)
	}
	return n, nil
}

func (p *parser) duration(name, text string) *durationpb.Duration {
	if !p.flags.Changed(name) {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.refuse(sbxerr.New(sbxerr.Limits, "caisson.duration", "--%s: %q is not a positive duration, give one such as 500ms, 30s or 5m", name, text))
		return nil
	}
	return durationpb.New(d)
}

// environment completes names without a value from caisson's own environment,
// so that a secret need not be on the command line. The values are not quoted
// in any refusal.
func (p *parser) environment(list []string, lookupEnv func(string) (string, bool)) []string {
	var out []string
	for _, entry := range list {
		name, _, given := strings.Cut(entry, "=")
		switch value, set := lookupEnv(name); {
		case name == "":
			p.refuse(usage("--env: an entry has no name, write K=V"))
		case given:
			out = append(out, entry)
		case set:
			out = append(out, name+"="+value)
		default:
			p.refuse(usage("--env: %q is not set here, write %s=VALUE", name, name))
		}
	}
	return out
}

func (p *parser) labels(list []string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]string, len(list))
	for _, entry := range list {
		key, value, given := strings.Cut(entry, "=")
		if _, twice := out[key]; key == "" || !given || twice {
			p.refuse(usage("--label: %q is not a label K=V of its own", entry))
			continue
		}
		out[key] = value
	}
	return out
}

// workspace reads DIR[:MODE]. It resolves symbolic links here, with the rights
// of whoever types the path: the daemon follows none.
func (p *parser) workspace(text string) *caissonv1.Workspace {
	if !p.flags.Changed("workspace") {
		return nil
	}
	dir, mode, err := splitWorkspace(text)
	if err != nil {
		p.refuse(err)
		return nil
	}
	dir, err = filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		p.refuse(sbxerr.WithRemedy(sbxerr.Workspace, "caisson.workspace", fmt.Errorf("--workspace %q: %w", text, err), "name an existing directory"))
		return nil
	}
	return &caissonv1.Workspace{Dir: dir, Mode: mode}
}

func splitWorkspace(text string) (dir, mode string, err error) {
	at := strings.LastIndex(text, ":")
	if at < 0 || exists(text) {
		dir, mode = text, "rw"
	} else {
		dir, mode = text[:at], text[at+1:]
	}
	switch {
	case dir == "":
		return "", "", usage("--workspace: %q names no directory, write DIR[:rw|ro]", text)
	case mode == "cow":
		return "", "", sbxerr.WithRemedy(sbxerr.Workspace, "caisson.workspace",
			errors.New("--workspace: copy-on-write workspaces (cow) are not offered yet"), "use rw or ro")
	case mode == "rw" || mode == "ro":
		return dir, mode, nil
	}
	if near := nearest(mode, []string{"rw", "ro"}); near != "" {
		return "", "", usage("--workspace: %q is not a mode; did you mean %q?", mode, near)
	}
	return "", "", usage("--workspace: %q is not a mode, use rw or ro", mode)
}

// exists reports whether path names something, so that a colon in it is a part
// of its name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
