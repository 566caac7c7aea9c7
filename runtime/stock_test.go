package runtime

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/tests/need"
)

func TestStockSize(t *testing.T) {
	profiles := map[string]plan.Profile{
		"none": {}, "allow": {Network: plan.Network{Allow: []string{"a.example"}}}, "open": {Network: plan.Network{Mode: "open"}}, "bridge": {Network: plan.Network{Mode: "bridge"}},
	}
	for _, tt := range []struct {
		pools []PoolConfig
		want  int
	}{
		{nil, 4},
		{[]PoolConfig{{Profile: "none", Size: 9}, {Profile: "bridge", Size: 9}, {Profile: "gone", Size: 9}}, 4},
		{[]PoolConfig{{Profile: "allow", Size: 2}, {Profile: "open", Size: 3, Max: 8}}, 14},
		{[]PoolConfig{{Profile: "allow", Size: 2, Max: 500}}, 64},
	} {
		m := newTestManager(func(o *Options) { o.Profiles, o.Pools = profiles, tt.pools })
		if m.stock.size != tt.want {
			t.Errorf("%+v: %d, want %d", tt.pools, m.stock.size, tt.want)
		}
	}
}

// The stock is filled from the first use on, at once while it is empty, and then only while
// nobody makes a sandbox.
func TestFillStock(t *testing.T) {
	need.Root(t, "it makes network namespaces")
	log := new(bytes.Buffer)
	m := newTestManager(func(o *Options) { o.MaxCreating = 2 })
	m.log = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	m.fillers.Go(func() { m.fillStock(ctx) })
	defer func() {
		cancel()
		if m.fillers.Wait(); m.stock.Close() != nil || log.Len() > 0 {
			t.Errorf("the filler says %s", log)
		}
	}()
	after := func(d time.Duration, want int) {
		t.Helper()
		if time.Sleep(d); m.stock.Len() != want {
			t.Fatalf("%d are ready, want %d", m.stock.Len(), want)
		}
	}
	after(3*stockRest, 0)
	place, err := m.making.enter(holder{root: true})
	if err != nil {
		t.Fatal(err)
	}
	if taken, err := m.stock.take(t.TempDir() + "/netns"); taken || err != nil {
		t.Fatalf("an empty stock: %t, %v", taken, err)
	}
	eventually(t, "one is ready", func() bool { return m.stock.Len() == 1 })
	after(3*stockRest, 1)
	place.leave()
	eventually(t, "all are ready", func() bool { return m.stock.Len() == stockSize })
	after(3*stockRest, stockSize)
}
