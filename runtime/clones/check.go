package clones

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

const takeCow = "take the files as they are: --workspace DIR:cow"

// Check refuses a workspace that is to be a clone, where the caller may not read the directory, or
// there is nothing to clone by reference.
func Check(ctx context.Context, g peer.Grant, w *plan.WorkspaceRequest) error {
	if !w.Clone() {
		return nil
	}
	dir := w.Dir
	top, err := g.CheckWorkspace(ctx, dir, false)
	if err != nil {
		return err
	}
	var refused error
	err = g.Bounded(ctx, dir, func() error {
		defer top.Close()
		refused = check(top.File, dir)
		return nil
	})
	return errors.Join(err, refused)
}

func check(top *os.File, dir string) error {
	refuse := func(remedy, why string) error {
		return sbxerr.WithRemedy(sbxerr.CloneSource, "clones.check", fmt.Errorf("host directory %q: %s", sbxerr.Clip(dir), why), remedy)
	}
	git, err := look(top, ".git")
	switch {
	case errors.Is(err, unix.ENOENT):
		_, errHead := look(top, "HEAD")
		if _, errObjects := look(top, "objects"); errHead == nil && errObjects == nil {
			return refuse("name a directory with a working tree: git clone it, or "+takeCow, "it is a bare repository")
		}
		return refuse(takeCow+", or make it a repository: git init", "it is no git repository: it has no .git")
	case err == nil && git.Mode&unix.S_IFMT == unix.S_IFREG:
		return refuse("name the main working tree (git worktree list), or "+takeCow, "its .git is a file: it is a linked worktree or a submodule")
	case errors.Is(err, unix.ELOOP), err == nil && git.Mode&unix.S_IFMT != unix.S_IFDIR:
		return refuse("name the directory in which .git is a directory, or "+takeCow, "its .git is no directory")
	}
	if err == nil {
		_, err = look(top, ".git/objects")
	}
	if err != nil {
		return refuse(takeCow, "its .git/objects cannot be found: "+err.Error())
	}
	if others, err := look(top, ".git/objects/info/alternates"); err == nil && others.Size > 0 || !errors.Is(err, unix.ENOENT) && err != nil {
		return refuse("copy the objects in: git repack -a -d, then remove .git/objects/info/alternates; or "+takeCow, "it has objects elsewhere (.git/objects/info/alternates)")
	}
	return nil
}

// look describes what name leads to below top, without a link on the way.
func look(top *os.File, name string) (st unix.Stat_t, err error) {
	fd, err := unix.Openat2(int(top.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return st, err
	}
	return st, errors.Join(unix.Fstat(fd, &st), unix.Close(fd))
}
