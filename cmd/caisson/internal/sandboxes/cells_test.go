package sandboxes

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

func TestTimeCells(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := &cli.App{Now: func() time.Time { return now }}
	s := &caissonv1.Sandbox{
		ExpiresAt: timestamppb.New(now.Add(90 * time.Second)), IdleSince: timestamppb.New(now.Add(-5 * time.Second)),
		IdleTimeout: durationpb.New(10 * time.Minute),
	}
	if ttl, idle := ttlCell(a, s), idleCell(a, s); ttl != "1m30s" || idle != "5s/10m0s" {
		t.Errorf("%q %q", ttl, idle)
	}
}
