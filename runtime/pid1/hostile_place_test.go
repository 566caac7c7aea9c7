package pid1

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/initproto"
)

// Each case is what PID 1 says of a command that is to be placed.
func TestPlaceLies(t *testing.T) {
	const pid = 7
	for name, tc := range map[string]struct {
		before []initproto.Message // instead of Placed
		after  []initproto.Message // instead of waiting for Proceed
		last   initproto.Message   // after it
	}{
		"started at once":          {before: []initproto.Message{initproto.Started{Exec: 1, PID: pid}}},
		"placed with its own pid":  {before: []initproto.Message{initproto.Placed{Exec: 1, PID: 1}}},
		"placed twice":             {before: []initproto.Message{initproto.Placed{Exec: 1, PID: pid}, initproto.Placed{Exec: 1, PID: pid}}},
		"exited":                   {before: []initproto.Message{initproto.Exited{Exec: 1}}},
		"started without proceed":  {before: []initproto.Message{initproto.Placed{Exec: 1, PID: pid}}, after: []initproto.Message{initproto.Started{Exec: 1, PID: pid}}},
		"exited without proceed":   {before: []initproto.Message{initproto.Placed{Exec: 1, PID: pid}}, after: []initproto.Message{initproto.Exited{Exec: 1}}},
		"started with another pid": {before: []initproto.Message{initproto.Placed{Exec: 1, PID: pid}}, last: initproto.Started{Exec: 1, PID: pid + 1}},
		"placed after proceed":     {before: []initproto.Message{initproto.Placed{Exec: 1, PID: pid}}, last: initproto.Placed{Exec: 1, PID: pid}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := connect(t)
			cmd := command("true")
			cmd.Number = 1
			cmd.Place = func(context.Context, int) error {
				f.send(tc.after...)
				if tc.last == nil {
					<-c.Done() // the lie is noticed while this runs
				}
				return nil
			}
			done := make(chan error, 1)
			go func() { _, err := c.Start(testContext(t), cmd); done <- err }()
			if m, ok := f.recv().(initproto.Start); !ok || !m.Place {
				t.Errorf("PID 1 got %#v", m)
			}
			f.send(tc.before...)
			if tc.last != nil {
				if m := f.recv(); m != (initproto.Proceed{Exec: 1}) {
					t.Errorf("PID 1 got %#v", m)
				}
				f.send(tc.last)
			}
			wantInit(t, <-done, ErrProtocol)
			wantEnd(t, c, ErrProtocol)
		})
	}
}

func TestPlacedUnasked(t *testing.T) {
	c, f := connect(t)
	done := make(chan error, 1)
	go func() { _, err := c.Start(testContext(t), command("true")); done <- err }()
	m, _ := f.recv().(initproto.Start)
	f.send(initproto.Placed{Exec: m.Exec, PID: 7})
	wantInit(t, <-done, ErrProtocol)
}

func TestNoAnswerToPlacing(t *testing.T) {
	for name, answers := range map[string]int{"to the start": 0, "to proceed": 1, "to abandon": 2} {
		t.Run(name, func(t *testing.T) {
			c, f := connectShort(t, 50*time.Millisecond)
			cmd := placed(command("true"), func(context.Context, int) error {
				if answers == 2 {
					return errors.New("no")
				}
				return nil
			})
			done := make(chan error, 1)
			go func() { _, err := c.Start(testContext(t), cmd); done <- err }()
			f.recv()
			if answers > 0 {
				f.send(initproto.Placed{Exec: cmd.Number, PID: 7})
			}
			if err := <-done; answers < 2 {
				wantInit(t, err, ErrProtocol)
			}
			wantEnd(t, c, ErrProtocol)
		})
	}
}

func TestSignalCountLies(t *testing.T) {
	c, f := connect(t)
	e, id := start(t, c, f, 2)
	done := make(chan error, 1)
	go func() { done <- e.Signal(testContext(t), unix.SIGTERM) }()
	f.recv()
	f.send(initproto.Signaled{Exec: id, Count: 3}) // of a group nothing is counted
	wantInit(t, <-done, ErrProtocol)
	wantEnd(t, c, ErrProtocol)
}
