package runtime

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/seccomp"
)

// Where sockets are not counted, sandboxes are refused more and the doctor tells why.
func TestUncounted(t *testing.T) {
	why := sbxerr.New(sbxerr.SocketMemory, "op", "no types")
	strict, err := seccomp.Lookup("strict")
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Sandbox{Seccomp: strict}
	for _, failure := range []error{nil, why} {
		refuses := !reflect.DeepEqual(refuseUncounted(p, failure), p)
		checks := memoryChecks(failure)
		if refuses != (failure != nil) || (len(checks) == 1) != refuses {
			t.Errorf("%v: refuses more: %v, %+v", failure, refuses, checks)
		}
		for _, c := range checks {
			if c.Status != "warn" || c.Code != "SBX-504" || c.Remedy == "" || !strings.Contains(c.Detail, "no types") {
				t.Errorf("%+v", c)
			}
		}
	}
}

// The watch of locks rests until a sandbox comes, and when the last one is gone.
func TestAwaitSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestManager()
		ctx, cancel := context.WithCancel(t.Context())
		come := func(id string) {
			if err := m.admit(&sandbox{id: id, record: record{Name: id}, gone: make(chan struct{})}); err != nil {
				t.Error(err)
			}
		}
		var woken atomic.Int64
		go func() {
			for (watched{m}).AwaitSandbox(ctx) {
				woken.Add(1)
				time.Sleep(time.Second)
			}
			woken.Store(-1)
		}()
		expect := func(when string, want int64) {
			t.Helper()
			if time.Sleep(10*time.Second - 1); woken.Load() != want {
				t.Errorf("%s: woken %d times, want %d", when, woken.Load(), want)
			}
		}
		expect("without any", 0)
		come("a")
		come("b")
		expect("with two", 10)
		for id := range m.sandboxes {
			m.forget(m.sandboxes[id])
		}
		expect("with none again", 10)
		come("c")
		expect("with another", 20)
		cancel()
		expect("at the end", -1)
	})
}
