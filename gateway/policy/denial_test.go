package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestOf(t *testing.T) {
	inner := sbxerr.WithRemedy(sbxerr.NetPolicy, "policy.name", errors.New("host \"a b\" holds white space"), "write it so")
	got := DenialOf(fmt.Errorf("x: %w", sbxerr.Wrap(sbxerr.EgressDenied, "dns.question", inner)))
	if want := `SBX-701: host "a b" holds white space; write it so`; got.String() != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What is said of a failure on the host's side must not describe the host.
func TestOfHidesTheHost(t *testing.T) {
	for _, code := range []sbxerr.Code{sbxerr.EgressResolve, sbxerr.EgressDial, sbxerr.Gateway, sbxerr.Internal} {
		err := sbxerr.New(code, "proxy.dial", "dial 10.0.0.5:8443: connection refused")
		if got := DenialOf(err).String(); strings.Contains(got, "10.0.0.5") || !strings.HasPrefix(got, string(code)) {
			t.Errorf("%q", got)
		}
	}
	if got := DenialOf(errors.New("open /etc/x")).String(); strings.Contains(got, "/etc") {
		t.Errorf("%q", got)
	}
}
