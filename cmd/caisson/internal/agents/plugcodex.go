package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/specflags"
	"github.com/caisson-run/caisson/plug/codex"
)

const plugCodexLong = `Run the commands of Codex CLI, and its work on files, in a sandbox. --install has Codex
start caisson as its only executor, with the given flags. Codex then makes a sandbox for the
directory that it is started in, unless it is there. The directory has the same path inside.

Start Codex with --sandbox danger-full-access: its own sandbox is off then, and caisson's
holds. Codex's other modes are enforced, or a command is refused.`

func plugCodexCommand(a *cli.App) *cobra.Command {
	var box specflags.SandboxFlags
	var listen cli.LoopbackFlags
	var serve, install, show bool
	cmd := &cobra.Command{
		Use:     "codex --install|--print|--serve|--listen ADDR:PORT [flags]",
		Short:   "Run the commands of Codex CLI in a sandbox",
		Long:    plugCodexLong,
		Example: "  caisson plug codex --install --image tools --allow github.com\n  codex --sandbox danger-full-access",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := cli.NewParser(cmd.Flags())
			p.NotEmpty("listen", "token-file")
			switch {
			case len(slices.DeleteFunc([]bool{serve, install, show, listen.Listen != ""}, func(on bool) bool { return !on })) != 1:
				p.Refuse(cli.Usage("give one of --install, --print, --serve and --listen"))
			case listen.TokenFile != "" && listen.Listen == "":
				p.Refuse(cli.Usage("--token-file needs --listen"))
			}
			spec := plugged(p, &box, "codex")
			spec.Env = box.Environment(p, a)
			if err := p.End(spec); err != nil {
				return err
			}
			if serve || listen.Listen != "" {
				return serveCodex(a, cmd.Context(), spec, listen)
			}
			settings, err := codexSettings(a, givenFlags(cmd, spec, "install", "print", "socket"))
			if err != nil {
				return err
			}
			if show {
				return a.PrintLine("%s", strings.TrimSuffix(settings, "\n"))
			}
			return installCodex(a, settings)
		},
	}
	cmd.Flags().BoolVar(&install, "install", false, "write Codex's environments.toml")
	cmd.Flags().BoolVar(&show, "print", false, "print it instead")
	cmd.Flags().BoolVar(&serve, "serve", false, "serve Codex over standard input and output, as it starts caisson by that file")
	cmd.Flags().StringVar(&listen.Listen, "listen", "", "serve Codex over a websocket at `ADDR:PORT` of the loopback interface, until a signal comes")
	cmd.Flags().StringVar(&listen.TokenFile, "token-file", "", "`FILE` with the token in the websocket's address (default: a new one at each start)")
	box.Register(cmd)
	box.RegisterLife(cmd)
	return cmd
}

// serveCodex is Codex's executor. Over standard input and output it ends with Codex. Without
// a daemon it serves, too: each command then tells why it cannot run.
func serveCodex(a *cli.App, ctx context.Context, spec *caissonv1.SandboxSpec, listen cli.LoopbackFlags) error {
	debug.SetGCPercent(100) // it lives long and moves little
	ctx, stop := cli.EndOnSignal(ctx)
	defer stop()
	client, err := a.Client(ctx)
	if err != nil {
		client, err = a.RunningClient()
	}
	if err != nil {
		return err
	}
	defer client.Close()
	o := codex.Options{Client: client, Spec: spec}
	if listen.Listen != "" {
		return listenCodex(a, ctx, o, listen)
	}
	return sbxerr.Wrap(sbxerr.ClientIO, "caisson.plug", codex.Serve(ctx, o, a.Stdin, a.Stdout))
}

// listenCodex serves websockets until ctx ends.
func listenCodex(a *cli.App, ctx context.Context, o codex.Options, f cli.LoopbackFlags) error {
	f.Listen = strings.TrimPrefix(f.Listen, "ws://") // as Codex writes it
	token, err := f.Token()
	if err != nil {
		return err
	}
	l, err := f.Open()
	if err != nil {
		return err
	}
	h := codex.NewHandler(o, token)
	defer h.Close()
	return cli.ServeLoopback(ctx, l, h, func() error {
		fmt.Fprintln(a.Stderr, "caisson: give this address to Codex as url in environments.toml, in place of program and args")
		return a.PrintLine("ws://%s/?token=%s", l.Addr(), url.QueryEscape(token))
	})
}

// codexSettings are an environments.toml with caisson as the only executor. A basic string
// of TOML is one of JSON, and so is a list of them.
func codexSettings(a *cli.App, flags []string) (string, error) {
	self, err := a.Executable()
	if err != nil {
		return "", err
	}
	flags = append(a.SocketFlag(), flags...)
	program, err := json.Marshal(self)
	if err != nil {
		return "", err
	}
	args, err := json.Marshal(append([]string{"plug", "codex", "--serve"}, flags...))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`default = "caisson"
include_local = false

[[environments]]
id = "caisson"
program = %s
args = %s
initialize_timeout_sec = 60
`, program, args), nil
}

// installCodex writes the settings, unless there are others.
func installCodex(a *cli.App, settings string) error {
	home, _ := a.LookupEnv("CODEX_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return sbxerr.Wrap(sbxerr.ClientIO, "caisson.plug", err)
		}
		home = filepath.Join(user, ".codex")
	}
	file := filepath.Join(home, "environments.toml")
	old, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = cmp.Or(os.MkdirAll(home, 0o700), writeNew(file, settings))
		old = []byte(settings)
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.ClientIO, "caisson.plug", err)
	}
	if string(old) != settings {
		fmt.Fprint(a.Stderr, onlyInOne(string(old), settings))
		return sbxerr.WithRemedy(sbxerr.APIUsage, "caisson.plug", fmt.Errorf("%s has other settings", file),
			"change it by hand, or move it away and install again")
	}
	return a.PrintLine("%s has Codex run its commands in a sandbox. Start it with: codex --sandbox danger-full-access", file)
}

// writeNew writes a file that is not there.
func writeNew(file, content string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// onlyInOne is the lines that only one of two texts has.
func onlyInOne(old, settings string) string {
	was, is := strings.Split(strings.TrimSpace(old), "\n"), strings.Split(strings.TrimSpace(settings), "\n")
	var b strings.Builder
	for _, line := range was {
		if !slices.Contains(is, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}
