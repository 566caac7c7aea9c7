package api_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/server/servertest"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
)

// TestManyAtOnce has more commands at once than a connection has streams, with
// input and without: all run, and none waits for the end of another.
func TestManyAtOnce(t *testing.T) { withEach(t, testManyAtOnce) }

func testManyAtOnce(t *testing.T, o api.Options) {
	const many = 300
	var running sync.WaitGroup
	running.Add(many)
	c := dialWith(t, o, &servertest.Fake{OnExec: func(_ context.Context, _ string, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id"})
		running.Done()
		running.Wait()
		if rio.Stdin != nil {
			_, _ = io.Copy(io.Discard, rio.Stdin)
		}
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
