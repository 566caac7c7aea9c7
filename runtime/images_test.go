package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
)

func TestListAndInspectImages(t *testing.T) {
	f := newFixture(t)
	f.images.images = append(f.images.images, images.Stored{
		Image: images.Image{Name: "alpine"}, Layers: []string{"sha256:l"},
		Labels: map[string]string{image.LabelReport: `{"Entries":3,"Bytes":4,"Stripped":{"setuid":1}}`},
	})
	list, err := f.ListImages(callerContext(t))
	if err != nil || len(list) != 2 || list[0].Name != "alpine" || list[1].Name != "base" {
		t.Errorf("list %+v, %v", list, err)
	}
	d, err := f.InspectImage(callerContext(t), "alpine")
	if err != nil || d.Report.Entries != 3 || d.Report.Stripped["setuid"] != 1 || len(d.Layers) != 1 || !strings.Contains(string(d.ConfigJSON), "architecture") {
		t.Errorf("detail %+v, %v", d, err)
	}
	_, err = f.InspectImage(callerContext(t), "alpin")
	errtest.Want(t, err, sbxerr.ImageNotFound, `no image "alpin"; there are: alpine, base; did you mean "alpine"?`)

	f.images.images[1].Labels = map[string]string{image.LabelReport: "{"}
	_, err = f.InspectImage(callerContext(t), "alpine")
	errtest.Want(t, err, sbxerr.Internal)
	f.images.fail = map[string]error{"list": errInjected}
	if _, err := f.ListImages(callerContext(t)); !errors.Is(err, errInjected) {
		t.Errorf("list: %v", err)
	}
	if _, err := f.InspectImage(callerContext(t), "gone"); !errors.Is(err, errInjected) || !errors.Is(err, sbxerr.ImageNotFound) {
		t.Errorf("inspect: %v", err)
	}
}

func TestRemoveImage(t *testing.T) {
	f := newFixture(t)
	errtest.Want(t, f.RemoveImage(callerContext(t), "gone"), sbxerr.ImageNotFound)
	info := f.start(t, request("await:10", "exit:0"))
	err := f.RemoveImage(callerContext(t), "base")
	errtest.Want(t, err, sbxerr.ImageInUse, `image "base" is needed by `+info.ID)

	f.engine.poke(t, info.ID)
	f.over(t, info.ID)
	if err := f.RemoveImage(callerContext(t), "base"); err != nil { // an exited sandbox needs its output only
		t.Error(err)
	}
	if len(f.images.views) > 0 {
		t.Errorf("views %q are left", f.images.views)
	}
	list, err := f.images.ListImages(t.Context())
	if err != nil || len(list) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}

	f.images.images = []images.Stored{baseImage(t)}
	f.images.fail = map[string]error{"remove": errInjected}
	if err := f.RemoveImage(callerContext(t), "base"); !errors.Is(err, errInjected) {
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
	errtest.Want(t, f.RemoveImage(ctx, "base"), sbxerr.Canceled, "injected")
	close(hold)
	if err := f.RemoveImage(callerContext(t), "base"); err != nil {
		t.Error(err)
	}
	f.wantNothingLeft(t)
}

func TestEnsureBase(t *testing.T) {
	f := newFixture(t)
	want, err := base.Digest(callerContext(t))
	if err != nil {
		t.Fatal(err)
	}
	f.images.images[0].Image = images.Image{Name: base.Name, Digest: want.String()}
	if err := f.EnsureBase(callerContext(t)); err != nil || len(f.images.images) != 1 {
		t.Errorf("a current image: %v, %d images", err, len(f.images.images))
	}
	f.images.fail = map[string]error{"get": errInjected}
	if err := f.EnsureBase(callerContext(t)); !errors.Is(err, errInjected) {
		t.Errorf("a store that fails: %v", err)
	}
	f.images.fail, f.images.images = nil, nil
	if err := f.EnsureBase(callerContext(t)); err != nil {
		t.Fatal(err)
	}
	if img, err := f.images.GetImage(callerContext(t), base.Name); err != nil || img.Labels[image.LabelKind] != "embedded" {
		t.Errorf("built %+v, %v", img, err)
	}
	if err := f.EnsureBase(callerContext(t)); err != nil || len(f.images.images) != 1 {
		t.Errorf("built it twice: %v, %d images", err, len(f.images.images))
	}
}

func TestImportRefuses(t *testing.T) {
	f := newFixture(t)
	silent := func(string) {}
	if _, err := f.ImportImage(callerContext(t), "x", strings.NewReader("no archive"), silent); sbxerr.Of(err) != sbxerr.ImageFormat {
		t.Errorf("import: %v", err)
	}
	if _, err := f.FromHost(callerContext(t), images.FromHostRequest{Name: "../x"}, silent); err == nil || sbxerr.Of(err) == sbxerr.Unknown {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := f.FromHost(callerContext(t), images.FromHostRequest{Name: "x", Paths: []string{"/no/such/file"}}, silent); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("a path that is not there: %v", err)
	}
	if len(f.images.images) != 1 {
		t.Errorf("images %+v", f.images.images)
	}
}

// TestImported: what an import replaced is let go.
func TestImported(t *testing.T) {
	f := newFixture(t)
	f.images.views = []string{"chain-base", "chain-old"}
	sink := &ownedSink{grant: rootGrant(t), replaced: "sha256:old"}
	done, err := f.imported(callerContext(t), sink, image.Result{Name: "base", Report: image.Report{Entries: 2}}, nil)
	if err != nil || done.Image.Name != "base" || done.Report.Entries != 2 || done.Replaced != "sha256:old" || !slices.Equal(f.images.views, []string{"chain-base"}) {
		t.Errorf("%+v, %v, views %q", done, err, f.images.views)
	}
	if _, err := f.imported(callerContext(t), sink, image.Result{}, errInjected); !errors.Is(err, errInjected) {
		t.Errorf("a failed import: %v", err)
	}
	_, err = f.imported(callerContext(t), sink, image.Result{Name: "gone"}, nil)
	errtest.Want(t, err, sbxerr.ImageNotFound)
}

func TestSystem(t *testing.T) {
	f := newFixture(t)
	f.opts.Versions = func(context.Context) (Versions, error) { return Versions{Runc: "1"}, nil }
	f.opts.Doctor = func(context.Context) ([]Check, error) { return []Check{{Name: "a"}}, errInjected }
	f.opts.Capabilities = func(context.Context) ([]Capability, error) { return []Capability{{Field: "tty"}}, nil }
	if v, err := f.Versions(callerContext(t)); err != nil || v.Runc != "1" {
		t.Errorf("%+v, %v", v, err)
	}
	if c, err := f.Doctor(callerContext(t)); !errors.Is(err, errInjected) || len(c) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := f.Capabilities(callerContext(t)); err != nil || len(c) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, idle := f.IdleSince(); !idle {
		t.Error("not idle after its calls")
	}
}
