package runtime

import (
	"context"
	"testing"
	"time"

	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

// TestUsedImagesStay: an image that was used lately stays, and one that was not goes.
func TestUsedImagesStay(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"used", "unused"} {
		i := baseImage(t)
		i.Name, i.Digest = name, "sha256:"+name
		f.images.images = append(f.images.images, i)
	}
	s := f.session(t, plan.CreateRequest{Image: "used"})
	if _, err := f.Remove(callerContext(t), s.ID, true); err != nil {
		t.Fatal(err)
	}
	settings := *f.settings()
	settings.Prune = PrunePolicy{MinFree: func(size int64) int64 { return size + 1 }, UnusedFor: time.Hour}
	f.Apply(settings)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f.StartPruning(ctx)
	has := func(name string) bool {
		_, err := f.images.GetImage(ctx, images.Key(0, name))
		return err == nil
	}
	eventually(t, "the unused image to go", func() bool { return !has("unused") })
	if !has("used") || !has("base") {
		t.Error("an image went that was used, or base")
	}
}
