package pool

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/need"
)

func TestStockSize(t *testing.T) {
	needsRules := func(profile string) bool { return profile == "allow" || profile == "open" }
	for _, tt := range []struct {
		pools []Config
		want  int
	}{
		{nil, 4},
		{[]Config{{Profile: "none", Size: 9}, {Profile: "bridge", Size: 9}}, 4},
		{[]Config{{Profile: "allow", Size: 2}, {Profile: "open", Size: 3, Max: 8}}, 14},
		{[]Config{{Profile: "allow", Size: 2, Max: 500}}, 64},
	} {
		if s := NewStock(tt.pools, needsRules, nil, slog.Default()); s.size != tt.want {
			t.Errorf("%+v: %d, want %d", tt.pools, s.size, tt.want)
		}
	}
}

// The stock is filled from the first use on, at once while it is empty, and then only while
// nobody makes a sandbox.
func TestFillStock(t *testing.T) {
	need.Root(t, "it makes network namespaces")
	log := new(bytes.Buffer)
	var busy atomic.Bool
	s := NewStock(nil, nil, busy.Load, slog.New(slog.NewTextHandler(log, nil)))
	s.Start(t.Context())
	defer func() {
		if err := s.Close(); err != nil || log.Len() > 0 {
			t.Errorf("%v; the filler says %s", err, log)
		}
	}()
	after := func(d time.Duration, want int) {
		t.Helper()
		if time.Sleep(d); s.stock.Len() != want {
			t.Fatalf("%d are ready, want %d", s.stock.Len(), want)
		}
	}
	await := func(want int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); s.stock.Len() != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d are ready, want %d", s.stock.Len(), want)
			}
		}
	}
	after(3*stockRest, 0)
	busy.Store(true)
	if taken, err := s.Take(t.TempDir() + "/netns"); taken || err != nil {
		t.Fatalf("an empty stock: %t, %v", taken, err)
	}
	await(1)
	after(3*stockRest, 1)
	busy.Store(false)
	await(stockSize)
	after(3*stockRest, stockSize)
}
