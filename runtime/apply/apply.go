package apply

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/peer"
)

// looks bound the open files and the memory of all looks together.
var looks = make(chan struct{}, 4)

// Look plans what is to be done for a request. layers are a copy-on-write workspace's: nothing
// changes the upper one meanwhile.
func Look(ctx context.Context, layers changes.Layers, r Request) (*Plan, error) {
	const op = "apply.look"
	select {
	case looks <- struct{}{}:
		defer func() { <-looks }()
	case <-ctx.Done():
		return nil, sbxerr.Wrap(sbxerr.Canceled, op, context.Cause(ctx))
	}
	list, more, err := changes.Of(ctx, layers, changes.Options{Only: r.Paths, Applied: r.Applied})
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Disk, op, err)
	}
	if more {
		return nil, sbxerr.WithRemedy(sbxerr.FileTooBig, op, errors.New("the workspace has more changes, or deeper directories, than are applied at once"), "name paths: caisson apply SANDBOX PATH")
	}
	all, err := look(ctx, layers, list, r.Applied, r.Since)
	if err != nil {
		return nil, sbxerr.Wrap(sbxerr.Disk, op, err)
	}
	p, err := decide(all, r)
	if err != nil {
		return nil, err
	}
	if len(r.Paths) > 0 && len(p.Changes)+len(p.Control)+len(p.Conflicts)+len(p.Left) == 0 {
		return nil, sbxerr.WithRemedy(sbxerr.Config, op, fmt.Errorf("nothing changed at or below %q", r.Paths[0]), "name paths below the workspace that caisson diff lists")
	}
	return p, nil
}

// maxNamed bounds the names in a refusal.
const maxNamed = 10

// Refusal is the error of a plan with conflicts, of which no side was chosen.
func (p *Plan) Refusal() error {
	var b strings.Builder
	for i, c := range p.Conflicts {
		if i == maxNamed {
			fmt.Fprintf(&b, "; and %d more", len(p.Conflicts)-i)
			break
		}
		fmt.Fprintf(&b, "; %q: %s", clip(c.Path), c.Reason)
	}
	return sbxerr.New(sbxerr.ApplyConflict, "apply.plan", "%d changes meet changes of the host%s", len(p.Conflicts), b.String())
}

// Host is the directory that is written to, and the user that writes.
type Host struct {
	Dir *os.File
	As  peer.Caller
}

// Files are of the daemon's: the journal of an apply, and what was applied.
type Files struct{ Journal, Applied string }

// Staged is an apply of which all is made and nothing is in its place.
type Staged struct {
	plan    *Plan
	files   Files
	journal *journal
	actor   actor
}

// Stage makes what is new in a directory of its own in the host's, from the upper layer. On an
// error nothing stays.
func (p *Plan) Stage(ctx context.Context, upper *os.File, h Host, files Files) (*Staged, error) {
	const op = "apply.stage"
	if err := p.checkRoom(h); err != nil {
		return nil, err
	}
	s := &Staged{plan: p, files: files, journal: &journal{Version: version, Dir: h.Dir.Name(), UID: h.As.UID, GID: h.As.GID, Groups: h.As.Groups}}
	var err error
	if s.actor, err = newActor(h); err != nil {
		return nil, err
	}
	if err = s.begin(); err == nil {
		st := stager{ctx: ctx, as: s.actor.as, upper: int(upper.Fd()), dir: s.actor.dir, plan: p}
		err = st.stage()
		s.journal.Marks = st.marks
	}
	if err != nil {
		return nil, errors.Join(sbxerr.Wrap(code(err), op, fmt.Errorf("make the files of %q: %w", h.Dir.Name(), err)), s.Drop())
	}
	return s, nil
}

func code(err error) sbxerr.Code {
	if errors.Is(err, context.Canceled) {
		return sbxerr.Canceled
	}
	return sbxerr.ApplyFailed
}

// checkRoom refuses what the host's file system has no room for.
func (p *Plan) checkRoom(h Host) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(h.Dir.Fd()), &st); err != nil {
		return sbxerr.Wrap(sbxerr.ApplyFailed, "apply.room", err)
	}
	free := int64(st.Bavail) * st.Bsize
	if p.room > free || st.Files > 0 && uint64(len(p.items)) > st.Ffree {
		return sbxerr.WithRemedy(sbxerr.ApplyFailed, "apply.room", fmt.Errorf("%d files of %s do not fit into the file system of %q, which has %s free",
			len(p.items), units.FormatSize(p.room), h.Dir.Name(), units.FormatSize(free)), "make room, or name fewer paths: nothing was changed")
	}
	return nil
}

func newActor(h Host) (a actor, err error) {
	a = actor{root: int(h.Dir.Fd()), dir: -1}
	a.as, err = peer.Act(h.As)
	return a, err
}

// stagePrefix begins the name of a directory of staged files.
const stagePrefix = ".caisson-apply-"

// begin makes the directory, of a name that the journal has before.
func (s *Staged) begin() error {
	var st unix.Stat_t
	if err := unix.Fstat(s.actor.root, &st); err != nil {
		return err
	}
	s.journal.Ino = st.Ino
	s.journal.Stage = stagePrefix + strings.ToLower(rand.Text())
	if err := write(s.files.Journal, s.journal); err != nil {
		return err
	}
	if err := step("apply/begun"); err != nil {
		return err
	}
	err := s.actor.as.Do(func() error { return unix.Mkdirat(s.actor.root, s.journal.Stage, 0o700) })
	if err != nil {
		s.journal.Stage = "" // it is another's
		return err
	}
	if err := s.actor.openStage(s.journal.Stage); err != nil {
		return err
	}
	return step("apply/made")
}

func (a *actor) openStage(name string) error {
	return a.as.Do(func() (err error) {
		a.dir, err = changes.OpenBeneath(a.root, name, unix.O_PATH|unix.O_DIRECTORY)
		return err
	})
}

// Drop undoes Stage.
func (s *Staged) Drop() error {
	defer s.actor.close()
	return s.end()
}

// end removes the staged files and the journal. What cannot be removed is noted.
func (s *Staged) end() error {
	if s.actor.dir >= 0 {
		if err := s.actor.clear(s.journal.Stage); err != nil {
			s.actor.fail(s.journal.Stage, err)
		}
	}
	err := step("apply/cleared")
	if err == nil {
		err = owndir.Remove(s.files.Journal)
	}
	return sbxerr.Wrap(sbxerr.ApplyFailed, "apply.end", err)
}

func (a *actor) close() {
	if a.dir >= 0 {
		_ = unix.Close(a.dir) // it was not written to
	}
	a.as.Close()
}

// Result is what came of an apply.
type Result struct {
	Changes []changes.Change // that the host has now
	Failed  []Note           // what the host did not take, and why
}

// Commit puts all in its place. What the host changed meanwhile stays as the host has it.
func (s *Staged) Commit() (Result, error) {
	const op = "apply.commit"
	defer s.actor.close()
	j := s.journal
	j.Opens, j.Outs, j.Steps, j.Modes, j.Staged = s.plan.opens, s.plan.outs, s.plan.steps, s.plan.modes, true
	err := errors.Join(s.actor.sync(), step("apply/staged"))
	if err == nil {
		err = write(s.files.Journal, j)
	}
	if err != nil {
		return Result{}, errors.Join(sbxerr.Wrap(code(err), op, err), s.end())
	}
	if err := s.complete(); err != nil {
		return Result{}, sbxerr.Wrap(code(err), op, err)
	}
	failed := s.actor.failed
	done := slices.DeleteFunc(slices.Clone(s.plan.Changes), func(c changes.Change) bool {
		return slices.ContainsFunc(failed, func(n Note) bool { return changes.Within(c.Path, n.Path) })
	})
	return Result{Changes: done, Failed: failed}, nil
}

// complete does what the journal says.
func (s *Staged) complete() error {
	if err := step("apply/journal"); err != nil {
		return err
	}
	if err := s.actor.act(s.journal); err != nil {
		return err
	}
	if err := step("apply/done"); err != nil {
		return err
	}
	err := addApplied(s.files.Applied, s.actor.marks, s.journal.gone())
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the sandbox has gone since, with its directory
		return err
	}
	if err := s.actor.sync(); err != nil {
		return err
	}
	return s.end()
}

// gone are the names that the host has no more, with all below them.
func (j *journal) gone() (names []string) {
	for _, o := range j.Outs {
		names = append(names, string(o.Path))
	}
	for _, o := range j.Steps {
		if o.Do == doDelete || o.Over != nil && o.Over.isDir() {
			names = append(names, string(o.Path))
		}
	}
	return names
}

// sync writes what the kernel holds of the host's file system.
func (a *actor) sync() error {
	fd, err := unix.Openat(a.root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(fd), unix.Close(fd))
}

// Finish ends an apply that a daemon was killed in: what was staged is put in its place, and
// what was half staged is removed. It reports whether there was one, and what went wrong.
func Finish(files Files) (was bool, failed []Note, err error) {
	const op = "apply.finish"
	s := Staged{files: files, journal: &journal{}}
	err = read(files.Journal, s.journal)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil
	}
	if err == nil && s.journal.Version != version {
		err = fmt.Errorf("journal %q is of version %d; this daemon knows %d", files.Journal, s.journal.Version, version)
	}
	if err != nil {
		return true, nil, sbxerr.Wrap(sbxerr.ApplyFailed, op, err)
	}
	err = s.finish()
	return true, s.actor.failed, sbxerr.Wrap(sbxerr.ApplyFailed, op, err)
}

func (s *Staged) finish() error {
	root, err := s.journal.open()
	if err != nil {
		return fmt.Errorf("directory %q, in which %q is left: %w", s.journal.Dir, s.journal.Stage, errors.Join(err, owndir.Remove(s.files.Journal)))
	}
	defer root.Close()
	if s.actor, err = newActor(Host{root, peer.User(s.journal.UID, s.journal.GID, s.journal.Groups, 1)}); err != nil {
		return err
	}
	defer s.actor.close()
	if err := s.actor.openStage(s.journal.Stage); err != nil && !absent(err) {
		return err
	}
	if !s.journal.Staged || s.actor.dir < 0 {
		return s.end()
	}
	s.journal.reopen()
	return s.complete()
}

// reopen has directories opened that may be closed to their owner by now. They are closed again
// at the end.
func (j *journal) reopen() {
	for _, o := range slices.Backward(j.Modes) {
		o.Mode |= 0o700
		j.Opens = append(j.Opens, o)
	}
}

// open opens the directory, if it is the one that was.
func (j *journal) open() (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, j.Dir, &how)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), j.Dir)
	var st unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &st)
	if err == nil && st.Ino != j.Ino {
		err = errors.New("another directory is there now")
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
