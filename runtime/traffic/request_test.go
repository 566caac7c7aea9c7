package traffic

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/usage"
)

// A request to a route is an entry with its answer and the name of its credential. It counts as
// carried, but is no destination that a policy could learn.
func TestRequestEntries(t *testing.T) {
	use := usage.Use{Name: "up.caisson.internal", Credential: "key", Method: "GET", Path: "/v1", Begun: time.Now(), Sent: 1, Received: 2}
	for _, tt := range []struct {
		status  int
		code    sbxerr.Code
		reason  string
		verdict string
		says    string
		carried bool
	}{
		{200, "", "", "allowed", `status 200, credential "key"`, true},
		{403, sbxerr.EgressRoute, "not this path", "refused", `status 403, credential "key": not this path`, false},
		{502, sbxerr.EgressRoute, "an encoding", "failed", `status 502, credential "key": an encoding`, false},
		{502, sbxerr.Secret, "no value", "failed", `status 502, credential "key": no value`, false},
		{0, sbxerr.Canceled, "the client went away", "stopped", `no answer, credential "key": the client went away`, true},
	} {
		use.Status, use.Code, use.Reason = tt.status, tt.code, tt.reason
		e := entryOfUse(use)
		if e.Kind != Request || e.Verdict != tt.verdict || e.Reason != tt.says || e.Type != "GET /v1" || e.Request() != "GET /v1" || e.Rule != "route up" || e.Port != 80 || e.carried() != tt.carried {
			t.Errorf("%+v: %+v", tt, e)
		}
		if s, ok := e.Seen(); ok {
			t.Errorf("it is learned as %+v", s)
		}
	}
	plain := entryOfUse(usage.Use{Name: "a.example", Rule: "allow a.example", Method: "GET", Path: "/v1", Status: 404, Received: 7, Begun: time.Now()})
	if plain.Kind != Request || plain.Verdict != "allowed" || plain.Reason != "status 404" || plain.Received != 7 || plain.Rule != "allow a.example" || plain.Type != "GET /v1" {
		t.Errorf("by plain HTTP: %+v", plain)
	}
}
