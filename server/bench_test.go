package server_test

import (
	"context"
	"io"
	"testing"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server/servertest"
)

func started(rio runtime.IO) {
	rio.Started(runtime.Info{ID: "id"}, runtime.ExecInfo{ID: "exec", SandboxID: "id"})
}

// BenchmarkStreamOutput is a command that writes as fast as it is read.
func BenchmarkStreamOutput(b *testing.B) {
	const piece = 256 << 10
	f := &servertest.Fake{OnExec: func(_ context.Context, _ string, req plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		started(rio)
		buf := make([]byte, piece)
		for range *req.OutputLimit {
			if _, err := rio.Stdout.Write(buf); err != nil {
				return nil, err
			}
		}
		return &runtime.Result{}, nil
	}}
	c := api.Dial(servertest.Listen(b, f))
	defer c.Close()
	n := int64(b.N)
	b.SetBytes(piece)
	b.ReportAllocs()
	b.ResetTimer()
	spec := &caissonv1.ExecSpec{Args: []string{"yes"}, OutputLimitBytes: &n}
	if _, err := c.Exec(b.Context(), "id", spec, api.IO{Stdout: io.Discard}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExec is what the API adds to a short command.
func BenchmarkExec(b *testing.B) {
	c := api.Dial(servertest.Listen(b, &servertest.Fake{}))
	defer c.Close()
	spec := &caissonv1.ExecSpec{Args: []string{"true"}}
	b.Run("unary", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Output(b.Context(), "id", spec, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stream", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Exec(b.Context(), "id", spec, api.IO{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
