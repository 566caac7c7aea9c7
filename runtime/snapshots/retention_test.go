package snapshots

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/events"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// keeping is a fleet whose snapshots are ever newer.
type keeping struct {
	fleet
	at   *time.Time
	used []string
}

func (k *keeping) save(_ context.Context, _ Source, _, file string) (plan.Snapshot, error) {
	*k.at = k.at.Add(time.Second)
	return plan.Snapshot{CreatedAt: *k.at, UsedBytes: 10}, os.WriteFile(file, nil, 0o600)
}

func (k *keeping) Origins(each func(owner uint32, ref string)) {
	for _, ref := range append(k.used, "") {
		each(0, ref)
	}
}

// What is past the retention goes, the oldest first. What somebody named, what a sandbox began with,
// and what others have, stays.
func TestRetention(t *testing.T) {
	for name, tt := range map[string]struct {
		most Retention
		left int // of four, without the one in use
	}{
		"no bound":           {Retention{}, 4},
		"not reached":        {Retention{Most: 5, Bytes: 50, For: time.Hour}, 4},
		"so many":            {Retention{Most: 2}, 2},
		"so many bytes":      {Retention{Bytes: 39}, 3},
		"for so long":        {Retention{For: time.Second}, 0},
		"the narrowest goes": {Retention{Most: 3, Bytes: 15, For: time.Hour}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			at, bound := time.Now().Add(-time.Minute), Retention{}
			bus := events.New(events.Options{})
			f := &keeping{fleet: fleet{}, at: &at}
			s := NewService(NewStore(t.TempDir()), f, nil, nil, bus, func() Retention { return bound }, slog.New(slog.DiscardHandler))
			s.save = f.save
			ctx := peer.NewContext(t.Context(), peer.User(0, 0, nil, 1))
			create := func(name string) string {
				info, err := s.Create(ctx, "box", name, "")
				if err != nil {
					t.Fatal(err)
				}
				return info.Name
			}
			create("named")
			f.used = []string{create("")}
			var made []string
			for range 4 {
				made = append(made, create(""))
			}
			bound = tt.most
			s.Prune(ctx)
			want := append([]string{"named", f.used[0]}, made[4-tt.left:]...)
			list, err := s.List(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, i := range list {
				left = append(left, i.Name)
			}
			slices.Sort(left)
			slices.Sort(want)
			if !slices.Equal(left, want) {
				t.Errorf("left %s, want %s", strings.Join(left, " "), strings.Join(want, " "))
			}
		})
	}
}
