// Package workspaces works on the copy-on-write workspaces of a fleet: it tells what sandboxes
// changed, and applies that to the directories of the host.
package workspaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/apply"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Fleet has the sandboxes.
type Fleet interface {
	// Busy counts a call until done is called.
	Busy() (done func())
	// Workspace finds the workspace of a live sandbox that the caller may enter. Of one that is
	// there and not live it returns the ID.
	Workspace(ctx context.Context, ref string) (Workspace, error)
	// Grant is what the caller in ctx may do.
	Grant(ctx context.Context) (peer.Grant, error)
}

// Workspace is one of a live sandbox, or of a changeset.
type Workspace struct {
	ID, Name     string // of the sandbox
	Dir          string // of the host
	Child        bool   // Dir is in the workspace of another sandbox
	Base         mount.Base
	Upper, Lower string // layers
	Applied      string // file with what was applied

	kept *Changeset // of an ended sandbox, which has no layers

	Event func(events.Data) events.Event // that something was applied
	// Still calls work while no process of the sandbox runs.
	Still func(ctx context.Context, work func(context.Context) error) error
}

// Service works for callers.
type Service struct {
	fleet   Fleet
	rules   func() Rules
	dir     string // of the journals
	store   store
	program imageproc.Program // compares files
	events  *events.Bus
	log     *slog.Logger

	locks locks // by ID of a sandbox
}

// Options is what a Service is made of.
type Options struct {
	Journals, Changesets string            // directories of the daemon's own on disk
	Program              imageproc.Program // compares files
	Events               *events.Bus
	Log                  *slog.Logger
	Rules                func() Rules
}

// Rules are those of the configuration in force.
type Rules struct {
	Allowed   mount.Allowed
	Control   apply.Control
	Retention Retention
}

// NewService returns the service of a fleet.
func NewService(fleet Fleet, o Options) *Service {
	return &Service{
		fleet: fleet, rules: o.Rules, dir: o.Journals, store: store{o.Changesets}, program: o.Program, events: o.Events, log: o.Log,
	}
}

// Diff returns how the workspace of a sandbox differs from the directory of the host, without
// what was applied.
func (s *Service) Diff(ctx context.Context, ref string) (list []changes.Change, more bool, err error) {
	const op = "workspaces.diff"
	defer s.fleet.Busy()()
	w, unlock, err := s.find(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	list, more, err = s.diff(ctx, w, 0)
	s.markControl(list)
	return list, more, sbxerr.Wrap(sbxerr.Disk, op, err)
}

// diff returns at most a number of differences.
func (s *Service) diff(ctx context.Context, w Workspace, most int) (list []changes.Change, more bool, err error) {
	applied, err := apply.ReadApplied(w.Applied)
	if err != nil {
		return nil, false, err
	}
	layers, err := s.layers(ctx, w)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, layers.Close()) }()
	return changes.Of(ctx, layers, changes.Options{Most: most, Applied: applied})
}

// layers opens the layers of a workspace. Of a changeset, the caller must be able to read the
// host's directory, which must be the one that the sandbox had.
func (s *Service) layers(ctx context.Context, w Workspace) (changes.Layers, error) {
	if w.kept == nil {
		return changes.Open(w.Upper, w.Lower)
	}
	l, _, err := s.readable(ctx, w)
	return l, err
}

// readable opens the layers with the host's directory as the caller has it, and says with whose
// rights its files are read: the caller's, or for root those of the directory's owner.
func (s *Service) readable(ctx context.Context, w Workspace) (l changes.Layers, as peer.Caller, err error) {
	g, err := s.fleet.Grant(ctx)
	if err != nil {
		return l, as, err
	}
	dir, err := g.CheckWorkspace(ctx, w.Dir, false)
	if err != nil {
		return l, as, err
	}
	as = peer.User(dir.UID, dir.GID, dir.Groups, 1)
	if err = (Changeset{Dir: w.Dir, Base: w.Base}).checkBase(dir.File); err == nil {
		l.Lower, err = mount.CloneDir(dir.File)
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return l, as, err
	}
	if w.kept != nil {
		l.Upper, err = s.store.upper(*w.kept)
	} else {
		l.Upper, err = openAt(w.Upper)
	}
	if err != nil {
		return l, as, errors.Join(err, l.Lower.Close())
	}
	return l, as, nil
}

// checkBase refuses a directory that is not the one that the sandbox had.
func (c Changeset) checkBase(dir *os.File) error {
	now, err := mount.BaseOf(dir)
	if err == nil && !now.Is(c.Base) {
		err = sbxerr.WithRemedy(sbxerr.Workspace, "workspaces.open", fmt.Errorf("host directory %q is not the one that the sandbox had: it was moved or replaced", c.Dir), "put the directory back in its place")
	}
	return err
}

// markControl notes which changes are of control files.
func (s *Service) markControl(list []changes.Change) {
	control := s.rules().Control
	for i := range list {
		list[i].Control = control.Has(list[i])
	}
}

// find finds a workspace and finishes what was begun with it. Nothing else is applied from it
// until unlock.
func (s *Service) find(ctx context.Context, ref string) (w Workspace, unlock func(), err error) {
	w, err = s.fleet.Workspace(ctx, ref)
	switch {
	case errors.Is(err, sbxerr.NotFound):
		w, err = s.orKept(ctx, ref, err)
	case errors.Is(err, sbxerr.State) && w.ID != "": // not another one of its name
		w, err = s.orKept(ctx, w.ID, err)
	}
	if err != nil {
		return w, nil, err
	}
	if unlock, err = s.locks.acquire(ctx, w.ID); err != nil {
		return w, nil, err
	}
	if err := s.finish(w.ID, w.Applied); err != nil {
		unlock()
		return w, nil, err
	}
	return w, unlock, nil
}

// orKept finds the changeset of a sandbox that has ended, else it returns err.
func (s *Service) orKept(ctx context.Context, ref string, err error) (Workspace, error) {
	g, grantErr := s.fleet.Grant(ctx)
	if grantErr != nil {
		return Workspace{}, grantErr
	}
	c, findErr := s.changeset(g, ref)
	if findErr != nil {
		return Workspace{}, err
	}
	return s.sealed(c), nil
}

func (s *Service) files(id, applied string) apply.Files {
	return apply.Files{Journal: filepath.Join(s.dir, id), Applied: applied}
}

// finish ends an apply that an earlier daemon was killed in.
func (s *Service) finish(id, applied string) error {
	was, failed, err := apply.Finish(s.files(id, applied))
	if was {
		s.log.Info("end an apply of an earlier daemon", "sandbox", id, "failed", len(failed), "err", err)
	}
	return err
}

// Settle ends what was begun with a sandbox that goes. After an error its changeset is still half
// made.
func (s *Service) Settle(id, applied string) error {
	release, _ := s.locks.acquire(context.Background(), id) // which never ends
	defer release()
	if err := s.finish(id, applied); err != nil {
		s.log.Error("end an apply of a sandbox that goes", "sandbox", id, "err", err)
	}
	return sbxerr.Wrap(sbxerr.StateDir, "workspaces.settle", s.store.settle(id))
}

// Recover ends in the background what an earlier daemon was killed in: a file system may keep
// it waiting. applied says where a sandbox has its file.
func (s *Service) Recover(applied func(id string) string) {
	entries, err := os.ReadDir(s.dir)
	if err = errors.Join(err, s.store.sweep()); err != nil {
		s.log.Error("look for applies of an earlier daemon", "err", err)
	}
	for _, e := range entries {
		go func() {
			id, isNew := strings.CutSuffix(e.Name(), ".new") // half written
			if isNew {
				return
			}
			release, _ := s.locks.acquire(context.Background(), id) // which never ends
			defer release()
			file := applied(id)
			if _, err := os.Lstat(s.store.path(id, metaName)); err == nil {
				file = s.store.path(id, appliedName)
			}
			if err := s.finish(id, file); err != nil {
				s.log.Error("end an apply of an earlier daemon", "sandbox", id, "err", err)
			}
		}()
	}
}

// Request says what is applied.
type Request struct {
	Paths          []string
	Side           apply.Side
	IncludeControl bool
	DryRun         bool
}

// maxPaths bounds the paths of a request.
const maxPaths = 1000

func (r *Request) check() error {
	const op = "workspaces.apply"
	if r.Side != apply.Neither && r.Side != apply.Ours && r.Side != apply.Theirs {
		return sbxerr.New(sbxerr.Config, op, "conflicts: %q is none of %q and %q", sbxerr.Clip(string(r.Side)), apply.Ours, apply.Theirs)
	}
	if len(r.Paths) > maxPaths {
		return sbxerr.New(sbxerr.Config, op, "%d paths are more than %d", len(r.Paths), maxPaths)
	}
	for i, p := range r.Paths {
		r.Paths[i] = filepath.Clean(p)
		if !filepath.IsLocal(p) {
			return sbxerr.New(sbxerr.Config, op, "path %q: give one below the workspace, such as src/main.go", sbxerr.Clip(p))
		}
	}
	if slices.Contains(r.Paths, ".") {
		r.Paths = nil
	}
	return nil
}

// Result is what came of an apply, or would.
type Result struct {
	Changes   []changes.Change // that the host has now
	Control   []changes.Change // control files that were left out
	Conflicts []apply.Note
	Left      []apply.Note // what was not applied, and why
	Notes     []apply.Note // what is not as in the workspace
}

// Apply writes the changes of a workspace into the directory of the host, with the rights of
// that directory's owner.
func (s *Service) Apply(ctx context.Context, ref string, r Request) (Result, error) {
	defer s.fleet.Busy()()
	if err := r.check(); err != nil {
		return Result{}, err
	}
	w, unlock, err := s.find(ctx, ref)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	host, err := s.open(ctx, w)
	if err != nil {
		return Result{}, err
	}
	defer host.Dir.Close()
	p, staged, err := s.stage(ctx, w, host, r)
	if err != nil {
		return Result{}, err
	}
	result := Result{Changes: p.Changes, Control: p.Control, Conflicts: p.Conflicts, Left: p.Left, Notes: p.Told}
	if staged == nil {
		return result, nil
	}
	done, err := staged.Commit()
	if err != nil {
		return Result{}, err
	}
	result.Changes, result.Left = done.Changes, append(p.Left, done.Failed...)
	return result, errors.Join(s.events.Confirm(ctx, w.Event(events.Data{Workspace: w.Dir, Changes: len(done.Changes)})), s.over(ctx, w))
}

// over removes a changeset of which the host has all.
func (s *Service) over(ctx context.Context, w Workspace) error {
	if w.kept == nil {
		return nil
	}
	list, more, err := s.diff(ctx, w, 1)
	if err != nil || more || len(list) > 0 {
		return err
	}
	return s.dropLocked(ctx, *w.kept, "applied")
}

// stage plans and makes what is new, while the sandbox stands still. A dry run makes nothing.
func (s *Service) stage(ctx context.Context, w Workspace, host apply.Host, r Request) (p *apply.Plan, staged *apply.Staged, err error) {
	applied, err := apply.ReadApplied(w.Applied)
	if err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.StateDir, "workspaces.apply", err)
	}
	ask := apply.Request{Paths: r.Paths, Side: r.Side, IncludeControl: r.IncludeControl, Patterns: s.rules().Control, Live: w.kept == nil, Since: w.Base.Since, Applied: applied}
	began := time.Now()
	err = w.Still(ctx, func(ctx context.Context) (err error) {
		layers, err := s.layers(ctx, w)
		if err != nil {
			return sbxerr.Wrap(sbxerr.Disk, "workspaces.apply", err)
		}
		defer func() { err = errors.Join(err, layers.Close()) }()
		if p, err = apply.Look(ctx, layers, ask); err != nil || r.DryRun {
			return err
		}
		if len(p.Conflicts) > 0 && r.Side == apply.Neither {
			return p.Refusal()
		}
		staged, err = p.Stage(ctx, layers.Upper, host, s.files(w.ID, w.Applied))
		return err
	})
	if err != nil && staged != nil {
		err = errors.Join(err, staged.Drop())
	}
	s.log.Debug("stage an apply", "sandbox", w.ID, "took", time.Since(began))
	return p, staged, err
}

// open opens the directory of the host to write to it as its owner. It must be the one that the
// sandbox has, and the caller its owner, or root.
func (s *Service) open(ctx context.Context, w Workspace) (apply.Host, error) {
	const op = "workspaces.apply"
	if w.Child {
		return apply.Host{}, sbxerr.WithRemedy(sbxerr.Workspace, op, fmt.Errorf("workspace %q is a directory of another sandbox's", w.Dir), "copy the files: caisson cp")
	}
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = s.rules().Allowed.Check(w.Dir)
	}
	if err != nil {
		return apply.Host{}, err
	}
	dir, err := g.CheckWorkspace(ctx, w.Dir, false)
	if err != nil {
		return apply.Host{}, err
	}
	st, err := statOf(dir)
	if err == nil && st.Uid != dir.UID {
		err = sbxerr.WithRemedy(sbxerr.Peer, op, fmt.Errorf("host directory %q belongs to uid %d: changes are applied by that user, or by root", w.Dir, st.Uid), "have its owner apply them: caisson apply "+w.ID)
	}
	if err := errors.Join(err, dir.Close()); err != nil {
		return apply.Host{}, err
	}
	if dir, err = g.CheckWorkspace(ctx, w.Dir, true); err != nil {
		return apply.Host{}, err
	}
	if err := (Changeset{Dir: w.Dir, Base: w.Base}).checkBase(dir.File); err != nil {
		return apply.Host{}, errors.Join(err, dir.Close())
	}
	return apply.Host{Dir: dir.File, As: peer.User(dir.UID, dir.GID, dir.Groups, 1)}, nil
}

func statOf(dir *peer.Directory) (st unix.Stat_t, err error) {
	return st, unix.Fstat(int(dir.File.Fd()), &st)
}

// openAt opens a directory without a link on the way to it.
func openAt(dir string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &how)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}
