// Command caissond is the daemon of caisson. It runs as root, as the engine that it
// starts does: containerd, its shims and runc.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/netns"
)

// Set by the build.
var (
	version = "unknown"
	commit  = "unknown"
)

// exitRuntime is the exit code of a failure that is not a command's.
const exitRuntime = 125

// exitUnhealthy is doctor's exit code where a run would fail on this host.
const exitUnhealthy = 1

// The first thread runs nothing but main: Go cannot end it, so it must never be
// one whose namespaces or rights a piece of work changes for itself.
func init() { goruntime.LockOSThread() }

// gcPercent lets the heap triple before it is collected. A command's input is garbage as
// soon as its pipe has it: with the usual 100 a stream of it spends a fifth of its time in
// collecting, and with 200 a tenth, for 5 MB.
const gcPercent = 200

func main() {
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := netns.CleanEnvironment()
	cmd := rootCommand(&flags{systemd: takeSystemd()})
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	switch {
	case errors.Is(err, errUnhealthy):
		return exitUnhealthy // the checks have told
	case err != nil:
		fmt.Fprintf(stderr, "caissond: %v\n  remedy: %s\n", api.Explain(err), sbxerr.RemedyOf(err))
		return exitRuntime
	}
	return 0
}

// flags are the settings that a command line can give. They win over the
// environment, which wins over the file.
type flags struct {
	file, root, state, socket, binDir, address string
	idle                                       time.Duration
	keep, stopAll                              bool

	systemd systemd // of which the daemon is a unit
}

// helpWidth is how many columns help has: those of the smallest usual terminal.
const helpWidth = 80

var setUpCobra = sync.OnceFunc(func() { // its maps are for the process
	cobra.AddTemplateFunc("flags", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(helpWidth) })
})

// fitHelp has the help of root and of all below it wrapped to helpWidth.
func fitHelp(root *cobra.Command) {
	setUpCobra()
	root.SetUsageTemplate(strings.NewReplacer(".LocalFlags.FlagUsages", "flags .LocalFlags", ".InheritedFlags.FlagUsages", "flags .InheritedFlags").Replace(root.UsageTemplate()))
}

func rootCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "caissond",
		Short:         "The caisson daemon: runs the commands of AI agents in sandboxes",
		Args:          noArgs,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.serve(cmd.Context(), func() (config.Config, error) { return f.daemonConfig(cmd) }, cmd.ErrOrStderr())
		},
	}
	cmd.SetFlagErrorFunc(flagError)
	p := cmd.PersistentFlags()
	p.StringVar(&f.file, "config", config.DefaultFile, "configuration `file`")
	p.StringVar(&f.root, "root", "", "`directory` on disk for images and kept output (default "+config.DefaultRoot+")")
	p.StringVar(&f.state, "state", "", "`directory` on tmpfs for what dies with the boot (default "+config.DefaultState+")")
	p.StringVar(&f.socket, "socket", "", "unix socket `path` of the API (default caisson.sock in the state directory)")
	p.StringVar(&f.binDir, "bin-dir", "", "`directory` of caisson-init, caisson-gateway, caisson-shim, containerd, its shim and runc (default: that of caissond, or ../libexec/caisson from there)")
	p.StringVar(&f.address, "containerd-address", "", "`socket` of the host's own containerd, 1.7 or newer")
	p.DurationVar(&f.idle, "idle-timeout", 0, "end after so long without a sandbox or a call; 0 never")
	p.BoolVar(&f.keep, "keep-on-exit", true, "leave sandboxes running when the daemon is stopped, for the next one")
	cmd.Flags().BoolVar(&f.stopAll, "stop-all", false, "end the sandboxes that a stopped daemon left, remove what is left of them, and exit")
	cmd.AddCommand(doctorCommand(f), schemaCommand())
	fitHelp(cmd)
	return cmd
}

// daemonConfig is config for a daemon that serves: it takes its secrets out of the environment,
// and has commands print theirs.
func (f *flags) daemonConfig(cmd *cobra.Command) (config.Config, error) {
	c, err := f.config(cmd)
	if err != nil || f.stopAll { // which needs none, and has the environment of another unit
		return c, err
	}
	if err = errors.Join(started.take(c), checkOwnSecrets(c)); err == nil {
		err = printed.run(cmd.Context(), c) // last: it takes long
	}
	return c, c.Locate(err)
}

// config puts the settings together and checks them.
func (f *flags) config(cmd *cobra.Command) (config.Config, error) {
	c, err := config.Load(f.file, cmd.Flags().Changed("config"))
	if err != nil {
		return config.Config{}, err
	}
	c.Environment(os.LookupEnv)
	for _, given := range []struct {
		flag, value string
		field       *string
	}{
		{"root", f.root, &c.Root},
		{"state", f.state, &c.State},
		{"socket", f.socket, &c.Socket},
		{"bin-dir", f.binDir, &c.BinDir},
		{"containerd-address", f.address, &c.Containerd.Address},
	} {
		if cmd.Flags().Changed(given.flag) { // an empty value too: it must not quietly be the default
			*given.field = given.value
		}
	}
	if cmd.Flags().Changed("idle-timeout") {
		c.IdleTimeout = config.Duration(f.idle)
	}
	if cmd.Flags().Changed("keep-on-exit") {
		c.Sandboxes.KeepOnExit = f.keep
	}
	if f.stopAll && cmd.Flags().Changed("keep-on-exit") {
		return config.Config{}, usage("--stop-all and --keep-on-exit exclude each other")
	}
	if f.stopAll {
		c.Sandboxes.KeepOnExit, c.Warm, c.Pools, c.Registries.PullAtStart = false, 0, nil, false
		c.Listen = config.Listen{} // whose certificate may have expired
	}
	if c.BinDir == "" {
		if c.BinDir, err = findPrograms(); err != nil {
			return config.Config{}, err
		}
	}
	kept, err := readKept(c.Root)
	c.KnowSecrets(maps.Keys(kept))
	err = errors.Join(err, c.Complete(), checkNames(c))
	if err == nil { // of what is no path, or for nobody, that is said already
		err = errors.Join(checkEngine(c), checkPeers(c))
	}
	return c, c.Locate(err)
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config-schema",
		Short: "Print the JSON Schema of the configuration file",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := config.Schema()
			if err != nil {
				return err
			}
			var schema map[string]any
			if err := json.Unmarshal(raw, &schema); err != nil {
				return sbxerr.Wrap(sbxerr.Internal, "caissond.schema", err)
			}
			return writeJSON(cmd.OutOrStdout(), schema)
		},
	}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
