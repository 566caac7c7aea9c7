package main

import (
	"cmp"
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
	shares, shm, hostname              string
	ioRead, ioWrite                    string
	name, session, task, user, envFile string
	ttl, idle                          string
	allow, deny, publish, env, labels  []string
	links, expose, mounts, dns         []string
	allowECH                           bool
	pull                               pullFlag
}

func (f *sandboxFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.image, "image", "", "`IMAGE` of the sandbox (default: the profile's, else base)")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE`: strict, compat, debug, or a name from the daemon's configuration (default strict)")
	flags.StringVar(&f.workspace, "workspace", "", "bind mount `DIR[:PATH][:rw|ro]` of the host (default PATH /workspace, default rw)")
	flags.StringArrayVar(&f.mounts, "mount", nil, "attach `MOUNT`: type=bind,src=DIR,dst=PATH[,ro], type=volume,src=NAME,dst=PATH[,ro] or type=tmpfs,dst=PATH[,size=SIZE]")
	flags.StringVarP(&f.user, "user", "u", "", "`USER`: name, uid or uid:gid (default: the profile's, else 1000:1000)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set environment variable `K=V`; K alone copies its value from here")
	flags.StringVar(&f.envFile, "env-file", "", "set the variables of `FILE`, one on each line, as with --env")
	flags.StringVarP(&f.memory, "memory", "m", "", "memory limit `SIZE`, without swap, such as 2G (default: the profile's, else 512M)")
	flags.StringVar(&f.cpus, "cpus", "", "number `N` of CPUs, such as 1.5 (default: the profile's, else 1)")
	flags.StringVar(&f.shares, "cpu-shares", "", "CPU shares `N` (relative weight), 2 to 262144 (default: the profile's, else 1024)")
	flags.StringVar(&f.pids, "pids", "", "limit of `N` processes and threads, such as 1024 (default: the profile's, else 256)")
	flags.StringVar(&f.files, "open-files", "", "limit of `N` open files per process, such as 4096 (default: the profile's, else 1024)")
	flags.StringVar(&f.tmpfs, "tmpfs", "", "`SIZE` of each tmpfs, such as 1G, for at most 100,000 files (default: the profile's, else half the memory)")
	flags.StringVar(&f.ioRead, "io-read-bps", "", "read at most `RATE` bytes per second from each disk, such as 10M (default: the profile's, else unbounded)")
	flags.StringVar(&f.ioWrite, "io-write-bps", "", "write at most `RATE` bytes per second to each disk, such as 10M (cgroup v2; default: the profile's, else unbounded)")
	flags.StringVar(&f.shm, "shm-size", "", "`SIZE` of /dev/shm, such as 1G (default: the profile's, else that of each tmpfs)")
	registerNetwork(cmd, &f.network, &f.allow, &f.deny)
	flags.StringArrayVar(&f.dns, "dns", nil, "ask DNS resolver `ADDRESS[:PORT]`, one that the operator allows, at most three")
	flags.BoolVar(&f.allowECH, "allow-ech", false, "allow TLS clients to hide the server name (ECH); rules then cannot check it")
	flags.StringArrayVarP(&f.publish, "publish", "p", nil, "publish a port of the sandbox on the host, `[ADDR:]PORT:PORT` (default address 127.0.0.1; host port 0 picks one)")
	flags.StringSliceVar(&f.expose, "expose", nil, "let links of your other sandboxes reach `PORT` (from 54)")
	flags.StringArrayVar(&f.links, "link", nil, "link NAME to an exposed port of another sandbox of yours, `NAME=SANDBOX:PORT`")
	flags.StringVar(&f.name, "name", "", "`NAME` of the sandbox (default: its ID)")
	flags.StringVar(&f.hostname, "hostname", "", "sandbox host `NAME` (default: its ID)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "set label `K=V`")
	flags.StringVar(&f.session, "session", "", "session `ID` of the caller")
	flags.StringVar(&f.task, "task", "", "task `ID` of the caller")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions( // the flag is there
		[]string{"strict", "compat", "debug"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerNetwork adds the flags that say how far a sandbox reaches.
func registerNetwork(cmd *cobra.Command, mode *string, allow, deny *[]string) {
	flags := cmd.Flags()
	flags.StringVar(mode, "network", "", "network `MODE`: none, allow, open or bridge (default: allow with --allow, else the profile's, which is none)")
	flags.StringArrayVar(allow, "allow", nil, "allow `RULE`: HOST[:PORT][+PORT…][,private] (default ports 80 and 443)")
	flags.StringArrayVar(deny, "deny", nil, "deny `RULE`: HOST[:PORT][+PORT…]; deny wins over allow")
	_ = cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{"none", "allow", "open", "bridge"}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *sandboxFlags) registerTTL(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.ttl, "ttl", "", "remove the sandbox `DURATION` after creation, such as 2h, or never (the default)")
}

// registerLife adds the flags of a sandbox that outlives its first command.
func (f *sandboxFlags) registerLife(cmd *cobra.Command) {
	f.registerTTL(cmd)
	cmd.Flags().StringVar(&f.idle, "idle-timeout", "", "remove the sandbox when it is idle for `DURATION`, such as 10m, or never (the default)")
}

// spec is what the flags say. The environment is the sandbox's, or that of the
// one command which it is for: the caller puts it where it belongs.
func (f *sandboxFlags) spec(p *parser) *caissonv1.SandboxSpec {
	p.notEmpty("image", "profile", "network", "user", "name", "hostname", "session", "task")
	s := &caissonv1.SandboxSpec{
		Name: f.name, Hostname: f.hostname, Image: f.image, Profile: f.profile, User: f.user, Network: f.network, Allow: f.allow, Deny: f.deny, Dns: f.dns, AllowEch: f.allowECH, Publish: f.publish,
		Expose: p.ports("expose", f.expose), Links: f.links,
		Session: f.session, Task: f.task,
		Limits: &caissonv1.Limits{
			MemoryBytes: p.number("memory", f.memory, units.ParseSize),
			MilliCpu:    p.number("cpus", f.cpus, units.ParseCPU),
			CpuShares:   p.number("cpu-shares", f.shares, parseCount),
			Pids:        p.number("pids", f.pids, parseCount),
			OpenFiles:   p.number("open-files", f.files, parseCount),
			TmpfsBytes:  p.number("tmpfs", f.tmpfs, units.ParseSize),
			IoReadBps:   p.number("io-read-bps", f.ioRead, units.ParseSize),
			IoWriteBps:  p.number("io-write-bps", f.ioWrite, units.ParseSize),
			ShmBytes:    p.number("shm-size", f.shm, units.ParseSize),
		},
		Labels:      p.labels(f.labels),
		Workspace:   p.workspace(f.workspace),
		Mounts:      p.mounts(f.mounts),
		Ttl:         p.orNever("ttl", f.ttl),
		IdleTimeout: p.orNever("idle-timeout", f.idle),
	}
	setLanguage(s)
	return s
}

// commandFlags are those of every command: of run, spec and exec.
type commandFlags struct {
	cwd, timeout, outputLimit            string
	interactive, terminal, detach, shell bool
	ulimits, inputs                      []string
}

// limitNames are those that --ulimit takes: all that Linux has.
const limitNames = "as, core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending or stack"

func (f *commandFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows CMD is CMD's
	flags.StringVarP(&f.cwd, "workdir", "w", "", "working directory `DIR` (default: the workspace, else the image's)")
	flags.StringVar(&f.timeout, "timeout", "", "stop the command after `DURATION`, such as 30s or 5m (exit code 124)")
	flags.StringVar(&f.outputLimit, "output-limit", "", "keep at most `SIZE` of each output stream, first and last half (default 10M)")
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "keep standard input open and forward it")
	flags.BoolVarP(&f.terminal, "tty", "t", false, "allocate a pseudo-TTY")
	flags.BoolVar(&f.shell, "shell", false, "run the shell script on standard input with /bin/sh")
	flags.StringArrayVar(&f.ulimits, "ulimit", nil, "set resource limit `NAME=SOFT[:HARD]` of setrlimit(2), such as nofile=64:128, at most the sandbox's; NAME is "+limitNames)
	flags.StringArrayVar(&f.inputs, "input", nil, "copy `FILE[:PATH[:MODE]]` into the sandbox for as long as the command runs; PATH is a name in "+inputDir+" (default: the file's) or an absolute path on a tmpfs, MODE is octal (default 0400)")
}

func (f *commandFlags) spec(p *parser) *caissonv1.ExecSpec {
	p.notEmpty("workdir")
	spec := &caissonv1.ExecSpec{
		Workdir: f.cwd, Stdin: f.interactive,
		OutputLimitBytes: p.number("output-limit", f.outputLimit, units.ParseSize),
		Timeout:          p.duration("timeout", f.timeout),
		Rlimits:          p.ulimits(f.ulimits),
		Inputs:           p.inputs(f.inputs),
	}
	if f.terminal {
		spec.Tty = defaultSize.Message()
	}
	return spec
}

// command is what is to be run: args, or the script on stdin. Without either, line
// says how to give one; where it is empty, none is needed.
func (f *commandFlags) command(p *parser, spec *caissonv1.ExecSpec, args []string, stdin io.Reader, line string) {
	switch {
	case f.shell && len(args) > 0:
		p.refuse(usage("--shell and a command exclude each other: the script is read from standard input"))
	case f.shell && f.interactive:
		p.refuse(usage("--shell and -i exclude each other: standard input is the script"))
	case !f.shell && (len(args) == 0 && line != "" || len(args) > 0 && args[0] == ""):
		p.refuse(usage("there is no command: %s", cmp.Or(line, "the first word is empty")))
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
	spec.Exec.Env = p.environment(f.envFile, f.env, a.lookupEnv)
	line := "caisson run [flags] -- CMD [ARG…]"
	if f.image != "" {
		line = "" // it may have one
	}
	f.command(&p, spec.Exec, args, a.stdin, line)
	return spec, p.end(spec)
}
