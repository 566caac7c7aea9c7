package execs

import (
	"strings"
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// What ended a command is told, rather than what else had happened in its sandbox.
func TestNoteOf(t *testing.T) {
	for _, tt := range []struct {
		result *caissonv1.Result
		want   string
	}{
		{&caissonv1.Result{Reason: "exited"}, ""},
		{&caissonv1.Result{Reason: "timeout", TimedOut: true, OomKilled: true}, "by its timeout"},
		{&caissonv1.Result{Reason: "expired", OomKilled: true}, "--ttl"},
		{&caissonv1.Result{Reason: "canceled", Cause: "removed", OomKilled: true, PidsLimitHit: true}, "its sandbox was removed"},
		{&caissonv1.Result{Reason: "canceled", Cause: "daemon_stopped"}, "the daemon stopped"},
		{&caissonv1.Result{Reason: "oom", OomKilled: true}, "memory"},
		{&caissonv1.Result{Reason: "lost"}, "without a word"},
		{&caissonv1.Result{Reason: "exited", PidsLimitHit: true}, "processes"},
	} {
		if got := noteOf(tt.result, sharedHints); !strings.Contains(got, tt.want) || got != "" && tt.want == "" {
			t.Errorf("%s: %q", tt.result.Reason, got)
		}
	}
}
