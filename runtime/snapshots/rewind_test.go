package snapshots

import (
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime/plan"
)

// A snapshot fits a sandbox with the same image and the same disk.
func TestSnapshotFits(t *testing.T) {
	size := disk.Size{Bytes: 64 << 20}
	whole := plan.Origin{Name: "s", Snapshot: plan.Snapshot{ImageDigest: "a", Size: size, WritableRoot: true}}
	part := plan.Origin{Name: "s", Snapshot: plan.Snapshot{ImageDigest: "a", Size: size}}
	fits := Target{Name: "box", ImageDigest: "a", Size: size, Writable: true}
	for name, tt := range map[string]struct {
		change func(*Target)
		from   plan.Origin
		want   sbxerr.Code
	}{
		"the same":                       {func(*Target) {}, whole, ""},
		"inodes by default":              {func(s *Target) { s.Size = size.Filled() }, whole, ""},
		"a part, over another image":     {func(s *Target) { s.Writable, s.ImageDigest = false, "b" }, part, ""},
		"another image":                  {func(s *Target) { s.ImageDigest = "b" }, whole, sbxerr.SnapshotImage},
		"a part in the place of a whole": {func(*Target) {}, part, sbxerr.SnapshotMismatch},
		"a whole in the place of a part": {func(s *Target) { s.Writable = false }, whole, sbxerr.SnapshotMismatch},
		"another size":                   {func(s *Target) { s.Size.Bytes *= 2 }, whole, sbxerr.SnapshotMismatch},
		"no disk":                        {func(s *Target) { s.Size = disk.Size{} }, whole, sbxerr.SnapshotDisk},
		"copy-on-write":                  {func(s *Target) { s.Cow = true }, whole, sbxerr.SnapshotWorkspace},
		"for one command":                {func(s *Target) { s.Command = true }, whole, sbxerr.State},
	} {
		target := fits
		tt.change(&target)
		if err := target.Check(tt.from); sbxerr.Of(err) != tt.want && !(err == nil && tt.want == "") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
