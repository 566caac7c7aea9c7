package runtime

import (
	"errors"
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/idle"
)

func TestDue(t *testing.T) {
	soon, late := now()+moment(time.Minute), now()+moment(time.Hour)
	for _, tt := range []struct {
		name string
		r    record
		at   moment
		why  error
	}{
		{"never", record{}, 0, ErrExpired},
		{"ttl", record{Expires: soon}, soon, ErrExpired},
		{"busy", record{Clock: idle.Clock{IdleTimeout: time.Minute}}, 0, ErrExpired},
		{"idle", record{Clock: idle.Clock{IdleTimeout: time.Minute, IdleSince: soon}}, soon + moment(time.Minute), ErrIdle},
		{"ttl before idle", record{Expires: soon, Clock: idle.Clock{IdleTimeout: time.Minute, IdleSince: late}}, soon, ErrExpired},
		{"idle before ttl", record{Expires: late, Clock: idle.Clock{IdleTimeout: time.Minute, IdleSince: soon}}, soon + moment(time.Minute), ErrIdle},
	} {
		if at, why := tt.r.due(); at != tt.at || why != tt.why {
			t.Errorf("%s: %d, %v; want %d, %v", tt.name, at, why, tt.at, tt.why)
		}
	}
}

func TestKeeps(t *testing.T) {
	for _, tt := range []struct {
		name  string
		r     record
		cause error
		want  bool
	}{
		{"foreground run", record{Main: 1}, errMainEnded, false},
		{"detached run", record{Main: 1, Detached: true}, errMainEnded, true},
		{"detached run, removed", record{Main: 1, Detached: true}, ErrRemoved, false},
		{"session, stopped", record{}, ErrStopped, true},
		{"session, lost", record{}, errInitLost, true},
		{"session, expired", record{}, ErrExpired, false},
		{"session, idle", record{}, ErrIdle, false},
		{"session, daemon stops", record{}, ErrStopping, false},
		{"session, wrapped", record{}, errors.Join(ErrStopped), true},
	} {
		if got := tt.r.keeps(tt.cause); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestMoments(t *testing.T) {
	if !moment(0).Wall().IsZero() {
		t.Error("never has a time")
	}
	d := time.Hour
	at := in(&d)
	if left := at.Left(); left <= 59*time.Minute || left > d {
		t.Errorf("%s left of an hour", left)
	}
	if off := time.Until(at.Wall()) - d; off < -time.Minute || off > time.Minute {
		t.Errorf("the wall shows it %s off", off)
	}
	zero := time.Duration(0)
	if in(nil) != 0 || in(&zero) != 0 {
		t.Error("no time is a time")
	}
	if past := now() - moment(time.Hour); past.Left() != 0 {
		t.Error("the past has time left")
	}
}

// TestIdleAgain: what ended after the record of a sandbox was kept counts as its
// use for the daemon that comes next.
func TestIdleAgain(t *testing.T) {
	ended := func(began, took moment) *execution {
		return &execution{record: execRecord{Began: began, Result: &Result{Duration: time.Duration(took)}}}
	}
	for _, tt := range []struct {
		name    string
		kept    moment
		past    []*execution
		running int
		want    moment
	}{
		{"never used", 100, nil, 0, 100},
		{"used since", 100, []*execution{ended(110, 50), ended(120, 5)}, 0, 160},
		{"used before", 200, []*execution{ended(110, 50)}, 0, 200},
		{"lost", 100, []*execution{ended(110, 0)}, 0, 110},
		{"busy", 100, []*execution{ended(110, 50)}, 1, 0},
	} {
		s := &sandbox{record: record{Clock: idle.Clock{IdleSince: tt.kept}}, past: tt.past, running: tt.running}
		s.idleAgainLocked()
		if s.record.IdleSince != tt.want {
			t.Errorf("%s: idle since %d, want %d", tt.name, s.record.IdleSince, tt.want)
		}
	}
	before, s := now(), &sandbox{record: record{FileWork: true}, past: []*execution{ended(110, 50)}}
	if s.idleAgainLocked(); s.record.IdleSince < before || s.record.FileWork {
		t.Errorf("files were worked on: idle since %d, want %d or later", s.record.IdleSince, before)
	}
	before, s = now(), &sandbox{}
	if s.idleAgainLocked(); s.record.IdleSince < before {
		t.Errorf("nothing is known: idle since %d, want %d or later", s.record.IdleSince, before)
	}
}

// TestCommandAtTheLastMoment: what is admitted before the time of a sandbox is over
// for idleness is not ended by that.
func TestCommandAtTheLastMoment(t *testing.T) {
	m := newTestManager()
	for i := range 10000 {
		s := m.newSandbox(nil, record{Clock: idle.Clock{IdleTimeout: 1, IdleSince: 1}})
		s.state = StateRunning
		var begun atomic.Int32
		looked := make(chan struct{})
		go func() { begun.Store(1); s.checkTime(); close(looked) }()
		for begun.Load() == 0 && i%8 > 0 { // some begin before it does
			goruntime.Gosched()
		}
		for range i % 200 { // and some at each point of what it does
			begun.Add(1)
		}
		var refused error
		s.update(func() {
			if refused = s.acceptsLocked(); refused == nil {
				s.busyLocked()
			}
		})
		<-looked
		if cause := s.endCause(); (cause == nil) != (refused == nil) {
			t.Fatalf("a command was told %v, and the sandbox ended because %v", refused, cause)
		}
	}
}
