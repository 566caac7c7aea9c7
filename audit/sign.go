package audit

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/owndir"
)

// sign signs the head of the log each second, until stop. It also keeps the
// reserve and what is kept within their bounds.
func (l *Log) sign() {
	defer close(l.done)
	tick := time.NewTicker(headInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%pruneEvery == 0 {
			if err := l.prune(time.Now()); err != nil {
				l.o.Log.Warn("remove old segments of the audit log", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-l.stop:
			return
		}
		if l.openLate() != nil { // as was logged before
			continue
		}
		if err := l.signNow(); err != nil {
			l.o.Log.Error("sign the audit log", "err", err)
		}
		if l.isLow() {
			l.fillReserve()
		}
	}
}

// pruneEvery is how many heads are between two looks at what is old.
const pruneEvery = 60

func (l *Log) isLow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.low
}

// signNow signs the head as it is now, when the disk has what it is about.
func (l *Log) signNow() error {
	l.mu.Lock()
	last, file := l.last, l.file
	l.mu.Unlock()
	if file == nil || l.isSigned(last) {
		return nil
	}
	err := unix.Fdatasync(int(file.Fd()))
	if errors.Is(err, unix.EBADF) { // it was sealed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	return l.signHead(last)
}

func (l *Log) isSigned(h Head) bool {
	l.heads.Lock()
	defer l.heads.Unlock()
	return l.signed == h
}

// signHead writes the head of the log, unless there is a later one.
func (l *Log) signHead(h Head) error {
	l.heads.Lock()
	defer l.heads.Unlock()
	if h.Seq < l.signed.Seq {
		return nil
	}
	if err := writeNote(latestPath(l.o.Dir), latestTitle, h, l.signer); err != nil {
		return err
	}
	l.signed = h
	return nil
}

// prune removes the oldest segments past what is to be kept. What went is signed first, so
// that a segment that somebody else removed is missed.
func (l *Log) prune(now time.Time) error {
	firsts, err := segments(l.o.Dir)
	if err != nil || len(firsts) < 2 {
		return err
	}
	sizes, ages, total := make([]int64, len(firsts)), make([]time.Duration, len(firsts)), int64(0)
	for i, first := range firsts {
		info, err := os.Lstat(segmentPath(l.o.Dir, first))
		if err != nil {
			return err
		}
		sizes[i], ages[i] = info.Size(), now.Sub(info.ModTime())
		total += info.Size()
	}
	surplus := 0
	for ; surplus < len(firsts)-1; surplus++ {
		tooMuch, tooOld := l.o.MaxBytes > 0 && total > l.o.MaxBytes, l.o.MaxAge > 0 && ages[surplus] > l.o.MaxAge
		if !tooMuch && !tooOld {
			break
		}
		total -= sizes[surplus]
	}
	return l.remove(firsts[:surplus])
}

// remove removes sealed segments, which are the oldest.
func (l *Log) remove(firsts []uint64) error {
	if len(firsts) == 0 {
		return nil
	}
	end, err := readNote(headPath(l.o.Dir, firsts[len(firsts)-1]), sealedTitle, l.public)
	if err != nil {
		return err
	}
	if err := writeNote(startPath(l.o.Dir), startTitle, end, l.signer); err != nil {
		return err
	}
	for _, first := range firsts {
		for _, path := range []string{segmentPath(l.o.Dir, first), headPath(l.o.Dir, first)} {
			if err := owndir.Unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	l.o.Log.Info("old segments of the audit log removed", "segments", len(firsts), "up_to", end.Seq)
	return nil
}
