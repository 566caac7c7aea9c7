package runtime

import (
	"errors"
	"testing"
	"time"
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
		{"busy", record{IdleTimeout: time.Minute}, 0, ErrExpired},
		{"idle", record{IdleTimeout: time.Minute, IdleSince: soon}, soon + moment(time.Minute), ErrIdle},
		{"ttl before idle", record{Expires: soon, IdleTimeout: time.Minute, IdleSince: late}, soon, ErrExpired},
		{"idle before ttl", record{Expires: late, IdleTimeout: time.Minute, IdleSince: soon}, soon + moment(time.Minute), ErrIdle},
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
	if !moment(0).wall().IsZero() {
		t.Error("never has a time")
	}
	d := time.Hour
	at := in(&d)
	if left := at.left(); left <= 59*time.Minute || left > d {
		t.Errorf("%s left of an hour", left)
	}
	if off := time.Until(at.wall()) - d; off < -time.Minute || off > time.Minute {
		t.Errorf("the wall shows it %s off", off)
	}
	zero := time.Duration(0)
	if in(nil) != 0 || in(&zero) != 0 {
		t.Error("no time is a time")
	}
	if past := now() - moment(time.Hour); past.left() != 0 {
		t.Error("the past has time left")
	}
}
