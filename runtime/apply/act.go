package apply

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/failpoint"
	"github.com/caisson-run/caisson/runtime/peer"
)

// step is called between two steps. Tests end an apply there.
var step = failpoint.At

// actor moves names between the staged files and the host's directory. All that it does is
// done by a thread of the directory's owner.
type actor struct {
	as   *peer.Actor
	root int // the host's directory
	dir  int // of the staged files

	failed []Note
	marks  []mark
	moved  []node   // directories that were renamed
	closed []string // what could not be put: nothing is done below it
}

// act does the ops of a journal, in order.
func (a *actor) act(j *journal) error {
	a.marks = j.Marks
	for _, o := range j.Outs {
		a.moved = append(a.moved, o.Node)
	}
	for i, o := range slices.Concat(j.Opens, j.Outs, j.Steps, j.Modes) {
		if err := step(fmt.Sprintf("apply/op-%d", i)); err != nil {
			return err
		}
		name := string(o.Path)
		if within(name, a.closed) {
			a.fail(name, errors.New("the directory that it is in could not be put in its place"))
			continue
		}
		if err := a.as.Do(func() error { return a.do(o) }); err != nil {
			a.failOp(o, err)
		}
	}
	return nil
}

func (a *actor) fail(name string, err error) {
	a.failed = append(a.failed, Note{name, reason(err)})
}

// failOp notes an op that failed. A directory that is not closed or opened in time is noted
// only by what fails for it.
func (a *actor) failOp(o op, err error) {
	name := string(o.Path)
	switch o.Do {
	case doOut: // it fails once more when it is put
		return
	case doMode:
		if absent(err) || errors.Is(err, errChanged) {
			return
		}
	case doPut:
		a.closed = append(a.closed, name)
		a.marks = slices.DeleteFunc(a.marks, func(m mark) bool { return changes.Within(string(m.Path), name) })
	}
	a.fail(name, err)
}

// reason is an error without the operations that led to it.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, errChanged), absent(err):
		return errChanged.Error()
	case errors.Is(err, unix.EXDEV):
		return "something is mounted there"
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func (a *actor) do(o op) error {
	name := string(o.Path)
	if o.Do == doMode {
		return chmod(a.root, name, o.Node, o.Mode)
	}
	staged, err := entryAt(a.dir, o.Staged)
	if err != nil {
		return err
	}
	if o.Do == doPut {
		return inParent(a.root, name, func(dir int, base string) error {
			if !o.Node.is(staged) { // it was put before, or never staged
				return a.mark(o, dir, base)
			}
			return a.put(o, dir, base)
		})
	}
	if staged.Type != "" {
		return nil
	}
	return inParent(a.root, name, func(dir int, base string) error { return a.take(o, dir, base) })
}

// take moves a name to the staged files. What is not what was planned with goes back.
func (a *actor) take(o op, dir int, name string) error {
	if now, err := entryAt(dir, name); err != nil || !o.Node.is(now) {
		return errors.Join(errChanged, err)
	}
	if err := unix.Renameat2(dir, name, a.dir, o.Staged, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	if now, err := entryAt(a.dir, o.Staged); err != nil || !o.Node.is(now) {
		return errors.Join(errChanged, err, unix.Renameat2(a.dir, o.Staged, dir, name, unix.RENAME_NOREPLACE))
	}
	return nil
}

// put gives a staged file its name, in one step. What it replaces is staged then, and goes back
// where that is not what was planned with.
func (a *actor) put(o op, dir int, name string) error {
	err := a.swap(o, dir, name)
	if err == nil {
		return a.mark(o, dir, name)
	}
	if len(o.From) > 0 { // a directory of the host is not left among the staged files
		back := inParent(a.root, string(o.From), func(dir int, name string) error {
			return unix.Renameat2(a.dir, o.Staged, dir, name, unix.RENAME_NOREPLACE)
		})
		err = errors.Join(err, back)
	}
	return err
}

func (a *actor) swap(o op, dir int, name string) error {
	if o.Over == nil {
		return unix.Renameat2(a.dir, o.Staged, dir, name, unix.RENAME_NOREPLACE)
	}
	if now, err := entryAt(dir, name); err != nil || !o.Over.is(now) {
		return errors.Join(errChanged, err)
	}
	if err := unix.Renameat2(a.dir, o.Staged, dir, name, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	if now, err := entryAt(a.dir, o.Staged); err != nil || !o.Over.is(now) {
		return errors.Join(errChanged, err, unix.Renameat2(a.dir, o.Staged, dir, name, unix.RENAME_EXCHANGE))
	}
	return nil
}

// mark keeps that the host has o by now.
func (a *actor) mark(o op, dir int, name string) error {
	now, err := entryAt(dir, name)
	if err != nil || !o.Node.is(now) {
		return errors.Join(errChanged, err)
	}
	m := *o.Mark
	if !now.isDir() {
		m.Lower.Ctime = now.ctime
	}
	a.marks = append(a.marks, m)
	return nil
}

// clear removes the staged files. A directory of the host that found no place stays there.
func (a *actor) clear(name string) error {
	return a.as.Do(func() error {
		left, err := empty(a.dir, a.isMoved)
		if left {
			err = errors.Join(errors.New("a renamed directory is left in it"), err)
		}
		if err != nil {
			return err
		}
		return inParent(a.root, path.Clean(name), func(dir int, name string) error {
			err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
			if absent(err) {
				return nil
			}
			return err
		})
	})
}

// isMoved reports whether a staged name is a directory of the host that found no place.
func (a *actor) isMoved(name string) bool {
	now, err := entryAt(a.dir, name)
	return err == nil && slices.ContainsFunc(a.moved, func(n node) bool { return n.is(now) })
}
