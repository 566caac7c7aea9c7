package patches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/patch"
	"github.com/caisson-run/caisson/runtime/changes"
	"github.com/caisson-run/caisson/runtime/peer"
)

const op = "workspaces.diff"

const (
	maxTime = time.Minute // of a patch; the process ends itself before
	maxLeft = 4 << 20     // bytes of the message that says what is left out
)

// slots bound the memory of all patches together.
var slots = make(chan struct{}, 2)

// Patch is a patch that git apply takes.
type Patch struct {
	Text []byte
	Left []Note // what it has no content of, and why
	More bool   // there are more files than a patch has
}

// Request says of what a patch is made.
type Request struct {
	Layers  changes.Layers
	As      peer.Caller // with whose rights files of the lower layer are opened
	Changes []changes.Change
	Control bool // control files, too
}

// Of makes a patch of changes between layers.
func Of(ctx context.Context, program imageproc.Program, r Request) (Patch, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return Patch{}, sbxerr.Wrap(sbxerr.Canceled, op, context.Cause(ctx))
	}
	actor, err := peer.Act(r.As)
	if err != nil {
		return Patch{}, err
	}
	defer actor.Close()
	m := maker{layers: r.Layers, as: actor}
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("the patch took more than %s", maxTime))
	defer cancel()
	more, err := m.list(ctx, r)
	if err == nil && len(m.files) > 0 {
		err = m.compare(ctx, program)
	}
	return Patch{Text: m.text.text, Left: m.left, More: more}, sbxerr.Wrap(sbxerr.Disk, op, err)
}

type maker struct {
	layers changes.Layers
	as     *peer.Actor
	files  []patch.File
	left   []Note
	text   bounded
}

// list lists the files of changes, with the rights of the user.
func (m *maker) list(ctx context.Context, r Request) (more bool, err error) {
	l := newLister(ctx, r.Layers.Lower, r.Changes)
	err = m.as.Do(func() error {
		for _, c := range r.Changes {
			if c.Control && !r.Control {
				l.leave(c.Path, "control file: left out unless it is asked for")
			} else if err := l.add(c); err != nil {
				return err
			}
		}
		return nil
	})
	m.files, m.left = l.files, l.left
	if errors.Is(err, errBound) {
		return true, nil
	}
	return false, err
}

// compare has the files compared by a process without rights. What that says is checked.
func (m *maker) compare(ctx context.Context, program imageproc.Program) error {
	p, err := program.Start(ctx, imageproc.Job{Kind: patch.Kind, What: "compare files", Op: op, Request: patch.Request{Files: m.files}, Give: m.give})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.CopyStream(&m.text); err != nil {
		if errors.Is(err, errTooLong) {
			err = p.Broken(err)
		}
		return err
	}
	var left []patch.Left
	if err := p.Expect(patch.MessageLeft, maxLeft, &left); err != nil {
		return err
	}
	for _, l := range left {
		if l.File < 0 || l.File >= len(m.files) || l.Reason.String() == "" {
			return p.Broken(fmt.Errorf("file %d is left out for reason %d", l.File, l.Reason))
		}
		m.left = append(m.left, Note{nameOf(m.files[l.File]), l.Reason.String()})
	}
	return nil
}

func nameOf(f patch.File) string {
	if f.New == nil {
		return string(f.Old.Name)
	}
	return string(f.New.Name)
}

// errTooLong is a patch longer than was agreed.
var errTooLong = fmt.Errorf("a patch of more than %d bytes", patch.MaxPatch)

// bounded keeps a patch.
type bounded struct{ text []byte }

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > patch.MaxPatch {
		return 0, errTooLong
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
