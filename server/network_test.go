package server_test

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestTrafficGoesOn: the cursor of an entry is the ID of its event, and of a gap there is none.
func TestTrafficGoesOn(t *testing.T) {
	socket := servertest.Listen(t, &servertest.Fake{OnTraffic: func(_, since string, _ bool) ([]runtime.TrafficEntry, error) {
		return []runtime.TrafficEntry{{Kind: "gap"}, {Kind: "lookup", Name: "after " + since}}, nil
	}})
	got := whole(t, plain(t, socket, "GET", "/v1/sandboxes/a/traffic?since=1-1", "", "Accept", "text/event-stream", "Last-Event-ID", "12-34"))
	if !strings.Contains(got, `"name":"after 12-34"`) || !strings.Contains(got, `"cursor":"0-0"`) || strings.Count(got, "id: ") != 1 || !strings.Contains(got, "id: 0-0\ndata: ") {
		t.Errorf("got:\n%s", got)
	}
}
