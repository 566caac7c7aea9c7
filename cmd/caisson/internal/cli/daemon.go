package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// daemonName is the daemon's program.
const daemonName = "caissond"

func (a *App) daemonCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "daemon [flags of caissond]",
		Short:              "Run the daemon in the foreground (caissond)",
		Example:            "  caisson daemon\n  caisson daemon --config my.yaml",
		DisableFlagParsing: true, // all flags are caissond's
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := a.findDaemon()
			if err != nil {
				return err
			}
			err = a.Exec(path, append([]string{daemonName}, args...), os.Environ())
			return sbxerr.Wrap(sbxerr.Binary, "caisson.daemon", fmt.Errorf("execute %s: %w", path, err))
		},
	}
}

// findDaemon returns the daemon's program: the one beside this program, else
// the one in PATH.
func (a *App) findDaemon() (string, error) {
	self, err := a.Executable()
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), daemonName)
		if _, err = os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", sbxerr.Wrap(sbxerr.Binary, "caisson.daemon", err)
	}
	path, err := exec.LookPath(daemonName)
	if err != nil {
		return "", sbxerr.New(sbxerr.Binary, "caisson.daemon", "%s is neither beside %s nor in PATH", daemonName, self)
	}
	return path, nil
}
