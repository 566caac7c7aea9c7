package server_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/server/servertest"
)

func TestStatsCall(t *testing.T) {
	var sel runtime.StatsSelection
	f := &servertest.Fake{OnStats: func(s runtime.StatsSelection, _ bool) ([]runtime.SandboxStats, error) {
		sel = s
		return []runtime.SandboxStats{{SandboxID: "a"}}, nil
	}}
	c := api.Dial(servertest.Listen(t, f))
	defer c.Close()
	told := func(req *caissonv1.StatsRequest) (n int, err error) {
		return n, c.Stats(t.Context(), req, func(r *caissonv1.StatsResponse) error { n += len(r.Sandboxes); return nil })
	}
	if n, err := told(&caissonv1.StatsRequest{Refs: []string{"a", "b"}}); n != 2 || err != nil || !slices.Equal(sel.Refs, []string{"a", "b"}) {
		t.Errorf("a stream of two: %d, %v, %+v", n, err, sel)
	}
	if n, err := told(&caissonv1.StatsRequest{Session: "s", NoStream: true}); n != 1 || err != nil {
		t.Errorf("one answer: %d, %v", n, err)
	}
	if !sel.Takes(runtime.Info{Session: "s"}) || sel.Takes(runtime.Info{Session: "other"}) {
		t.Error("the filter is not that of the request")
	}
	for name, tt := range map[string]struct {
		req  *caissonv1.StatsRequest
		code sbxerr.Code
	}{
		"both":        {&caissonv1.StatsRequest{Refs: []string{"a"}, Task: "t"}, sbxerr.APIUsage},
		"a bad name":  {&caissonv1.StatsRequest{Name: "["}, sbxerr.Config},
		"a bad state": {&caissonv1.StatsRequest{States: []string{"alive"}}, sbxerr.Config},
		"a bad age":   {&caissonv1.StatsRequest{OlderThan: durationpb.New(-time.Second)}, sbxerr.Limits},
		"no ref":      {&caissonv1.StatsRequest{Refs: []string{""}}, sbxerr.Config},
	} {
		if _, err := told(tt.req); sbxerr.Of(err) != tt.code {
			t.Errorf("%s: %v; want %s", name, err, tt.code)
		}
	}
	if _, err := c.History(t.Context(), &caissonv1.HistoryRequest{Ref: "absent"}); sbxerr.Of(err) != sbxerr.NotFound {
		t.Errorf("history of none: %v", err)
	}
}
