package snapshots

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Snapshots are compared that are of one thing: what lies below them counts only where something does.
func TestCheckDiff(t *testing.T) {
	of := func(path, image string, writable bool) Info {
		return Info{Snapshot: plan.Snapshot{Path: path, ImageDigest: image, WritableRoot: writable}}
	}
	for name, tt := range map[string]struct {
		a, b Info
		want error
	}{
		"one image":               {of("", "x", true), of("", "x", true), nil},
		"two images":              {of("", "x", true), of("", "y", true), sbxerr.SnapshotImage},
		"two images, no root":     {of("", "x", false), of("", "y", false), nil},
		"a directory, two images": {of("/d", "x", false), of("/d", "y", false), nil},
		"two directories":         {of("/d", "x", false), of("/e", "x", false), sbxerr.SnapshotMismatch},
		"a root, and none":        {of("", "x", true), of("", "x", false), sbxerr.SnapshotMismatch},
		"a directory, and none":   {of("/d", "x", false), of("", "x", false), sbxerr.SnapshotMismatch},
	} {
		for _, err := range []error{tt.a.checkDiff(tt.b), tt.b.checkDiff(tt.a)} {
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
	}
}

// Files are taken for unchanged only where both snapshots are of one disk of one sandbox.
func TestCommonTime(t *testing.T) {
	at := time.Now()
	of := func(id, path string, age, since time.Duration) Info {
		i := Info{Snapshot: plan.Snapshot{SandboxID: id, Path: path, CreatedAt: at.Add(-age)}}
		if since != 0 {
			i.DiskSince = at.Add(-since)
		}
		return i
	}
	a := of("a", "", time.Minute, 0)
	for name, b := range map[string]Info{
		"another sandbox": of("b", "", 0, 0), "a directory": of("a", "/d", 0, 0), "rewound since": of("a", "", 0, time.Second),
	} {
		if !a.common(b).IsZero() || !b.common(a).IsZero() {
			t.Errorf("%s: they are of one disk", name)
		}
	}
	if imported := of("", "", 0, 0); !imported.common(imported).IsZero() {
		t.Error("two that were imported are of one disk")
	}
	if b := of("a", "", 0, 0); !a.common(b).Before(a.CreatedAt) || a.common(b) != b.common(a) || a.common(b).IsZero() {
		t.Errorf("of one disk until %s", a.common(b))
	}
}

func TestBelow(t *testing.T) {
	whole, tree := Info{}, Info{Snapshot: plan.Snapshot{Path: "/opt/deps"}}
	for _, tt := range []struct {
		of       Info
		in, want []string
		refused  bool
	}{
		{whole, []string{"etc", "/usr/lib/"}, []string{"etc", "usr/lib"}, false},
		{whole, []string{"etc", "/"}, nil, false},
		{tree, []string{"a/../b", "/opt/deps/c"}, []string{"b", "c"}, false},
		{tree, []string{"/opt/deps"}, nil, false},
		{tree, []string{"/opt"}, nil, true},
		{tree, []string{"/opt/deps2"}, nil, true},
		{whole, []string{"../etc"}, nil, true},
		{whole, []string{""}, nil, true},
		{whole, make([]string, 1001), nil, true},
	} {
		got, err := tt.of.below(tt.in)
		if !slices.Equal(got, tt.want) || (err != nil) != tt.refused || err != nil && !errors.Is(err, sbxerr.Config) {
			t.Errorf("%.3q: %q, %v", tt.in, got, err)
		}
	}
}
