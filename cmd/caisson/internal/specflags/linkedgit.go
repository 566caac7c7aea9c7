package specflags

import (
	"os"
	"path/filepath"
	"strings"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// NoteLinkedGit says which mount git inside needs where the workspace is a linked worktree:
// its repository lies elsewhere (gitrepository-layout(5), "commondir").
func NoteLinkedGit(a *cli.App, s *caissonv1.SandboxSpec) {
	dir := s.GetWorkspace().GetDir()
	if dir == "" || a.Quiet {
		return
	}
	repository := repositoryOf(dir)
	if repository == "" || below(repository, dir) {
		return
	}
	for _, m := range s.GetMounts() {
		if below(repository, m.GetTarget()) {
			return
		}
	}
	mount := MountText(&caissonv1.Mount{Type: "bind", Source: repository, Target: repository})
	a.Progress("caisson: " + dir + " is a linked git worktree; git inside needs --mount " + mount + " (with ,readonly it only reads)")
}

// repositoryOf is the repository of the linked worktree at dir, "" where it is none.
func repositoryOf(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, ".git")) // an own repository has a directory there
	own, linked := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if !linked || !filepath.IsAbs(own) {
		return ""
	}
	common, err := os.ReadFile(filepath.Join(own, "commondir"))
	if err != nil {
		return ""
	}
	at := strings.TrimSpace(string(common))
	if !filepath.IsAbs(at) {
		at = filepath.Join(own, at)
	}
	return at
}

func below(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest)
}
