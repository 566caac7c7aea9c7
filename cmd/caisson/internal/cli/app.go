package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
)

// signalGrace is how long a command may go on after the first Ctrl-C or
// SIGTERM, before its sandbox is ended.
const signalGrace = 10 * time.Second

// stuckGrace is how long a call has to return once it is ended.
const stuckGrace = 3 * time.Second

// App is one invocation: what it reads and writes, and what it asks of its
// host. Tests replace the latter.
type App struct {
	Program        Program
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	LookupEnv  func(string) (string, bool)
	cursor     cursor
	Exec       func(path string, argv, env []string) error
	Executable func() (string, error)
	exit       func(code int) // does not return
	euid       int
	autoSocket string          // where a daemon may be started
	unitDirs   func() []string // may have the daemon's unit
	grace      time.Duration
	stuck      time.Duration
	now        func() time.Time

	Socket   string       // --socket
	output   format       // -o, --json, --format
	wide     bool         // -o wide
	form     Form         // -o yaml, -o name and --format; nil is JSON
	template bool         // form is a template
	stream   streamFormat // --stream
	raw      bool         // --raw
	quiet    bool         // --quiet
	trace    bool         // --trace
}

func newApp(p Program, stdin io.Reader, stdout, stderr io.Writer) *App {
	return &App{
		Program: p, Stdin: stdin, Stdout: stdout, Stderr: stderr,
		LookupEnv: os.LookupEnv, Exec: syscall.Exec, Executable: p.executable, exit: os.Exit, euid: os.Geteuid(),
		autoSocket: api.DefaultSocket, unitDirs: unitDirs, grace: signalGrace, stuck: stuckGrace, now: time.Now, output: formatTable,
	}
}

func (a *App) run(ctx context.Context, args []string) int {
	args = helpFirst(shellFirst(args))
	if a.Program.Whole != "" && !a.light(args) {
		return a.finish(args, a.becomeWhole(args))
	}
	root := a.root(args)
	root.SetArgs(args)
	ctx = api.WithRequestID(ctx, a.requestID())
	cmd, err := root, unknownCommand(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if errors.Is(err, errWhole) {
		return a.finish(args, a.becomeWhole(args))
	}
	return a.finish(args, pointToHelp(cmd, err))
}

// helpFirst lets -h stand before the verb that it is about, too.
func helpFirst(args []string) []string {
	if len(args) < 2 || args[0] != "-h" && args[0] != "--help" || strings.HasPrefix(args[1], "-") {
		return args
	}
	return append(slices.Clone(args[1:]), args[0])
}

// requestID is how the caller names what this process asks for.
func (a *App) requestID() (id api.RequestID) {
	id.ID, _ = a.LookupEnv("CAISSON_REQUEST_ID")
	id.Traceparent, _ = a.LookupEnv("TRACEPARENT")
	return id
}

// root builds the tree of commands, as much of it as args need.
func (a *App) root(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "caisson",
		Short:         "Run commands in sandboxes",
		Long:          "Run the commands of AI agents in sandboxes. Nothing leaves a sandbox unless it is allowed.\nThe daemon is caissond.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // unknownCommand has seen them
		RunE:          ShowHelp,
	}
	root.Version = a.Program.Version // of --version and -v
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().StringVar(&a.Socket, "socket", a.defaultSocket(), "unix socket `PATH` of the daemon (env CAISSON_SOCKET)")
	fitHelp(root)
	a.addVerbs(root, args)
	return root
}

// verb is a command below the root.
type verb struct {
	name    string
	command func() *cobra.Command
}

// group is a heading of the root's help, with the verbs below it.
type group struct {
	title string
	verbs []verb
}

func (a *App) groups() []group {
	return []group{
		{"Commands", []verb{
			{"run", a.runCommand}, {"exec", a.execCommand}, {"shell", a.shellCommand}, {"attach", a.attachCommand}, {"ps", a.psCommand}, {"logs", a.logsCommand},
			{"wait", a.waitCommand}, {"kill", a.killCommand}, {"cp", a.cpCommand},
		}},
		{"Sandboxes", []verb{
			{"create", a.createCommand}, {"ls", a.lsCommand}, {"inspect", a.inspectCommand}, {"port", a.portCommand}, {"update", a.updateCommand}, {"pause", a.pauseCommand},
			{"resume", a.resumeCommand}, {"stop", a.stopCommand}, {"restart", a.restartCommand}, {"clean", a.cleanCommand}, {"snapshot", a.snapshotCommand}, {"fork", a.forkCommand}, {"diff", a.diffCommand}, {"rm", a.rmCommand},
		}},
		{"Agents", a.agentVerbs()},
		{"Images, volumes and network", []verb{{"image", a.imageCommand}, {"bundle", a.bundleCommand}, {"volume", a.volumeCommand}, {"policy", a.policyCommand}}},
		{"Watching", []verb{
			{"stats", a.statsCommand}, {"history", a.historyCommand}, {"events", a.eventsCommand}, {"info", a.infoCommand}, {"audit", a.auditCommand}, {"page", a.pageCommand},
			{"ping", a.pingCommand},
		}},
		{"Host", []verb{
			{"doctor", a.doctorCommand}, {"capabilities", a.capabilitiesCommand}, {"spec", a.specCommand}, {"explain", a.explainCommand}, {"config", a.configCommand},
			{"cleanup", a.cleanupCommand}, {"daemon", a.daemonCommand}, {"version", a.versionCommand}, {"completion", a.completionCommand},
		}},
	}
}

func (a *App) agentVerbs() []verb {
	verbs := []verb{{claudeShellVerb, a.claudeShellCommand}}
	for _, v := range a.Program.Agents {
		verbs = append(verbs, verb{v.Name, func() *cobra.Command { return v.Command(a) }})
	}
	return verbs
}

func (a *App) verbs() (all []verb) {
	for _, g := range a.groups() {
		all = append(all, g.verbs...)
	}
	return all
}

// addVerbs adds the verbs that args need to root, in their groups.
func (a *App) addVerbs(root *cobra.Command, args []string) {
	wanted := needed(a.verbs(), args)
	for _, g := range a.groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, v := range g.verbs {
			if !slices.ContainsFunc(wanted, func(w verb) bool { return w.name == v.name }) {
				continue
			}
			cmd := v.command()
			cmd.GroupID = g.title
			a.completeFlags(cmd)
			root.AddCommand(cmd)
		}
	}
}

// completeFlags has the daemon's names completed in the flags of cmd and of the commands below it.
func (a *App) completeFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{"image": a.completeImages, "profile": a.completeProfiles} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // the flag is there
		}
	}
	for _, below := range cmd.Commands() {
		a.completeFlags(below)
	}
}

// needed is the verb that args begin with; all of them where they begin otherwise,
// or with one that looks at the others. Building all is a tenth of a short call.
func needed(all []verb, args []string) []verb {
	if len(args) == 0 || args[0] == "completion" {
		return all
	}
	if i := slices.IndexFunc(all, func(v verb) bool { return v.name == args[0] }); i >= 0 {
		return all[i : i+1]
	}
	return all
}

func (a *App) defaultSocket() string {
	if socket, ok := a.LookupEnv("CAISSON_SOCKET"); ok && socket != "" {
		return socket
	}
	return a.autoSocket
}

// ShowHelp runs a command that only groups others.
func ShowHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// Client returns a client of the daemon, which it starts where that is meant
// to happen. An unreachable daemon shows with the first call.
func (a *App) Client(ctx context.Context) (*api.Client, error) {
	if a.Socket == a.autoSocket && a.euid == 0 {
		if err := a.ensureDaemon(ctx); err != nil {
			return nil, err
		}
	}
	return api.Dial(a.Socket), nil
}
