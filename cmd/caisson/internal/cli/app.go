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
	"github.com/caisson-run/caisson/cmd/caisson/internal/contexts"
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
	Exit       func(code int) // does not return
	Euid       int
	AutoSocket string          // where a daemon may be started
	UnitDirs   func() []string // may have the daemon's unit
	Grace      time.Duration
	Stuck      time.Duration
	Now        func() time.Time

	Socket   string       // --socket
	remote   remoteFlags  // --host and --context
	Output   Format       // -o, --json, --format
	Wide     bool         // -o wide
	Form     Form         // -o yaml, -o name and --format; nil is JSON
	template bool         // form is a template
	Stream   streamFormat // --stream
	raw      bool         // --raw
	Quiet    bool         // --quiet
	Trace    bool         // --trace
}

func NewApp(p Program, stdin io.Reader, stdout, stderr io.Writer) *App {
	return &App{
		Program: p, Stdin: stdin, Stdout: stdout, Stderr: stderr,
		LookupEnv: os.LookupEnv, Exec: syscall.Exec, Executable: p.executable, Exit: os.Exit, Euid: os.Geteuid(),
		AutoSocket: api.DefaultSocket, UnitDirs: unitDirs, Grace: signalGrace, Stuck: stuckGrace, Now: time.Now, Output: FormatTable,
	}
}

func (a *App) Run(ctx context.Context, args []string) int {
	args = helpFirst(shellFirst(args))
	if a.Program.Whole != "" && !a.light(args) {
		return a.finish(args, a.becomeWhole(args))
	}
	root := a.Root(args)
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

// Root builds the tree of commands, as much of it as args need.
func (a *App) Root(args []string) *cobra.Command {
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
	a.remoteFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("context", contexts.Complete(a.LookupEnv)) // the flag is there
	fitHelp(root)
	a.addVerbs(root, args)
	return root
}

func (a *App) Verbs() (all []Verb) {
	for _, g := range a.Program.Groups {
		all = append(all, g.Verbs...)
	}
	return all
}

// addVerbs adds the verbs that args need to root, in their groups.
func (a *App) addVerbs(root *cobra.Command, args []string) {
	wanted := needed(a.Verbs(), args)
	for _, g := range a.Program.Groups {
		root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title + ":"})
		for _, v := range g.Verbs {
			if !slices.ContainsFunc(wanted, func(w Verb) bool { return w.Name == v.Name }) {
				continue
			}
			cmd := v.Command(a)
			cmd.GroupID = g.Title
			a.completeFlags(cmd)
			root.AddCommand(cmd)
		}
	}
}

// completeFlags has the daemon's names completed in the flags of cmd and of the commands below it.
func (a *App) completeFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{"image": a.CompleteImages, "profile": a.completeProfiles} {
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
func needed(all []Verb, args []string) []Verb {
	if len(args) == 0 || args[0] == "completion" {
		return all
	}
	if i := slices.IndexFunc(all, func(v Verb) bool { return v.Name == args[0] }); i >= 0 {
		return all[i : i+1]
	}
	return all
}

func (a *App) defaultSocket() string {
	if socket, ok := a.LookupEnv("CAISSON_SOCKET"); ok && socket != "" {
		return socket
	}
	return a.AutoSocket
}

// ShowHelp runs a command that only groups others.
func ShowHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// Client returns a client of the daemon, which it starts where that is meant
// to happen. An unreachable daemon shows with the first call.
func (a *App) Client(ctx context.Context) (*api.Client, error) {
	o, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	if o.Dial == nil && o.Socket == a.AutoSocket && a.Euid == 0 {
		if err := a.ensureDaemon(ctx); err != nil {
			return nil, err
		}
	}
	return api.New(o), nil
}

// RunningClient is Client that starts no daemon.
func (a *App) RunningClient() (*api.Client, error) {
	o, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	return api.New(o), nil
}

// ClaudeShellVerb is hidden.
const ClaudeShellVerb = "claude-shell"

// shellFirst turns a call of Claude Code into one of our verbs.
func shellFirst(args []string) []string {
	if len(args) == 2 && args[0] == ClaudeShellFlag {
		return []string{ClaudeShellVerb, "--", args[1]}
	}
	return args
}

const (
	// ClaudeShellFlag is the first argument when Claude Code calls us as its shell. It has to
	// begin with a hyphen: the value of the prefix is cut there.
	ClaudeShellFlag = "--claude-shell"

	// EnvClaudeSandbox names the sandbox for such a call.
	EnvClaudeSandbox = "CAISSON_PLUG_SANDBOX"
)
