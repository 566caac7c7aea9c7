// Package specflags has the flags that say what to run and how to confine it.
package specflags

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// The flags that say what to run and how to confine it. What has a unit stays
// text until all flags are read, so that one refusal can name all that is wrong.

// SandboxFlags are those of a sandbox: of run, create and spec.
type SandboxFlags struct {
	Image, profile, workspace, network string
	hostname, rootfs, from, kept       string
	limits                             LimitFlags
	Name, session, task, user, envFile string
	ttl, idle, onIdle                  string
	allow, deny, publish, env, labels  []string
	caches                             []string
	links, expose, mounts, dns, routes []string
	allowECH                           bool
	Pull                               PullFlag
}

// Register gives cmd the flags.
func (f *SandboxFlags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.Image, "image", "", "`IMAGE` of the sandbox (default: the profile's, else base)")
	flags.StringVar(&f.profile, "profile", "", "`PROFILE`: strict, compat, debug, or a name from the daemon's configuration (default strict)")
	flags.StringVar(&f.workspace, "workspace", "", "bind mount `DIR[:PATH][:rw|ro]` of the host (default PATH /workspace, default rw); the host's stays as it is with :cow, and :clone makes a git clone")
	flags.StringArrayVar(&f.mounts, "mount", nil, "attach `MOUNT`: type=bind,src=PATH,dst=PATH[,ro], or type=volume,src=NAME,dst=PATH with ro or cow, or type=snapshot,src=NAME,dst=PATH, or type=tmpfs,dst=PATH[,size=SIZE]")
	flags.StringArrayVar(&f.caches, "cache", nil, "share the downloads of a tool: `NAME`: cargo, go, maven, npm, nuget, pip or uv, or NAME=PATH (default: the profile's)")
	flags.StringVarP(&f.user, "user", "u", "", "`USER`: name, uid or uid:gid (default: the profile's, else 1000:1000)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set environment variable `K=V`; K alone copies its value from here")
	flags.StringVar(&f.envFile, "env-file", "", "set the variables of `FILE`, one on each line, as with --env")
	f.limits.Register(flags, func(row *settings.Limit) string { return row.Usage })
	RegisterNetwork(cmd, &f.network, &f.allow, &f.deny)
	flags.StringArrayVar(&f.dns, "dns", nil, "ask DNS resolver `ADDRESS[:PORT]`, one that the operator allows, at most three")
	flags.StringArrayVar(&f.routes, "route", nil, "give the sandbox route `NAME` of its profile, one that is there on request (root: or NAME={upstream: URL, …})")
	flags.BoolVar(&f.allowECH, "allow-ech", false, "allow TLS clients to hide the server name (ECH); rules then cannot check it")
	flags.StringArrayVarP(&f.publish, "publish", "p", nil, "publish a port of the sandbox on the host, `[ADDR:]PORT:PORT` (default address 127.0.0.1; host port 0 picks one)")
	flags.StringSliceVar(&f.expose, "expose", nil, "let links of your other sandboxes reach `PORT` (from 54)")
	flags.StringArrayVar(&f.links, "link", nil, "link NAME to an exposed port of another sandbox of yours, `NAME=SANDBOX:PORT`")
	flags.StringVar(&f.Name, "name", "", "`NAME` of the sandbox (default: its ID)")
	flags.StringVar(&f.hostname, "hostname", "", "sandbox host `NAME` (default: its ID)")
	flags.StringVar(&f.from, "from", "", "begin with a copy of the disk of `SNAPSHOT`, and with its settings where no flag names others")
	flags.StringVar(&f.kept, "snapshot-on-end", "", "make a snapshot `NAME` of the disk when the sandbox ends")
	flags.StringVar(&f.rootfs, "rootfs", "", "ro, or rw: the root can be written, on the sandbox's disk, `MODE` (default: the profile's, else ro)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "set label `K=V`")
	flags.StringVar(&f.session, "session", "", "session `ID` of the caller")
	flags.StringVar(&f.task, "task", "", "task `ID` of the caller")
}

// RegisterNetwork adds the flags that say how far a sandbox reaches.
func RegisterNetwork(cmd *cobra.Command, mode *string, allow, deny *[]string) {
	flags := cmd.Flags()
	flags.StringVar(mode, "network", "", "network `MODE`: none, allow, open or bridge (default: allow with --allow, else the profile's, which is none)")
	flags.StringArrayVar(allow, "allow", nil, "allow `RULE`: HOST[:PORT][+PORT…][,OPTION…], or 'GET HOST/PATH' (default ports 80 and 443; options private and opaque)")
	flags.StringArrayVar(deny, "deny", nil, "deny `RULE`: HOST[:PORT][+PORT…]; deny wins over allow")
	_ = cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{"none", "allow", "open", "bridge"}, cobra.ShellCompDirectiveNoFileComp))
}

// LimitFlags are the texts of the flags of limits, in the order of the table.
type LimitFlags [len(settings.Table)]string

// Register adds the flag of each limit for which usage is not empty.
func (f *LimitFlags) Register(flags *pflag.FlagSet, usage func(*settings.Limit) string) {
	for i := range settings.Table {
		row := &settings.Table[i]
		if text := usage(row); text != "" {
			flags.StringVarP(&f[i], row.Flag, row.Short, "", text)
		}
	}
}

func (f *LimitFlags) message(p *cli.Parser) *caissonv1.Limits {
	m := &caissonv1.Limits{}
	for i := range settings.Table {
		row := &settings.Table[i]
		*row.Asked(m) = p.Number(row.Flag, f[i], row.Unit.Parse)
	}
	return m
}

// Change sets the limits that a live sandbox gets.
func (f *LimitFlags) Change(p *cli.Parser, req *caissonv1.UpdateRequest) {
	for i := range settings.Table {
		if row := &settings.Table[i]; row.Change != nil {
			*row.Change(req) = p.Number(row.Flag, f[i], row.ParseChange)
		}
	}
}

func (f *SandboxFlags) registerTTL(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.ttl, "ttl", "", "remove the sandbox `DURATION` after creation, such as 2h, or never (the default)")
}

// RegisterLife adds the flags of a sandbox that outlives its first command.
func (f *SandboxFlags) RegisterLife(cmd *cobra.Command) {
	f.registerTTL(cmd)
	cmd.Flags().StringVar(&f.idle, "idle-timeout", "", "the sandbox is idle after `DURATION` without work, such as 10m, or never (default: the profile's, else never)")
	cmd.Flags().StringVar(&f.onIdle, "on-idle", "", "`ACTION` on an idle sandbox: remove, or pause until somebody uses it (default: the profile's, else remove)")
}

// Spec is what the flags say. The environment is the sandbox's, or that of the
// one command which it is for: the caller puts it where it belongs.
func (f *SandboxFlags) Spec(p *cli.Parser) *caissonv1.SandboxSpec {
	p.NotEmpty("image", "profile", "network", "user", "name", "hostname", "rootfs", "from", "snapshot-on-end", "on-idle", "session", "task")
	s := &caissonv1.SandboxSpec{
		Name: f.Name, Hostname: f.hostname, Rootfs: f.rootfs, From: f.from, SnapshotOnEnd: f.kept, Image: f.Image, Profile: f.profile, User: f.user, Network: f.network, Allow: f.allow, Deny: f.deny, Dns: f.dns, Routes: f.routes, AllowEch: f.allowECH, Publish: f.publish,
		Expose: p.Ports("expose", f.expose), Links: f.links, Caches: f.caches,
		Session: f.session, Task: f.task,
		Limits:      f.limits.message(p),
		Labels:      p.Labels(f.labels),
		Workspace:   workspace(p, f.workspace),
		Mounts:      mounts(p, f.mounts),
		Ttl:         OrNever(p, "ttl", f.ttl),
		IdleTimeout: OrNever(p, "idle-timeout", f.idle),
		OnIdle:      f.onIdle,
	}
	cli.SetLanguage(s)
	return s
}

// Environment is what the flags set in a sandbox.
func (f *SandboxFlags) Environment(p *cli.Parser, a *cli.App) map[string]string {
	return p.Environment(f.envFile, f.env, a.LookupEnv)
}

// CommandFlags are those of every command: of run, spec and exec.
type CommandFlags struct {
	cwd, timeout, outputLimit            string
	DetachKeys                           string // of commands that have the flag
	Interactive, Terminal, Detach, Shell bool
	ulimits, inputs                      []string
}

// limitNames are those that --ulimit takes: all that Linux has.
const limitNames = "as, core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending or stack"

func (f *CommandFlags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows CMD is CMD's
	flags.StringVarP(&f.cwd, "workdir", "w", "", "working directory `DIR` (default: the workspace, else the image's)")
	flags.StringVar(&f.timeout, "timeout", "", "stop the command after `DURATION`, such as 30s or 5m (exit code 124)")
	flags.StringVar(&f.outputLimit, "output-limit", "", "keep at most `SIZE` of each output stream, first and last half (default 10M)")
	flags.BoolVarP(&f.Interactive, "interactive", "i", false, "keep standard input open and forward it")
	flags.BoolVarP(&f.Terminal, "tty", "t", false, "allocate a pseudo-TTY")
	flags.BoolVar(&f.Shell, "shell", false, "run the shell script on standard input with /bin/sh")
	flags.StringArrayVar(&f.ulimits, "ulimit", nil, "set resource limit `NAME=SOFT[:HARD]` of setrlimit(2), such as nofile=64:128, at most the sandbox's; NAME is "+limitNames)
	flags.StringArrayVar(&f.inputs, "input", nil, "copy `FILE[:PATH[:MODE]]` into the sandbox for as long as the command runs; PATH is a name in "+inputDir+" (default: the file's) or an absolute path on a tmpfs, MODE is octal (default 0400)")
}

func (f *CommandFlags) Spec(p *cli.Parser) *caissonv1.ExecSpec {
	p.NotEmpty("workdir")
	spec := &caissonv1.ExecSpec{
		Workdir: f.cwd, Stdin: f.Interactive,
		OutputLimitBytes: p.Number("output-limit", f.outputLimit, units.ParseSize),
		Timeout:          p.Duration("timeout", f.timeout),
		Rlimits:          ulimits(p, f.ulimits),
		Inputs:           inputs(p, f.inputs),
	}
	if f.Terminal {
		spec.Tty = cli.DefaultSize.Message()
	}
	return spec
}

// Command is what is to be run: args, or the script on stdin. Without either, line
// says how to give one; where it is empty, none is needed.
func (f *CommandFlags) Command(p *cli.Parser, spec *caissonv1.ExecSpec, args []string, stdin io.Reader, line string) {
	switch {
	case f.Shell && len(args) > 0:
		p.Refuse(cli.Usage("--shell and a command exclude each other: the script is read from standard input"))
	case f.Shell && f.Interactive:
		p.Refuse(cli.Usage("--shell and -i exclude each other: standard input is the script"))
	case !f.Shell && (len(args) == 0 && line != "" || len(args) > 0 && args[0] == ""):
		p.Refuse(cli.Usage("there is no command: %s", cmp.Or(line, "the first word is empty")))
	}
	spec.Args = args
	if !f.Shell || len(p.Errs) > 0 {
		return
	}
	script, err := readScript(stdin)
	if err != nil {
		p.Refuse(err)
	}
	spec.Shell = script
}

// RunFlags are the flags of run and spec.
type RunFlags struct {
	SandboxFlags
	CommandFlags
}

func (f *RunFlags) Register(cmd *cobra.Command) {
	f.SandboxFlags.Register(cmd)
	f.registerTTL(cmd)
	f.CommandFlags.Register(cmd)
}

// Spec is the request that the flags make, or all reasons why they make none.
func (f *RunFlags) Spec(flags *pflag.FlagSet, args []string, a *cli.App) (*caissonv1.RunSpec, error) {
	p := cli.Parser{Flags: flags}
	spec := &caissonv1.RunSpec{Sandbox: f.SandboxFlags.Spec(&p), Exec: f.CommandFlags.Spec(&p), Detach: f.Detach}
	spec.Exec.Env = p.Environment(f.envFile, f.env, a.LookupEnv)
	line := "caisson run [flags] -- CMD [ARG…]"
	if f.Image != "" {
		line = "" // it may have one
	}
	f.Command(&p, spec.Exec, args, a.Stdin, line)
	return spec, p.End(spec)
}

func readScript(r io.Reader) (string, error) {
	script, err := io.ReadAll(io.LimitReader(r, MaxScript+1))
	switch {
	case err != nil:
		return "", sbxerr.Wrap(sbxerr.ClientIO, "caisson.script", fmt.Errorf("read the script: %w", err))
	case len(script) > MaxScript:
		return "", cli.Usage("--shell: the script has more than %d bytes: copy it into the sandbox and run it there", MaxScript)
	case len(script) == 0:
		return "", cli.Usage("--shell: the script on standard input is empty")
	}
	return string(script), nil
}

// MaxScript bounds a script of --shell, in bytes: it is one argument of /bin/sh, and
// the kernel bounds those (MAX_ARG_STRLEN, execve(2)).
const MaxScript = 128<<10 - 1

// ulimits reads NAME=SOFT[:HARD], with names as ulimit's or as setrlimit's.
func ulimits(p *cli.Parser, list []string) []*caissonv1.Rlimit {
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
			p.Refuse(cli.Usage("--ulimit: %q is not NAME=SOFT[:HARD] with SOFT up to HARD, such as nofile=64:128", entry))
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

// OrNever is duration where "never" may be said too, which is zero.
func OrNever(p *cli.Parser, name, text string) *durationpb.Duration {
	if p.Flags.Changed(name) && text == never {
		return durationpb.New(0)
	}
	return p.DurationOr(name, text, cli.DurationExamples+", or never")
}

// never is the word for no end: a zero is none.
const never = "never"
