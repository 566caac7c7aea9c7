package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// unitName is the daemon's unit of systemd.
const unitName = "caissond.service"

// unitDirs are where systemd, if it runs, finds the units of the system.
func unitDirs() []string {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil
	}
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// isService reports whether the daemon of this host is a unit of systemd.
func (a *App) isService() bool {
	for _, dir := range a.UnitDirs() {
		if _, err := os.Stat(filepath.Join(dir, unitName)); err == nil {
			return true
		}
	}
	return false
}

// waitForService waits while systemd starts the daemon. One that an administrator stopped
// stays stopped: a daemon that is started beside the unit would keep the unit from starting.
func (a *App) waitForService(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errNoAnswer)
	defer cancel()
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		coming := isStarting(ctx) // asked first: the daemon may be there right after
		err := api.Ping(ctx, a.Socket)
		switch {
		case err == nil:
			return nil
		case errors.Is(context.Cause(ctx), context.Canceled):
			return context.Cause(ctx)
		case !coming || ctx.Err() != nil:
			return sbxerr.WithRemedy(sbxerr.DaemonOff, "caisson.start", errStopped, "systemctl start caissond (systemctl status caissond says why it does not run)")
		}
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
}

var errStopped = errors.New("the daemon is a service of systemd, which does not run")

// isStarting reports whether the unit starts, or is to be started.
func isStarting(ctx context.Context) bool {
	cmd := exec.CommandContext(ctx, "systemctl", "show", "--property=ActiveState,Job", unitName)
	out, err := cmd.Output()
	if err != nil {
		return false
	}
	told := strings.Fields(string(out))
	for _, property := range told {
		name, value, _ := strings.Cut(property, "=")
		switch {
		case name == "Job" && value != "" && value != "0":
			return true
		case name == "ActiveState" && value != "inactive" && value != "failed":
			return true
		}
	}
	return false
}
