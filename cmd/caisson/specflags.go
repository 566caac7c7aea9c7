package main

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cgroups/units"
)

// The flags that say what to run and how to confine it. What has a unit stays
// text until all flags are read, so that one refusal can name all that is wrong.

// sandboxFlags are those of a sandbox: of run, create and spec.
type sandboxFlags struct {
	image, profile, workspace, network string
	memory, cpus, pids, files, tmpfs   string
	name, session, task, user          string
	ttl, idle                          string
	allow, deny, publish, env, labels  []string
	links, expose                      []string
	allowECH                           bool
}

func (f *sandboxFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.image, "image", "", "`IMAGE` to run in (default: the profile's, else base)")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE`: strict, compat, debug, or one of the daemon's configuration (default strict)")
	flags.StringVar(&f.workspace, "workspace", "", "directory to work in, `DIR[:rw|ro]` (default rw)")
	flags.StringVarP(&f.user, "user", "u", "", "`USER` inside: name, uid or uid:gid (default: the profile's, else 1000:1000)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable `K=V`; K alone takes the value that it has here")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory `SIZE`, no swap, such as 2G (default: the profile's, else 512M)")
	flags.StringVar(&f.cpus, "cpus", "", "`N` CPUs, such as 1.5 (default: the profile's, else 1)")
	flags.StringVar(&f.pids, "pids", "", "`N` processes and threads, such as 1024 (default: the profile's, else 256)")
	flags.StringVar(&f.files, "open-files", "", "`N` open files of each process, such as 4096 (default: the profile's, else 1024)")
	flags.StringVar(&f.tmpfs, "tmpfs", "", "`SIZE` of each tmpfs, such as 1G (default: the profile's, else 64M)")
	registerNetwork(cmd, &f.network, &f.allow, &f.deny)
	flags.BoolVar(&f.allowECH, "allow-ech", false, "let TLS clients encrypt the name that they ask for (ECH), which no rule can then check")
	flags.StringArrayVarP(&f.publish, "publish", "p", nil, "lead TCP `[ADDR:]PORT:PORT`, of the host (127.0.0.1; port 0 picks one), to a port inside, from 1024 on")
	flags.StringSliceVar(&f.expose, "expose", nil, "`PORT` inside, from 1024 on, to which links of your other sandboxes may lead")
	flags.StringArrayVar(&f.links, "link", nil, "lead NAME and PORT, `NAME=SANDBOX:PORT`, to a port that another sandbox of yours exposes")
	flags.StringVar(&f.name, "name", "", "`NAME` of the sandbox (default: its ID)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "label `K=V`")
	flags.StringVar(&f.session, "session", "", "the caller's session `ID`")
	flags.StringVar(&f.task, "task", "", "the caller's task `ID`")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions( // the flag is there
		[]string{"strict", "compat", "debug"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerNetwork adds the flags that say how far a sandbox reaches.
func registerNetwork(cmd *cobra.Command, mode *string, allow, deny *[]string) {
	flags := cmd.Flags()
	flags.StringVar(mode, "network", "", "network `MODE`: none, allow, open or bridge (default: allow with --allow, else the profile's, which is none)")
	flags.StringArrayVar(allow, "allow", nil, "`RULE` for what may be reached: HOST[:PORT][+PORT…][,private], ports 80 and 443 where none is given")
	flags.StringArrayVar(deny, "deny", nil, "`RULE` for what may not, whatever is allowed: HOST[:PORT][+PORT…]")
	_ = cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{"none", "allow", "open", "bridge"}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *sandboxFlags) registerTTL(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.ttl, "ttl", "", "end and remove the sandbox `DURATION` after it is ready, such as 2h, or never (the default)")
}

// registerLife adds the flags of a sandbox that outlives its first command.
func (f *sandboxFlags) registerLife(cmd *cobra.Command) {
	f.registerTTL(cmd)
	cmd.Flags().StringVar(&f.idle, "idle-timeout", "", "end and remove the sandbox when no command ran and nobody worked on its files for `DURATION`, such as 10m, or never (the default)")
}

// spec is what the flags say. The environment is the sandbox's, or that of the
// one command which it is for: the caller puts it where it belongs.
func (f *sandboxFlags) spec(p *parser) *caissonv1.SandboxSpec {
	p.notEmpty("image", "profile", "network", "user", "name", "session", "task")
	return &caissonv1.SandboxSpec{
		Name: f.name, Image: f.image, Profile: f.profile, User: f.user, Network: f.network, Allow: f.allow, Deny: f.deny, AllowEch: f.allowECH, Publish: f.publish,
		Expose: p.ports("expose", f.expose), Links: f.links,
		Session: f.session, Task: f.task,
		Limits: &caissonv1.Limits{
			MemoryBytes: p.number("memory", f.memory, units.ParseSize),
			MilliCpu:    p.number("cpus", f.cpus, units.ParseCPU),
			Pids:        p.number("pids", f.pids, parseCount),
			OpenFiles:   p.number("open-files", f.files, parseCount),
			TmpfsBytes:  p.number("tmpfs", f.tmpfs, units.ParseSize),
		},
		Labels:      p.labels(f.labels),
		Workspace:   p.workspace(f.workspace),
		Ttl:         p.orNever("ttl", f.ttl),
		IdleTimeout: p.orNever("idle-timeout", f.idle),
	}
}

// commandFlags are those of every command: of run, spec and exec.
type commandFlags struct {
	cwd, timeout, outputLimit            string
	interactive, terminal, detach, shell bool
	ulimits                              []string
}

// limitNames are those that --ulimit takes: all that Linux has.
const limitNames = "as, core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending or stack"

func (f *commandFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows CMD is CMD's
	flags.StringVarP(&f.cwd, "workdir", "w", "", "working directory `DIR` inside (default: the workspace, else the image's)")
	flags.StringVar(&f.timeout, "timeout", "", "end the command after `DURATION`, such as 30s or 5m (exit code 124)")
	flags.StringVar(&f.outputLimit, "output-limit", "", "`SIZE` that is kept of each output stream, head and tail (default 10M)")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "forward standard input")
	flags.BoolVarP(&f.terminal, "tty", "t", false, "give the command a terminal")
	flags.BoolVar(&f.shell, "shell", false, "run a script for /bin/sh, which is read from standard input")
	flags.StringArrayVar(&f.ulimits, "ulimit", nil, "resource limit `NAME=SOFT[:HARD]` of setrlimit(2), below the sandbox's, such as nofile=64:128: "+limitNames)
}

func (f *commandFlags) spec(p *parser) *caissonv1.ExecSpec {
	p.notEmpty("workdir")
	spec := &caissonv1.ExecSpec{
		Cwd: f.cwd, Stdin: f.interactive,
		OutputLimitBytes: p.number("output-limit", f.outputLimit, units.ParseSize),
		Timeout:          p.duration("timeout", f.timeout),
		Rlimits:          p.ulimits(f.ulimits),
	}
	if f.terminal {
		spec.Tty = defaultSize.Message()
	}
	return spec
}

// command is what is to be run: args, or the script on stdin. Without either, line
// says how to give one.
func (f *commandFlags) command(p *parser, spec *caissonv1.ExecSpec, args []string, stdin io.Reader, line string) {
	switch {
	case f.shell && len(args) > 0:
		p.refuse(usage("--shell and a command exclude each other: the script is read from standard input"))
	case f.shell && f.interactive:
		p.refuse(usage("--shell and -i exclude each other: standard input is the script"))
	case !f.shell && (len(args) == 0 || args[0] == ""):
		p.refuse(usage("there is no command: %s", line))
	}
	spec.Args = args
	if !f.shell || len(p.errs) > 0 {
		return
	}
	script, err := readScript(stdin)
	if err != nil {
		p.refuse(err)
	}
	spec.Shell = script
}

// runFlags are the flags of run and spec.
type runFlags struct {
	sandboxFlags
	commandFlags
}

func (f *runFlags) register(cmd *cobra.Command) {
	f.sandboxFlags.register(cmd)
	f.registerTTL(cmd)
	f.commandFlags.register(cmd)
}

// spec is the request that the flags make, or all reasons why they make none.
func (f *runFlags) spec(flags *pflag.FlagSet, args []string, a *app) (*caissonv1.RunSpec, error) {
	p := parser{flags: flags}
	if f.detach && f.interactive {
		p.refuse(usage("-d and -i exclude each other: nobody is left to send input; in a sandbox that create made, exec -d -i starts a command for attach -i"))
	}
	spec := &caissonv1.RunSpec{Sandbox: f.sandboxFlags.spec(&p), Exec: f.commandFlags.spec(&p), Detach: f.detach}
	spec.Exec.Env = p.environment(f.env, a.lookupEnv)
	f.command(&p, spec.Exec, args, a.stdin, "caisson run [flags] -- CMD [ARG…]")
	return spec, p.end(spec)
}
