package proxy

import (
	"errors"
	"io"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
)

// An address that is the host's own is not dialled, nor one of which nobody knows.
func TestHostsOwn(t *testing.T) {
	b := start(t, allow("a.test:22", "b.test:22,private", "9.9.9.0/24:23"), echo, nil)
	refused := func(host string, port uint16, code sbxerr.Code) {
		t.Helper()
		before := len(b.dialer.all())
		if got, err := io.ReadAll(b.dial(host, port)); len(got) != 0 || err == nil {
			t.Errorf("%s: %q, %v; want a reset", host, got, err)
		}
		if a := b.record(); a.Verdict != attempt.Refused || a.Code != code || len(b.dialer.all()) != before {
			t.Errorf("%s: %+v, dialled %q", host, a, b.dialer.all())
		}
	}
	carried := func(host string, port uint16, private bool) {
		t.Helper()
		if got, err := talk(b.dial(host, port), "x"); got != "x" || err != nil {
			t.Errorf("%s: %q, %v", host, got, err)
		}
		if a := b.record(); a.Verdict != attempt.Allowed || a.Private != private {
			t.Errorf("%s: %+v", host, a)
		}
	}
	carried("a.test", 22, false)
	carried("b.test", 22, false)
	carried("9.9.9.9", 23, false)
	b.own.set(nil, "9.9.9.8", "9.9.9.9")
	refused("a.test", 22, sbxerr.EgressAddress)
	refused("9.9.9.9", 23, sbxerr.EgressDenied)
	carried("b.test", 22, true)
	b.SetPolicy(compile(t, policy.Spec{Mode: policy.Open}))
	refused("a.test", 22, sbxerr.EgressAddress)
	b.own.set(errors.New("no answer"))
	refused("a.test", 22, sbxerr.EgressAddress)
	b.own.set(nil)
	carried("a.test", 22, false)
}

// One that becomes the host's own while it is dialled is let go of.
func TestHostsOwnMeanwhile(t *testing.T) {
	b := start(t, allow("a.test:22"), echo, nil)
	b.dialer.before = func() { b.own.set(nil, "9.9.9.9") }
	if got, err := io.ReadAll(b.dial("a.test", 22)); len(got) != 0 || err == nil {
		t.Errorf("%q, %v; want a reset", got, err)
	}
	if a := b.record(); a.Verdict != attempt.Refused || a.Code != sbxerr.EgressAddress {
		t.Errorf("%+v", a)
	}
}
