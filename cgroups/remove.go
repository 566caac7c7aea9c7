package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// removeTimeout bounds Remove for callers whose ctx has no nearer deadline. A
// group whose processes are dead is free again within milliseconds.
const removeTimeout = 10 * time.Second

var errRemoveTimeout = fmt.Errorf("still busy after %s", removeTimeout)

// Remove removes the group from all hierarchies. It kills nothing. Absent is
// success; it goes on after errors and joins them; a hierarchy that is still
// busy, because a killed process has not finished, is tried again until ctx
// is over.
func (g *Group) Remove(ctx context.Context) error {
	return sbxerr.Wrap(sbxerr.Cgroup, "cgroups.remove", removeDirs(ctx, g.dirs()))
}

// RemoveParent removes the group that holds the sandboxes of one daemon, from
// all hierarchies. Absent is success; a parent that still has children is an
// error and keeps them.
func RemoveParent(ctx context.Context, h Host, parent string) error {
	const op = "cgroups.remove_parent"
	children, err := List(h, parent)
	if err != nil {
		return err
	}
	if len(children) > 0 {
		return sbxerr.New(sbxerr.Cgroup, op, "remove cgroup %q: it still holds %q", parent, children)
	}
	var dirs []string
	for _, m := range h.mounts() {
		dirs = append(dirs, filepath.Join(m, parent))
	}
	return sbxerr.Wrap(sbxerr.Cgroup, op, removeDirs(ctx, dirs))
}

// List returns the names of the groups right below parent in any hierarchy,
// sorted. An absent parent has none.
func List(h Host, parent string) ([]string, error) {
	const op = "cgroups.list"
	if !nameRule.MatchString(parent) {
		return nil, sbxerr.New(sbxerr.Internal, op, "name cgroup %q: want one component of lower-case letters, digits, - and _", parent)
	}
	var names []string
	var errs []error
	for _, m := range h.mounts() {
		found, err := subdirs(filepath.Join(m, parent))
		names = append(names, found...)
		errs = append(errs, err)
	}
	slices.Sort(names)
	return slices.Compact(names), sbxerr.Wrap(sbxerr.Cgroup, op, errors.Join(errs...))
}

// RemoveDir removes the group at dir and those below it, once its processes are gone. Absent
// is success.
func RemoveDir(ctx context.Context, dir string) error {
	return sbxerr.Wrap(sbxerr.Cgroup, "cgroups.remove_dir", removeDirs(ctx, []string{dir}))
}

func removeDirs(ctx context.Context, dirs []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeTimeout, errRemoveTimeout)
	defer cancel()
	var errs []error
	for wait := newPauses(); ; {
		var busy []string
		for _, dir := range dirs {
			err := removeTree(dir, maxDepth)
			if errors.Is(err, unix.EBUSY) {
				busy = append(busy, dir)
				continue
			}
			errs = append(errs, err)
		}
		if len(busy) == 0 {
			return errors.Join(errs...)
		}
		if err := wait.next(ctx); err != nil {
			return errors.Join(append(errs, describeBusy(busy), err)...)
		}
		dirs = busy
	}
}

// removeTree removes dir and the directories below it, deepest first. Files belong to the
// kernel and go with their directory.
func removeTree(dir string, depth int) error {
	err := unix.Rmdir(dir)
	if err == nil || gone(err) {
		return nil
	}
	if depth > 0 {
		children, listErr := subdirs(dir)
		if listErr != nil {
			return listErr
		}
		for _, child := range children {
			if err := removeTree(filepath.Join(dir, child), depth-1); err != nil {
				return err
			}
		}
		if len(children) > 0 {
			err = unix.Rmdir(dir)
		}
	}
	if err == nil || gone(err) {
		return nil
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}

// describeBusy says why dirs cannot be removed.
func describeBusy(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		pids, err := procs(dir, maxDepth)
		errs = append(errs, fmt.Errorf("remove %q: %w: it holds processes %v", dir, unix.EBUSY, pids), err)
	}
	return errors.Join(errs...)
}

// RemoveTag removes a tag that no process is in, and reports whether it is gone. It does
// not wait.
func (c *Child) RemoveTag() (bool, error) {
	dir, _ := c.own.tagDir()
	err := unix.Rmdir(dir)
	switch {
	case err == nil || gone(err):
		return true, nil
	case errors.Is(err, unix.EBUSY):
		return false, nil
	}
	return false, sbxerr.Wrap(sbxerr.Cgroup, "cgroups.remove_tag", fmt.Errorf("remove %q: %w", dir, err))
}
