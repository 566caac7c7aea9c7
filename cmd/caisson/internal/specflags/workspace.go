package specflags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// workspace reads DIR[:PATH][:MODE]. The path goes to the daemon as it was typed. A link that
// is resolved here could be another one by the time the daemon opens the path, and the
// daemon could not tell who made it.
func workspace(p *cli.Parser, text string) *caissonv1.Workspace {
	if !p.Flags.Changed("workspace") {
		return nil
	}
	w, err := Workspace("--workspace", text)
	if err != nil {
		p.Refuse(err)
	}
	return w
}

// Workspace reads the argument or flag name: DIR[:PATH][:MODE].
func Workspace(name, text string) (*caissonv1.Workspace, error) {
	dir, point, mode, err := splitWorkspace(name, text)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err == nil {
		err = checkDir(dir)
	}
	if err != nil {
		return nil, sbxerr.WithRemedy(sbxerr.Workspace, "caisson.workspace", fmt.Errorf("%s %q: %w", name, text, err), dirRemedy(dir, err))
	}
	return &caissonv1.Workspace{Dir: dir, Mode: mode, Path: point}, nil
}

// dirRemedy is what helps where dir is no directory of the host for the reason err.
func dirRemedy(dir string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "name an existing directory, or make this one: mkdir -p " + cli.QuoteArgs([]string{dir})
	case errors.Is(err, syscall.ENOTDIR):
		return "name a directory; a file is given with caisson cp, or for one command: --input " + cli.QuoteArgs([]string{dir})
	}
	return "name an existing directory"
}

// checkDir refuses what is no directory of the host.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

var modes = []string{"rw", "ro", "cow", "clone"}

func splitWorkspace(name, text string) (dir, point, mode string, err error) {
	if exists(text) {
		return text, "", "rw", nil
	}
	dir, mode = text, "rw"
	if before, last, found := cutLast(text); found && !path.IsAbs(last) {
		dir, mode = before, last
	}
	if before, last, found := cutLast(dir); found && path.IsAbs(last) && !exists(dir) {
		dir, point = before, last
	}
	switch {
	case dir == "":
		return "", "", "", cli.Usage("%s: %q names no directory, write DIR[:PATH][:rw|ro|cow|clone]", name, text)
	case slices.Contains(modes, mode):
		return dir, point, mode, nil
	}
	if near := cli.Nearest(mode, modes); near != "" {
		return "", "", "", cli.Usage("%s: %q is not a mode; did you mean %q?", name, mode, near)
	}
	return "", "", "", cli.Usage("%s: %q is not a mode, use rw, ro, cow or clone", name, mode)
}

func cutLast(text string) (before, last string, found bool) {
	at := strings.LastIndex(text, ":")
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// exists reports whether path names something, so that a colon in it is a part
// of its name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
