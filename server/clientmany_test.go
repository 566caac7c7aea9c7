package api_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

// TestManyAtOnce has many commands at once, with input and without: all run, and none
// waits for the end of another.
func TestManyAtOnce(t *testing.T) {
	const many = 300
	var running sync.WaitGroup
	running.Add(many)
	c := dial(t, &servertest.Fake{OnInput: func(_ context.Context, _, _ string, req runtime.InputRequest) (runtime.InputState, error) {
		return runtime.InputState{Closed: req.Close}, nil
	}, OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id"})
		running.Done()
		running.Wait()
		return &runtime.Result{}, nil
	}})
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			rio := api.IO{}
			if i%2 == 0 {
				r, w := io.Pipe()
				rio.Stdin = r
				go func() { _, _ = w.Write(make([]byte, 100<<10)); _ = w.Close() }()
			}
			if _, err := c.Exec(t.Context(), "id", &caissonv1.ExecSpec{Args: []string{"x"}, Stdin: rio.Stdin != nil}, rio); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
