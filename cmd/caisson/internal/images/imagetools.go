package images

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// toolPackages are what agents type most, by the names that Debian and Fedora share.
var toolPackages = []string{
	"bash", "coreutils", "findutils", "grep", "sed", "gawk", "diffutils", "patch", "file", "tar", "gzip", "xz-utils", "unzip", "ca-certificates",
	"git", "python3", "curl", "jq", "ripgrep", "nodejs", "make",
}

// defaultToolsImage is the image of image tools where no name is given.
const defaultToolsImage = "tools"

func imageToolsCommand(a *cli.App) *cobra.Command {
	var paths []string
	cmd := &cobra.Command{
		Use:   "tools [NAME] [--path DIR]...",
		Short: "Create an image of the tools that agents use, from the host",
		Long: "Create an image of the tools that agents use, from software installed on the\nhost: as image from-host does, of those of these packages that are there.\n\n" +
			strings.Join(toolPackages, ", ") + ".",
		Example: "  caisson image tools\n  caisson image tools --path /usr/lib/node_modules/npm\n  caisson run --image tools -- git --version",
		Args:    cli.AtMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := defaultToolsImage
			if len(args) > 0 {
				name = args[0]
			}
			there, missing, err := installed(cmd.Context(), toolPackages)
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				a.Progress("not installed on this host: " + strings.Join(missing, ", "))
			}
			return fromHost(a, cmd.Context(), &caissonv1.FromHostRequest{Name: name, Packages: there, Paths: paths})
		},
	}
	cmd.Flags().StringArrayVar(&paths, "path", nil, "also copy the file or directory `DIR` as it is, with its libraries")
	a.OutputFlags(cmd)
	return cmd
}

// installed parts packages by whether dpkg or rpm has them.
func installed(ctx context.Context, packages []string) (there, missing []string, err error) {
	query, err := packageQuery()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range packages {
		out, err := exec.CommandContext(ctx, query[0], append(query[1:len(query):len(query)], p)...).Output()
		switch _, ended := errors.AsType[*exec.ExitError](err); {
		case err == nil && !strings.Contains(string(out), "not-installed") && !strings.Contains(string(out), "config-files"):
			there = append(there, p)
		case err == nil || ended:
			missing = append(missing, p)
		default:
			return nil, nil, sbxerr.Wrap(sbxerr.ClientIO, "caisson.tools", err)
		}
	}
	if len(there) == 0 {
		return nil, nil, sbxerr.New(sbxerr.FromHost, "caisson.tools", "none of %s is installed on this host", strings.Join(packages, ", "))
	}
	return there, missing, nil
}

// packageQuery is the command that fails for a package that is not installed.
func packageQuery() ([]string, error) {
	for _, query := range [][]string{{"dpkg-query", "-W", "-f", "${db:Status-Status}"}, {"rpm", "-q"}} {
		if _, err := exec.LookPath(query[0]); err == nil {
			return query, nil
		}
	}
	return nil, sbxerr.WithRemedy(sbxerr.FromHost, "caisson.tools", errors.New("this host has neither dpkg nor rpm"), "name files: caisson image from-host tools --path DIR")
}
