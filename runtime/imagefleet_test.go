package runtime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/imageservice"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// imageFixture has two peers, who may import, with images of the same names.
func imageFixture(t *testing.T) (f *fixture, ann, bob context.Context) {
	f = newFixture(t)
	rule := peer.Rule{UIDs: []uint32{1000, 1001}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: peer.DefaultQuota(), Images: true}
	var err error
	if f.opts.Peers, err = peer.NewPolicy([]peer.Rule{rule}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []images.Image{{Name: "tools", Digest: "sha256:2"}, {Name: "tools", Digest: "sha256:3", Owner: 1000}, {Name: "tools", Digest: "sha256:4", Owner: 1001}} {
		f.images.Images = append(f.images.Images, images.Stored{Image: i, ChainID: "chain-base", Layers: []string{t.TempDir()}})
	}
	as := func(uid uint32) context.Context { return peer.NewContext(t.Context(), peer.User(uid, uid, nil, 1)) }
	return f, as(1000), as(1001)
}

func TestImageScopes(t *testing.T) {
	f, ann, bob := imageFixture(t)
	info, err := f.Create(callerContext(t), plan.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	made := f.byID(info.ID)
	made.update(func() { made.record.Nested = &peer.Usage{} })
	child := peer.NewContext(t.Context(), peer.User(0, 0, nil, 1).In(info.ID))
	for _, tt := range []struct {
		ctx       context.Context
		ref, want string // the key; empty: none
	}{
		{callerContext(t), "tools", "tools"}, {callerContext(t), "1001+tools", "1001+tools"}, {callerContext(t), "sha256:4", "1001+tools"},
		{ann, "tools", "1000+tools"}, {ann, "0+tools", "tools"}, {ann, "base", "base"}, {ann, "1001+tools", ""}, {ann, "sha256:4", ""}, {ann, "sha256:2", "tools"},
		{bob, "tools", "1001+tools"}, {bob, "1000+tools", ""},
		{child, "tools", "tools"}, {child, "1000+tools", ""}, {child, "sha256:3", ""},
		{peer.NewContext(t.Context(), peer.System), "tools", "tools"},
	} {
		img, err := f.Images().Find(tt.ctx, tt.ref)
		if tt.want == "" {
			errtest.Want(t, err, sbxerr.ImageNotFound)
			continue
		}
		if err != nil || img.Key() != tt.want {
			t.Errorf("%q is %q, %v; want %q", tt.ref, img.Key(), err, tt.want)
		}
	}
	if _, err := f.Remove(callerContext(t), info.ID, true); err != nil {
		t.Error(err)
	}
}

// The profile's image and those of pools are root's, whoever asks.
func TestProfileImageIsRoots(t *testing.T) {
	f, ann, _ := imageFixture(t)
	f.images.Images = append(f.images.Images, images.Stored{Image: images.Image{Name: "base", Owner: 1000, Digest: "sha256:9"}})
	p, err := f.planFor(ann, plan.CreateRequest{})
	if err != nil || p.Image.Key() != "base" {
		t.Errorf("planned %q, %v", p.Image.Key(), err)
	}
}

// An image can be removed while others of the same layers are in use.
func TestRemoveOwnImage(t *testing.T) {
	f, ann, bob := imageFixture(t)
	info, err := f.Create(bob, plan.CreateRequest{Image: "tools"})
	if err != nil || info.Image != "1001+tools" {
		t.Fatalf("%+v, %v", info, err)
	}
	errtest.Want(t, f.Images().Remove(ann, "1001+tools"), sbxerr.ImageNotFound)
	errtest.Want(t, f.Images().Remove(ann, "base"), sbxerr.Peer, "belongs to root")
	if err := f.Images().Remove(ann, "tools"); err != nil {
		t.Error(err)
	}
	if !slices.Contains(f.images.Kept, "chain-base") {
		t.Error("the layers of a live sandbox are gone")
	}
	errtest.Want(t, f.Images().Remove(callerContext(t), "1001+tools"), sbxerr.ImageInUse, info.Name)
	if _, err := f.Remove(bob, info.ID, true); err != nil {
		t.Error(err)
	}
}

func TestRemoveImage(t *testing.T) {
	f := newFixture(t)
	errtest.Want(t, f.Images().Remove(callerContext(t), "gone"), sbxerr.ImageNotFound)
	info := f.start(t, request("await:10", "exit:0"))
	err := f.Images().Remove(callerContext(t), "base")
	errtest.Want(t, err, sbxerr.ImageInUse, `image "base" is needed by `+info.ID)

	f.engine.poke(t, info.ID)
	f.over(t, info.ID)
	if err := f.Images().Remove(callerContext(t), "base"); err != nil { // an exited sandbox needs its output only
		t.Error(err)
	}
	if len(f.images.Kept) > 0 {
		t.Errorf("views %q are left", f.images.Kept)
	}
	list, err := f.images.ListImages(t.Context())
	if err != nil || len(list) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}

	f.images.Images = []images.Stored{baseImage(t)}
	f.images.Fail = map[string]error{"remove": errInjected}
	if err := f.Images().Remove(callerContext(t), "base"); !errors.Is(err, errInjected) {
		t.Errorf("a store that fails: %v", err)
	}
}

// TestRemoveImageWaitsForWhatIsGoing: a run that is over for its caller may
// still have its root file system mounted.
func TestRemoveImageWaitsForWhatIsGoing(t *testing.T) {
	f := newFixture(t)
	hold, reached := make(chan struct{}), make(chan struct{})
	i := slices.IndexFunc(f.Manager.stages, func(s stage) bool { return s.name == "rootfs" })
	remove := f.Manager.stages[i].remove
	f.Manager.stages[i].remove = func(ctx context.Context, id string) error {
		close(reached)
		<-hold
		return remove(ctx, id)
	}
	if _, err := f.Run(callerContext(t), request("exit:0"), IO{}); err != nil {
		t.Fatal(err)
	}
	within(t, "the removal", reached)
	ctx, cancel := context.WithCancelCause(callerContext(t))
	cancel(errInjected)
	errtest.Want(t, f.Images().Remove(ctx, "base"), sbxerr.Canceled, "injected")
	close(hold)
	if err := f.Images().Remove(callerContext(t), "base"); err != nil {
		t.Error(err)
	}
	f.wantNothingLeft(t)
}

// TestUsedImagesStay: an image that was used lately stays, and one that was not goes.
func TestUsedImagesStay(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"used", "unused"} {
		i := baseImage(t)
		i.Name, i.Digest = name, "sha256:"+name
		f.images.Images = append(f.images.Images, i)
	}
	s := f.session(t, plan.CreateRequest{Image: "used"})
	if _, err := f.Remove(callerContext(t), s.ID, true); err != nil {
		t.Fatal(err)
	}
	settings := *f.settings()
	settings.Images.Prune = imageservice.PrunePolicy{MinFree: func(size int64) int64 { return size + 1 }, UnusedFor: time.Hour}
	f.Apply(settings)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f.Images().StartPruning(ctx)
	has := func(name string) bool {
		_, err := f.images.GetImage(ctx, images.Key(0, name))
		return err == nil
	}
	eventually(t, "the unused image to go", func() bool { return !has("unused") })
	if !has("used") || !has("base") {
		t.Error("an image went that was used, or base")
	}
}
