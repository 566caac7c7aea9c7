package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
)

// workspace reads DIR[:MODE]. The path goes to the daemon as it was typed. A link that
// is resolved here could be another one by the time the daemon opens the path, and the
// daemon could not tell who made it.
func (p *parser) workspace(text string) *caissonv1.Workspace {
	if !p.flags.Changed("workspace") {
		return nil
	}
	dir, mode, err := splitWorkspace(text)
	if err != nil {
		p.refuse(err)
		return nil
	}
	dir, err = filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		p.refuse(sbxerr.WithRemedy(sbxerr.Workspace, "caisson.workspace", fmt.Errorf("--workspace %q: %w", text, err), "name an existing directory"))
		return nil
	}
	return &caissonv1.Workspace{Dir: dir, Mode: mode}
}

func splitWorkspace(text string) (dir, mode string, err error) {
	at := strings.LastIndex(text, ":")
	if at < 0 || exists(text) {
		dir, mode = text, "rw"
	} else {
		dir, mode = text[:at], text[at+1:]
	}
	switch {
	case dir == "":
		return "", "", usage("--workspace: %q names no directory, write DIR[:rw|ro]", text)
	case mode == "cow":
		return "", "", sbxerr.WithRemedy(sbxerr.Workspace, "caisson.workspace",
			errors.New("--workspace: copy-on-write workspaces (cow) are not offered yet"), "use rw or ro")
	case mode == "rw" || mode == "ro":
		return dir, mode, nil
	}
	if near := nearest(mode, []string{"rw", "ro"}); near != "" {
		return "", "", usage("--workspace: %q is not a mode; did you mean %q?", mode, near)
	}
	return "", "", usage("--workspace: %q is not a mode, use rw or ro", mode)
}

// exists reports whether path names something, so that a colon in it is a part
// of its name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
