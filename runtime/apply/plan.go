package apply

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/changes"
)

// Side says whose change counts where the host changed the same.
type Side string

// Neither has such a change refused.
const Neither Side = ""

const (
	Ours   Side = "ours"   // the host's
	Theirs Side = "theirs" // the sandbox's
)

// Request says what is to be applied.
type Request struct {
	Paths          []string // at or below which; none is all
	Side           Side
	IncludeControl bool
	Patterns       Control // what is control
	Live           bool    // the sandbox goes on with its layers
	Since          int64   // when they began, in nanoseconds since the epoch
	Applied        changes.Applied
}

// Plan is what is to be done. What it holds of a list is sorted by name.
type Plan struct {
	Changes   []changes.Change // that are applied
	Control   []changes.Change // that are left out
	Conflicts []Note
	Left      []Note // what cannot be applied
	Told      []Note // what is not as in the workspace

	opens, outs, steps, modes []op
	items                     []item
	room                      int64
}

// Note says something of a name.
type Note struct{ Path, Reason string }

// planner decides.
type planner struct {
	Request
	Plan
	renames []found
	staged  map[string]string // what is made: the name among the staged files, by path
	closed  []string          // at or below which nothing can be applied
	held    []string          // names of the lower layer that are not touched
	opened  map[string]above  // directories of the lower layer that are not writable
	set     map[string]bool   // directories whose mode is set
}

// decide makes the plan of what was found, sorted by name.
func decide(all []found, r Request) (*Plan, error) {
	p := planner{Request: r, staged: map[string]string{}, opened: map[string]above{}, set: map[string]bool{}}
	for _, f := range all {
		if f.Kind == changes.Renamed {
			p.renames = append(p.renames, f)
		}
	}
	all = p.selected(all)
	if err := p.checkRenames(all); err != nil {
		return nil, err
	}
	all = p.keep(all)
	if r.Side == Neither && len(p.Conflicts) > 0 {
		return &p.Plan, nil
	}
	for _, f := range all {
		p.do(f)
	}
	p.finish()
	return &p.Plan, nil
}

// within reports whether name is at or below one of the roots.
func within(name string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return changes.Within(name, root) })
}

// selected are the changes at or below the paths of the request, with the new directories that
// they are in.
func (p *planner) selected(all []found) (some []found) {
	if len(p.Paths) == 0 {
		return all
	}
	needed := map[string]bool{}
	for _, f := range all {
		if within(f.Path, p.Paths) {
			for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
				needed[dir] = true
			}
		}
	}
	for _, f := range all {
		if within(f.Path, p.Paths) || needed[f.Path] && f.makes() && f.Kind != changes.Renamed {
			some = append(some, f)
		}
	}
	return some
}

// makes reports whether f is a directory that the host does not have under this name.
func (f found) makes() bool {
	return f.New.Type == directory && (f.Old.Type != directory || f.Kind == changes.Renamed)
}

// removes reports whether f takes away a directory with all in it.
func (f found) removes() bool {
	return f.lower.isDir() && (f.New.Type != directory || f.Kind == changes.Renamed)
}

// checkRenames refuses what would lose the content of a renamed directory: a live overlay reads
// it under its old name.
func (p *planner) checkRenames(all []found) error {
	for _, r := range p.renames {
		selected := slices.ContainsFunc(all, func(f found) bool { return f.Path == r.Path })
		switch needs := slices.ContainsFunc(all, func(f found) bool {
			return changes.Within(f.Path, r.Path) || f.Place == r.From || f.removes() && changes.Within(r.From, f.Place)
		}); {
		case needs && p.Live:
			return sbxerr.New(sbxerr.ApplyRenamed, "apply.plan", "directory %q was renamed to %q", clip(r.From), clip(r.Path))
		case needs && !selected:
			return sbxerr.WithRemedy(sbxerr.Config, "apply.plan",
				fmt.Errorf("directory %q was renamed to %q, and what is named needs that", clip(r.From), clip(r.Path)), "name the new directory too, or no path")
		}
	}
	return nil
}

func clip(name string) string { return sbxerr.Clip(name) }

// keep returns the changes that can be applied, and notes the others. What depends on one of
// those is left out with it.
func (p *planner) keep(all []found) []found {
	for again := true; again; { // a rename that is left out can hold back what was before it
		again = false
		all = slices.DeleteFunc(all, func(f found) bool {
			out := p.leaveOut(f)
			if out && f.makes() {
				p.closed = append(p.closed, f.Path)
			}
			if out && f.Kind == changes.Renamed {
				p.held, again = append(p.held, f.From), true
			}
			return out
		})
	}
	byPath := func(a, b Note) int { return strings.Compare(a.Path, b.Path) }
	slices.SortFunc(p.Conflicts, byPath)
	slices.SortFunc(p.Left, byPath)
	slices.SortFunc(p.Control, func(a, b changes.Change) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// leaveOut decides whether f is applied.
func (p *planner) leaveOut(f found) bool {
	if !p.IncludeControl && p.Patterns.Has(f.Change) {
		p.Control = append(p.Control, f.Change)
		return true
	}
	if strings.HasPrefix(f.Path, stagePrefix) {
		p.leave(f, "it was of an apply")
		return true
	}
	switch f.New.Type {
	case "", file, directory, symlink:
	default:
		p.leave(f, "a "+f.New.Type+" cannot be applied")
		return true
	}
	if within(f.Path, p.closed) || slices.ContainsFunc(p.held, func(held string) bool {
		return f.Place != "" && (changes.Within(f.Place, held) || f.removes() && changes.Within(held, f.Place))
	}) {
		p.leave(f, "it depends on a change that is left out")
		return true
	}
	if reason := p.conflict(f); reason != "" {
		p.noteConflict(f.Path, reason)
		return p.Side != Theirs || f.lost && f.Kind == changes.Renamed
	}
	return false
}

func (p *planner) leave(f found, reason string) { p.Left = append(p.Left, Note{f.Path, reason}) }

func (p *planner) noteConflict(name, reason string) {
	if !slices.ContainsFunc(p.Conflicts, func(n Note) bool { return n.Path == name }) {
		p.Conflicts = append(p.Conflicts, Note{name, reason})
	}
}

// conflict says what the host did to what f changes.
func (p *planner) conflict(f found) string {
	was, known := p.Applied[f.Place]
	switch {
	case f.Kind == changes.Renamed && !f.from.isDir():
		return "the host removed or moved the directory that was renamed"
	case f.lost:
		return "the host removed, moved or changed what it was made of"
	case f.lower.Type != "" && !f.lower.isDir() && f.lower.ctime >= p.Since && !(known && was.Lower.Ctime == f.lower.ctime):
		return "the host changed it"
	case f.fresh:
		return "the host changed files in it"
	}
	return ""
}

// do plans one change.
func (p *planner) do(f found) {
	p.Changes = append(p.Changes, f.Change)
	for _, a := range f.above {
		if a.Mode&0o300 != 0o300 && a.isDir() {
			p.opened[a.name] = a
		}
	}
	over := &f.lower
	if f.lower.Type == "" {
		over = nil
	}
	switch {
	case f.New.Type == "":
		if over != nil {
			p.step(op{Do: doDelete, Path: []byte(f.Path), Node: f.lower})
		}
	case f.Kind == changes.Renamed:
		p.rename(f, over)
	case f.New.Type == directory && f.lower.isDir():
		if f.lower.Mode&0o1777 != f.New.Mode&0o1777 {
			p.mode(f.Path, f.lower, f.New.Mode)
		}
	default:
		p.put(f, over)
	}
}

func (p *planner) step(o op) {
	o.Staged = fmt.Sprintf("%s%d", o.Do.prefix(), len(p.steps))
	p.steps = append(p.steps, o)
}

func (p *planner) rename(f found, over *node) {
	name := fmt.Sprintf("m%d", len(p.outs))
	p.outs = append(p.outs, op{Do: doOut, Path: []byte(f.From), Staged: name, Node: f.from})
	p.steps = append(p.steps, op{Do: doPut, Path: []byte(f.Path), From: []byte(f.From), Staged: name, Node: f.from, Over: over, Mark: &mark{Path: []byte(f.Path)}})
	if f.from.Mode&0o1777 != f.New.Mode&0o1777 {
		p.mode(f.Path, f.from, f.New.Mode)
	}
}

func (p *planner) mode(name string, n node, mode uint32) {
	p.set[name] = true
	p.modes = append(p.modes, op{Do: doMode, Path: []byte(name), Node: n, Mode: mode & 0o1777})
}

// put plans something new: in a directory that is new as well, or under its own name.
func (p *planner) put(f found, over *node) {
	in, inNew := p.staged[path.Dir(f.Path)]
	it := item{change: f.Change, upper: f.upper, gid: f.lower.gid, replaces: f.lower.Type != "", step: -1}
	if inNew {
		it.name = path.Join(in, path.Base(f.Path))
	} else {
		it.step = len(p.steps)
		p.step(op{Do: doPut, Path: []byte(f.Path), Over: over})
		it.name = string(p.steps[it.step].Staged)
	}
	if f.New.Type == directory {
		p.staged[f.Path] = it.name
	}
	if f.New.Type == file && f.New.Mode&0o6000 != 0 {
		p.Told = append(p.Told, Note{f.Path, "without its set-user-ID and set-group-ID bits"})
	}
	p.room += it.upper.room
	p.items = append(p.items, it)
}

// finish orders what is done before and after the steps: directories that are closed to their
// owner are opened, and closed again.
func (p *planner) finish() {
	for _, name := range slices.Sorted(mapKeys(p.opened)) {
		a := p.opened[name]
		p.opens = append(p.opens, op{Do: doMode, Path: []byte(name), Node: a.node, Mode: a.Mode&0o1777 | 0o700})
		if now := p.now(name); !p.set[now] {
			p.mode(now, a.node, a.Mode) // nothing, if it is deleted
		}
	}
	slices.SortStableFunc(p.outs, func(a, b op) int { return deeper(a.Path, b.Path) })
	slices.SortStableFunc(p.modes, func(a, b op) int { return deeper(a.Path, b.Path) })
}

func deeper(a, b []byte) int {
	return cmp.Or(cmp.Compare(strings.Count(string(b), "/"), strings.Count(string(a), "/")), strings.Compare(string(a), string(b)))
}

// now is the name that a directory of the lower layer gets.
func (p *planner) now(name string) string {
	best := found{}
	for _, r := range p.renames {
		if changes.Within(name, r.From) && len(r.From) > len(best.From) && slices.ContainsFunc(p.outs, func(o op) bool { return string(o.Path) == r.From }) {
			best = r
		}
	}
	if best.From == "" {
		return name
	}
	return best.Path + strings.TrimPrefix(name, best.From)
}
