package main

import (
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

type versionView struct {
	Version   string             `json:"version"`
	Commit    string             `json:"commit"`
	GoVersion string             `json:"go_version"`
	Daemon    *daemonVersionView `json:"daemon"`
}

type daemonVersionView struct {
	Version           string `json:"version"`
	Commit            string `json:"commit"`
	GoVersion         string `json:"go_version"`
	Containerd        string `json:"containerd"`
	ContainerdAddress string `json:"containerd_address"`
	Runc              string `json:"runc"`
	Root              string `json:"root"`
	Instance          string `json:"instance"`
}

func (a *app) versionCommand() *cobra.Command {
	var daemon bool
	cmd := &cobra.Command{
		Use:     "version [--daemon]",
		Short:   "Show the version",
		Example: "  caisson version\n  caisson version --daemon",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionView{Version: version, Commit: commit, GoVersion: goruntime.Version()}
			if daemon {
				client := api.Dial(a.socket)
				defer client.Close()
				r, err := client.Version(cmd.Context(), &caissonv1.VersionRequest{})
				if err != nil {
					return err
				}
				v.Daemon = &daemonVersionView{
					r.Version, r.Commit, r.GoVersion, r.Containerd, r.ContainerdAddress, r.Runc, r.Root, r.Instance,
				}
			}
			if a.output == formatJSON {
				return a.printJSON(v)
			}
			return a.printVersion(v)
		},
	}
	cmd.Flags().BoolVar(&daemon, "daemon", false, "show the versions of the daemon and its engine too")
	a.outputFlags(cmd)
	return cmd
}

func (a *app) printVersion(v versionView) error {
	if err := a.printLine("caisson %s (%s, %s)", v.Version, v.Commit, v.GoVersion); err != nil || v.Daemon == nil {
		return err
	}
	d := v.Daemon
	engine := "of its own"
	if d.ContainerdAddress != "" {
		engine = "on " + d.ContainerdAddress
	}
	return a.printLine("caissond %s (%s, %s)\ncontainerd %s %s\nrunc %s\nroot %s, instance %s",
		printable(d.Version), printable(d.Commit), printable(d.GoVersion), printable(d.Containerd), printable(engine),
		printable(d.Runc), printable(d.Root), printable(d.Instance))
}
