package host

import (
	"cmp"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// apiName names the API that this client speaks: the package of its messages.
var apiName = string(caissonv1.File_caisson_v1_system_proto.Package())

type versionView struct {
	Version   string    `json:"version"`
	Commit    string    `json:"commit"`
	GoVersion string    `json:"go_version"`
	API       string    `json:"api"`
	Daemon    any       `json:"daemon"` // null where it is not asked for
	Deps      []depView `json:"deps,omitempty"`
}

// depView is a Go module that is linked into this program.
type depView struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum"` // of its content, as in go.sum
}

func deps() []depView {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	return cli.Each(info.Deps, func(m *debug.Module) depView {
		m = cmp.Or(m.Replace, m)
		return depView{m.Path, m.Version, m.Sum}
	})
}

func VersionCommand(a *cli.App) *cobra.Command {
	var daemon, withDeps bool
	cmd := &cobra.Command{
		Use:     "version [--daemon] [--deps]",
		Short:   "Show the version",
		Example: "  caisson version\n  caisson version --daemon",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var d *caissonv1.VersionResponse
			v := versionView{Version: a.Program.Version, Commit: a.Program.Commit, GoVersion: goruntime.Version(), API: apiName}
			if daemon {
				client, err := a.RunningClient()
				if err != nil {
					return err
				}
				defer client.Close()
				if d, err = client.Version(cmd.Context(), &caissonv1.VersionRequest{}); err != nil {
					return err
				}
				v.Daemon = a.Message(d)
			}
			if withDeps {
				v.Deps = deps()
			}
			if a.Output == cli.FormatJSON {
				return a.PrintJSON(v)
			}
			return printVersion(a, v, d)
		},
	}
	cmd.Flags().BoolVar(&daemon, "daemon", false, "show the versions of the daemon and its engine too")
	cmd.Flags().BoolVar(&withDeps, "deps", false, "show the Go modules that are linked into caisson too")
	a.OutputFlags(cmd)
	return cmd
}

func printVersion(a *cli.App, v versionView, d *caissonv1.VersionResponse) error {
	if err := a.PrintLine("caisson %s (commit %s, %s, API %s)", v.Version, v.Commit, v.GoVersion, v.API); err != nil {
		return err
	}
	for _, m := range v.Deps {
		if err := a.PrintLine("%s %s", m.Path, m.Version); err != nil {
			return err
		}
	}
	if d == nil {
		return nil
	}
	engine := "of its own"
	if d.ContainerdAddress != "" {
		engine = "on " + d.ContainerdAddress
	}
	return a.PrintLine("caissond %s (commit %s, %s)\ncontainerd %s %s\nrunc %s\nroot %s, instance %s",
		cli.Printable(d.Version), cli.Printable(d.Commit), cli.Printable(d.GoVersion), cli.Printable(d.Containerd), cli.Printable(engine),
		cli.Printable(d.Runc), cli.Printable(d.Root), cli.Printable(d.Instance))
}
