package output

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

const (
	// spareHalf is what a spare file keeps of the beginning and of the end, in bytes.
	spareHalf = 128 << 10
	// sure is what a store may keep in a full room: others that write much do not take
	// a command its few lines.
	sure = 64 << 10
	// minStep and maxStep bound the slack on the disk past the limit, in bytes.
	minStep, maxStep = 1 << 20, 64 << 20
)

// Why more is left out of a stream than its limit says.
var (
	errDropped = sbxerr.WithRemedy(sbxerr.Limits, "output.drop", errors.New("the output was dropped, as that of later commands took its place"),
		"read output before so much of later commands is kept, write it to a file in the sandbox, or raise sandboxes.kept_output")
	errFull = sbxerr.WithRemedy(sbxerr.Limits, "output.keep", errors.New("the commands that run in the sandbox have written more than is kept of all of them together"),
		"write to a file in the sandbox, run fewer of them at once, or raise sandboxes.kept_output")
	errSpare = errors.New("the daemon's disk is full, and of such output little is kept elsewhere")
)

// Full reports whether err is that of a disk without room: no space, no inodes or no
// quota left. It says nothing about what the file system can do.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// bound says how much stays of a stream: the first head bytes and the last tail ones.
type bound struct{ head, tail int64 }

func halves(limit int64) bound { return bound{head: limit - limit/2, tail: limit / 2} }

// step is how far the file may exceed the limit on the disk, in bytes.
func (b bound) step() int64 { return min(max((b.head+b.tail)/8, minStep), maxStep) }

// narrow has less of the stream stay, for a reason.
func (s *Store) narrow(b bound, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = bound{min(s.bound.head, b.head), min(s.bound.tail, b.tail)}
	if s.why == nil {
		s.why = why
	}
}

// Drop frees what is kept of a finished stream, but for what a reader holds. Its total
// stays known, also to a later daemon.
func (s *Store) Drop() {
	s.work.Lock()
	defer s.work.Unlock()
	if total, _ := s.Total(); total > 0 { // else its readers miss nothing
		s.narrow(bound{}, errDropped)
		s.fit()
		s.forgetTimes()
	}
}

// Room is what several stores may have on the disk together while they are being
// filled. Each store's own limit is a promise to its command, which many commands may
// have at once; the room bounds what comes of all these promises. In a full room a
// store that has much gives half of it, but for what a reader holds. A nil Room bounds nothing.
type Room struct {
	size int64
	used atomic.Int64
}

// NewRoom returns a room of size bytes.
func NewRoom(size int64) *Room { return &Room{size: size} }

// add counts n bytes, and reports whether they are too many.
func (r *Room) add(n int64) bool { return r != nil && r.used.Add(n) > r.size && n > 0 }

// fit frees what is past the bound, counts in the room what is on the disk then, and
// narrows the bound where there is no room for it. The caller holds work.
func (s *Store) fit() {
	s.cut()
	s.mu.Lock()
	from, now := s.parts[len(s.parts)-1].from, int64(0)
	if !s.closed && (!s.done || len(s.parts) > 1) { // a spare file is in memory, until nobody keeps it
		in := span{from, s.kept}
		now = in.size() - s.hole.within(in).size() + s.stamps.size()
	}
	s.mu.Unlock()
	more := now - s.charged
	s.charged = now
	if s.room.add(more) && now > sure {
		half := halves(max(sure, now/2)) // those that have most give most
		s.narrow(bound{max(half.head, from), half.tail}, errFull)
		s.cut()
	}
}

// leftOut is what readers do not get: the hole, and of a finished stream exactly what
// is past its limit. mu is held.
func (s *Store) leftOut() span {
	if !s.done {
		return s.hole
	}
	return s.hole.and(s.middle())
}

// middle is what the bound leaves out, up to the first place that is held. mu is held.
func (s *Store) middle() span {
	m := span{s.bound.head, s.kept - s.bound.tail}
	for h := range s.holds {
		m.to = min(m.to, h.at)
	}
	return m
}

// cut leaves out what is past the bound, where that is worth a call. Where blocks
// cannot be freed nothing more is kept. The caller holds work.
func (s *Store) cut() {
	s.mu.Lock()
	old, least := s.hole, s.bound.step()/2
	if s.done {
		least = 1
	}
	m := s.middle()
	if m.from = up(m.from); m.to < s.kept { // else all of its last page goes
		m.to = down(m.to)
	}
	hole := old.and(m)
	if s.closed || m.size() == 0 || hole.size()-old.size() < least {
		s.mu.Unlock()
		return
	}
	s.hole = hole // readers look at it after they read: none takes zeros for bytes of the stream
	parts := slices.Clone(s.parts)
	s.mu.Unlock()
	if old.from == hole.from { // what is free already is not freed again
		hole.from = max(hole.from, old.to)
	}
	to := int64(math.MaxInt64)
	for _, p := range slices.Backward(parts) {
		if err := p.free(hole.within(span{down(p.from), to})); err != nil {
			s.lose(err)
		}
		to = p.from
	}
}

// free frees the blocks of bytes of a part, which it opens where the store has let go of it.
func (p part) free(out span) error {
	if out.size() == 0 {
		return nil
	}
	if p.file == nil {
		f, err := os.OpenFile(p.path, unix.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		p.file = f
	}
	return punch(p.file, span{out.from, up(out.to)})
}

// turn goes on in the spare file after an error of the store's own one. It reports
// whether it can. The caller holds work.
func (s *Store) turn(failed error) bool {
	if s.o.Spare == "" || len(s.parts) > 1 || !Full(failed) { // work guards the number of parts, too
		return false
	}
	f, err := createFile(s.o.Spare)
	if err != nil {
		return false
	}
	s.room.add(-s.charged)
	s.charged = 0
	s.spare(f)
	return true
}

// spare goes on in the spare file, which keeps less and counts in its own room.
func (s *Store) spare(f *os.File) {
	s.room = s.o.SpareRoom
	split := s.kept
	s.change(func() { s.parts = append(s.parts, part{s.o.Spare, split, f}) })
	s.narrow(bound{max(split, spareHalf), spareHalf}, errSpare)
}

// lose gives up keeping: what comes from now on is only counted.
func (s *Store) lose(err error) {
	if sbxerr.Of(err) == sbxerr.Unknown {
		err = sbxerr.Wrap(sbxerr.StateDir, "output.keep", fmt.Errorf("keep output in %q: %w", s.o.Path, err))
	}
	var f *os.File
	s.change(func() {
		s.broken, s.why = true, err
		f = s.parts[len(s.parts)-1].file
	})
	if f != nil {
		_ = f.Chmod(modeLost) // for a daemon after this one; on a file system that went read-only there is none to tell
	}
}
