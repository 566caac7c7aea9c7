package runtime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/images"
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
		f.images.images = append(f.images.images, images.Stored{Image: i, ChainID: "chain-base", Layers: []string{t.TempDir()}})
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
		img, err := f.image(tt.ctx, tt.ref)
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
	f.images.images = append(f.images.images, images.Stored{Image: images.Image{Name: "base", Owner: 1000, Digest: "sha256:9"}})
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
	errtest.Want(t, f.RemoveImage(ann, "1001+tools"), sbxerr.ImageNotFound)
	errtest.Want(t, f.RemoveImage(ann, "base"), sbxerr.Peer, "belongs to root")
	if err := f.RemoveImage(ann, "tools"); err != nil {
		t.Error(err)
	}
	if !slices.Contains(f.images.views, "chain-base") {
		t.Error("the layers of a live sandbox are gone")
	}
	errtest.Want(t, f.RemoveImage(callerContext(t), "1001+tools"), sbxerr.ImageInUse, info.Name)
	if _, err := f.Remove(bob, info.ID, true); err != nil {
		t.Error(err)
	}
}

// A user sends one archive at a time, and that of one user holds up no other's.
func TestImportsTakeTurns(t *testing.T) {
	f, ann, bob := imageFixture(t)
	hold := make(chan struct{})
	first := make(chan error, 1)
	sending := make(chan struct{})
	go func() {
		_, err := f.ImportImage(ann, "x", readerFunc(func([]byte) (int, error) {
			close(sending)
			<-hold
			return 0, errInjected
		}), func(string) {})
		first <- err
	}()
	within(t, "the first import", sending)
	broken := iotest.ErrReader(errInjected)
	if _, err := f.ImportImage(bob, "x", broken, func(string) {}); !errors.Is(err, errInjected) {
		t.Errorf("another user: %v", err)
	}
	ctx, cancel := context.WithTimeout(ann, 50*time.Millisecond)
	defer cancel()
	_, err := f.ImportImage(ctx, "x", broken, func(string) {})
	errtest.Want(t, err, sbxerr.Canceled)
	close(hold)
	if err := within(t, "its end", first); !errors.Is(err, errInjected) {
		t.Error(err)
	}
	if _, err := f.ImportImage(ann, "x", broken, func(string) {}); !errors.Is(err, errInjected) {
		t.Errorf("after it: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestImportsAtOnce(t *testing.T) {
	i := newImports()
	var done []func()
	for range importsAtOnce {
		d, err := i.work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := i.work(ctx); err == nil {
		t.Error("one more is worked on")
	}
	done[0]()
	if _, err := i.work(t.Context()); err != nil {
		t.Error(err)
	}
}
