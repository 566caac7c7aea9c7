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
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/owndir"
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
	// Workspace finds the workspace of a live sandbox that the caller may enter.
	Workspace(ctx context.Context, ref string) (Workspace, error)
	// Grant is what the caller in ctx may do.
	Grant(ctx context.Context) (peer.Grant, error)
	// Rules are those of the configuration in force.
	Rules() (mount.Allowed, apply.Control)
}

// Workspace is one of a live sandbox.
type Workspace struct {
	ID, Name     string // of the sandbox
	Dir          string // of the host
	Child        bool   // Dir is in the workspace of another sandbox
	Upper, Lower string // layers
	Applied      string // file with what was applied
	Since        int64  // when the layers were mounted, in nanoseconds since the epoch

	Event func(events.Data) events.Event // that something was applied
	// Still calls work while no process of the sandbox runs.
	Still func(ctx context.Context, work func(context.Context) error) error
}

// Service works for callers.
type Service struct {
	fleet  Fleet
	dir    string // of the journals
	events *events.Bus
	log    *slog.Logger

	mu    sync.Mutex
	locks map[string]*sync.Mutex // by ID of a sandbox
}

// NewService returns the service of a fleet, with its journals in a directory of the daemon's
// own on disk.
func NewService(fleet Fleet, dir string, bus *events.Bus, log *slog.Logger) *Service {
	return &Service{fleet: fleet, dir: dir, events: bus, log: log, locks: map[string]*sync.Mutex{}}
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
	applied, err := apply.ReadApplied(w.Applied)
	if err == nil {
		list, more, err = changes.At(ctx, w.Upper, w.Lower, changes.Options{Applied: applied})
	}
	s.markControl(list)
	return list, more, sbxerr.Wrap(sbxerr.Disk, op, err)
}

// markControl notes which changes are of control files.
func (s *Service) markControl(list []changes.Change) {
	_, control := s.fleet.Rules()
	for i := range list {
		list[i].Control = control.Has(list[i])
	}
}

// find finds a workspace and finishes what was begun with it. Nothing else is applied from it
// until unlock.
func (s *Service) find(ctx context.Context, ref string) (w Workspace, unlock func(), err error) {
	if w, err = s.fleet.Workspace(ctx, ref); err != nil {
		return w, nil, err
	}
	l := s.lock(w.ID)
	l.Lock()
	if err := s.finish(w.ID, w.Applied); err != nil {
		l.Unlock()
		return w, nil, err
	}
	return w, l.Unlock, nil
}

func (s *Service) lock(id string) *sync.Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[id]
	if l == nil {
		l = new(sync.Mutex)
		s.locks[id] = l
	}
	return l
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

// Settle ends what was begun with a sandbox that goes, and forgets it.
func (s *Service) Settle(id, applied string) error {
	l := s.lock(id)
	l.Lock()
	defer l.Unlock()
	err := s.finish(id, applied)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, id)
	return err
}

// Recover ends in the background what an earlier daemon was killed in: a file system may keep
// it waiting. applied says where a sandbox has its file.
func (s *Service) Recover(applied func(id string) string) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Error("look for applies of an earlier daemon", "err", err)
	}
	for _, e := range entries {
		go func() {
			id, isNew := strings.CutSuffix(e.Name(), ".new") // half written
			if isNew {
				return
			}
			l := s.lock(id)
			l.Lock()
			defer l.Unlock()
			if err := s.finish(id, applied(id)); err != nil {
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
	return result, s.events.Confirm(ctx, w.Event(events.Data{Workspace: w.Dir, Changes: len(done.Changes)}))
}

// stage plans and makes what is new, while the sandbox stands still. A dry run makes nothing.
func (s *Service) stage(ctx context.Context, w Workspace, host apply.Host, r Request) (p *apply.Plan, staged *apply.Staged, err error) {
	applied, err := apply.ReadApplied(w.Applied)
	if err != nil {
		return nil, nil, sbxerr.Wrap(sbxerr.StateDir, "workspaces.apply", err)
	}
	_, control := s.fleet.Rules()
	ask := apply.Request{Paths: r.Paths, Side: r.Side, IncludeControl: r.IncludeControl, Patterns: control, Live: true, Since: w.Since, Applied: applied}
	began := time.Now()
	err = w.Still(ctx, func(ctx context.Context) (err error) {
		layers, err := changes.Open(w.Upper, w.Lower)
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
	allowed, _ := s.fleet.Rules()
	g, err := s.fleet.Grant(ctx)
	if err == nil {
		err = allowed.Check(w.Dir)
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
	if err := w.checkSame(dir); err != nil {
		return apply.Host{}, errors.Join(err, dir.Close())
	}
	return apply.Host{Dir: dir.File, As: peer.User(dir.UID, dir.GID, dir.Groups, 1)}, nil
}

func statOf(dir *peer.Directory) (st unix.Stat_t, err error) {
	return st, unix.Fstat(int(dir.File.Fd()), &st)
}

// checkSame refuses a directory that is not the sandbox's lower layer.
func (w Workspace) checkSame(dir *peer.Directory) error {
	st, err := statOf(dir)
	if err != nil {
		return err
	}
	lower, err := owndir.OpenDir(filepath.Dir(w.Lower))
	if err != nil {
		return err
	}
	var was unix.Stat_t
	err = errors.Join(unix.Fstatat(int(lower.Fd()), filepath.Base(w.Lower), &was, unix.AT_SYMLINK_NOFOLLOW), lower.Close())
	if err == nil && (st.Ino != was.Ino || st.Dev != was.Dev) {
		err = sbxerr.WithRemedy(sbxerr.Workspace, "workspaces.apply", fmt.Errorf("host directory %q is not the one that the sandbox has: it was moved or replaced", w.Dir), "put the directory back in its place")
	}
	return err
}
