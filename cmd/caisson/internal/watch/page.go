package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

const pageLong = `Print the URL of the daemon's page for the browser. Whoever has the URL has root's rights over
the sandboxes: it holds the page's token. The daemon serves the page if page.listen is set in
its configuration. From another machine, reach it through ssh -L 7070:127.0.0.1:7070 HOST.`

func PageCommand(a *cli.App) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:     "page [flags]",
		Short:   "Print the URL of the page for the browser",
		Long:    pageLong,
		Example: "  caisson page",
		Args:    cli.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			if err := a.RequireLocal("page"); err != nil {
				return err
			}
			if state == "" {
				state = filepath.Dir(a.Socket)
			}
			url, err := pageURL(filepath.Join(state, "page.url"))
			if err != nil {
				return err
			}
			if a.Output == cli.FormatJSON {
				return a.PrintJSON(map[string]string{"url": url})
			}
			return a.PrintLine("%s", url)
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "state `DIRECTORY` of the daemon (default: that of its socket)")
	a.OutputFlags(cmd)
	return cmd
}

// pageURL reads the file in which the daemon leaves the URL for root.
func pageURL(path string) (string, error) {
	const op = "caisson.page"
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", sbxerr.WithRemedy(sbxerr.DaemonOff, op, fmt.Errorf("no daemon serves a page: there is no %s", path),
			"name the daemon's state directory where it is not that of its socket: caisson page --state DIR; or set page.listen in its configuration, such as 127.0.0.1:7070, and start it again")
	case errors.Is(err, fs.ErrPermission):
		return "", sbxerr.WithRemedy(sbxerr.Rights, op, err, "the page is for root: run this command as root")
	case err != nil:
		return "", sbxerr.Wrap(sbxerr.ClientIO, op, err)
	}
	return strings.TrimSpace(string(b)), nil
}
