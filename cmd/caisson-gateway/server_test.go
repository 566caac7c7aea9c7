package main

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/control"
	"github.com/caisson-run/caisson/gateway/droplog"
)

// Who asks about one sandbox hears that not all of it is recorded; who asks about all does
// not wait for one that floods.
func TestSettle(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(pair[0]), "told")
	defer socket.Close()
	defer unix.Close(pair[1])
	log, err := droplog.New(droplog.Config{Sandbox: "box"}, socket)
	if err != nil {
		t.Fatal(err)
	}
	defer log.End()
	s := &server{out: newOutbox(io.Discard), watched: map[string]*watched{"box": {log: log}}}
	ask := func(id string) (sbxerr.Code, time.Duration) {
		t.Helper()
		begun := time.Now()
		s.settle(control.Request{Op: control.Settle, Sandbox: id})
		select {
		case <-s.out.wake:
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
		}
		return s.out.take()[0].Answer.Code, time.Since(begun)
	}
	for _, id := range []string{"box", "", "another"} {
		if code, _ := ask(id); code != "" {
			t.Errorf("%q: with nothing to record the answer is %s", id, code)
		}
	}
	if _, err := unix.Write(pair[1], []byte("one that nobody reads")); err != nil {
		t.Fatal(err)
	}
	if code, took := ask("box"); code != sbxerr.EgressBusy || took < settleOne {
		t.Errorf("about it: %q after %v", code, took)
	}
	for _, id := range []string{"", "another"} {
		if code, took := ask(id); code != "" || took >= settleOne {
			t.Errorf("%q: %q after %v", id, code, took)
		}
	}
}
