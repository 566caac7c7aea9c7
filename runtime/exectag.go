package runtime

import (
	"context"
	"os"
	"slices"

	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/runtime/pid1"
)

// tag is the cgroup of a command that has no limits of its own and is not the only one of
// its sandbox. All that the command starts is in it.
type tag struct {
	*cgroups.Child
	number uint32
	of     *execution // nil where nobody has it, or that is not known
	enter  *os.File   // by which a thread of PID 1 enters it; nil for one of an earlier daemon
}

// tags are those of a sandbox. A command takes over the tag of one that left nothing
// running, since to make a tag and to remove it takes longer than to use it.
type tags struct {
	home *os.File // by which a thread of PID 1 leaves a tag; nil before the first
	last uint32   // the newest number
	free []*tag   // without a process, at most maxFreeTags
	left []*tag   // of commands that are over, with what they left running
}

const (
	// maxFreeTags bounds the tags that wait for a command, each of which has a file open.
	maxFreeTags = 4
	// maxSwept bounds the tags of earlier commands that a command which leaves one looks at.
	maxSwept = 8
)

// takeTagLocked returns a tag for a command that needs one, or nil.
func (h *host) takeTagLocked(s *sandbox) (*tag, error) {
	if h.groups.Tags != finding.Yes {
		return nil, nil
	}
	if n := len(s.tags.free); n > 0 {
		t := s.tags.free[n-1]
		s.tags.free = s.tags.free[:n-1]
		return t, nil
	}
	group, err := h.group(s.id)
	if err != nil {
		return nil, err
	}
	if s.tags.home == nil {
		if s.tags.home, err = group.OpenHome(); err != nil {
			return nil, err
		}
	}
	n := s.tags.last + 1
	child, err := group.NewTag(n)
	if err != nil {
		return nil, err
	}
	enter, err := child.OpenTag()
	if err != nil {
		_, _ = child.RemoveTag() // it goes with the sandbox
		return nil, err
	}
	s.tags.last = n
	return &tag{Child: child, number: n, enter: enter}, nil
}

// tagOf returns the files of the tag of e, nil where it has none.
func (s *sandbox) tagOf(e *execution) *pid1.Tag {
	t := e.tagged()
	if t == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pid1.Tag{Enter: t.enter, Leave: s.tags.home}
}

// tagged returns the tag of e, nil where it has none, or what it left has ended.
func (e *execution) tagged() *tag {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tag
}

// untag takes the tag of e, which is over, back. An empty one is free.
func (h *host) untag(s *sandbox, e *execution, empty bool) {
	t := e.tagged()
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if empty && t.enter != nil && len(s.tags.free) < maxFreeTags && s.ending == nil {
		e.setTag(nil)
		s.tags.free = append(s.tags.free, t)
		return
	}
	s.tags.left = append(s.tags.left, t) // a look at the limits removes it
}

// emptied reports whether the tag of e, which ended as end says, is empty: PID 1 says that
// nothing else runs in the sandbox, or the kernel that nothing is in the tag. A PID 1 that lies
// mixes up its own commands.
func (e *execution) emptied(end ending) bool {
	t := e.tagged()
	switch {
	case t == nil || !end.Known || end.Forced:
		return false
	case end.Exit.Remaining == 0:
		return true
	}
	empty, err := t.TagEmpty()
	return err == nil && empty
}

// setTag gives e the tag t, or takes it away where t is nil.
func (e *execution) setTag(t *tag) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tag != nil {
		e.tag.of = nil
	}
	if e.tag = t; t != nil {
		t.of = e
	}
}

// sweepTagsLocked removes tags whose last process has ended. It looks at a few, those that
// it looked at last come last.
func (h *host) sweepTagsLocked(s *sandbox) {
	look := s.tags.left[:min(maxSwept, len(s.tags.left))]
	busy := slices.Clone(s.tags.left[len(look):])
	for _, t := range look {
		gone, err := t.RemoveTag()
		if err != nil {
			h.log.Warn("remove the cgroup of a command", "sandbox", s.id, "cgroup", t.Path(), "err", err)
		}
		if !gone {
			busy = append(busy, t)
			continue
		}
		t.close()
		if t.of != nil {
			t.of.setTag(nil)
		}
	}
	s.tags.left = busy
}

// close closes the file of t. The tag stays.
func (t *tag) close() {
	if t.enter != nil {
		_ = t.enter.Close() // nothing is written any more
	}
}

// closeTags closes what is open of all tags.
func (s *sandbox) closeTags() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range slices.Concat(s.tags.free, s.tags.left) {
		t.close()
	}
	if s.tags.home != nil {
		_ = s.tags.home.Close() // likewise
	}
	s.tags = tags{last: s.tags.last}
}

// loadTags goes on with the tags of an earlier daemon: those of running commands are
// theirs, the others go once they have no process.
func (h *host) loadTags(s *sandbox, group *cgroups.Group, running []*execution) error {
	numbers, err := group.Tags()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		s.tags.last = max(s.tags.last, n)
		t := &tag{Child: group.Tag(n), number: n}
		at := slices.IndexFunc(running, func(e *execution) bool { return e.record.Tag == n })
		if at < 0 {
			s.tags.left = append(s.tags.left, t)
			continue
		}
		running[at].setTag(t)
	}
	h.sweepTagsLocked(s)
	return nil
}

// endTagged ends every process in the tag of e, which has one, and counts them first.
func (h *host) endTagged(ctx context.Context, e *execution) error {
	t := e.tagged()
	pids, err := t.Procs()
	if err != nil || len(pids) == 0 {
		return err
	}
	e.noteEnded(pids)
	return h.killGroup(ctx, e, t.Child)
}

// leftRunning counts the processes that commands which are over have left in s.
func (s *sandbox) leftRunning() (n int) {
	s.mu.Lock()
	left := slices.Clone(s.tags.left)
	s.mu.Unlock()
	for _, t := range left {
		pids, _ := t.Procs() // a tag that cannot be read is not counted
		n += len(pids)
	}
	return n
}
