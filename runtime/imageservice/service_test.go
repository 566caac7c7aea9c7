package imageservice

import (
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
	f.store.Images = append(f.store.Images, images.Stored{
		Image: images.Image{Name: "alpine"}, Layers: []string{"sha256:l"},
		Labels: map[string]string{image.LabelReport: `{"Entries":3,"Bytes":4,"Stripped":{"setuid":1}}`},
	})
	list, err := f.List(as(t, 0))
	if err != nil || len(list) != 2 || list[0].Name != "alpine" || list[1].Name != "base" {
		t.Errorf("list %+v, %v", list, err)
	}
	d, err := f.Inspect(as(t, 0), "alpine")
	if err != nil || d.Report.Entries != 3 || d.Report.Stripped["setuid"] != 1 || len(d.Layers) != 1 || !strings.Contains(string(d.ConfigJSON), "architecture") {
		t.Errorf("detail %+v, %v", d, err)
	}
	_, err = f.Inspect(as(t, 0), "alpin")
	errtest.Want(t, err, sbxerr.ImageNotFound, `no image "alpin"; there are: alpine, base; did you mean "alpine"?`)

	f.store.Images[1].Labels = map[string]string{image.LabelReport: "{"}
	_, err = f.Inspect(as(t, 0), "alpine")
	errtest.Want(t, err, sbxerr.Internal)
	f.store.Fail = map[string]error{"list": errInjected}
	if _, err := f.List(as(t, 0)); !errors.Is(err, errInjected) {
		t.Errorf("list: %v", err)
	}
	if _, err := f.Inspect(as(t, 0), "gone"); !errors.Is(err, errInjected) || !errors.Is(err, sbxerr.ImageNotFound) {
		t.Errorf("inspect: %v", err)
	}
}

func TestEnsureBase(t *testing.T) {
	f := newFixture(t)
	want, err := base.Digest(as(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	f.store.Images[0].Image = images.Image{Name: base.Name, Digest: want.String()}
	if err := f.EnsureBase(as(t, 0)); err != nil || len(f.store.Images) != 1 {
		t.Errorf("a current image: %v, %d images", err, len(f.store.Images))
	}
	f.store.Fail = map[string]error{"get": errInjected}
	if err := f.EnsureBase(as(t, 0)); !errors.Is(err, errInjected) {
		t.Errorf("a store that fails: %v", err)
	}
	f.store.Fail, f.store.Images = nil, nil
	if err := f.EnsureBase(as(t, 0)); err != nil {
		t.Fatal(err)
	}
	if img, err := f.store.GetImage(as(t, 0), base.Name); err != nil || img.Labels[image.LabelKind] != "embedded" {
		t.Errorf("built %+v, %v", img, err)
	}
	if err := f.EnsureBase(as(t, 0)); err != nil || len(f.store.Images) != 1 {
		t.Errorf("built it twice: %v, %d images", err, len(f.store.Images))
	}
}

// TestReplaced: what is kept of an image goes when another takes its name.
func TestReplaced(t *testing.T) {
	f := newFixture(t)
	f.store.Images = append(f.store.Images, images.Stored{Image: images.Image{Name: "tools", Digest: "sha256:old"}, ChainID: "chain-old"})
	f.store.Kept = []string{"chain-base", "chain-old", "chain-needed"}
	f.fleet.chains = []string{"chain-needed"}
	done, err := f.Tag(as(t, 0), "base", "tools")
	if err != nil || done.Image.Name != "tools" || done.Replaced != "sha256:old" || !slices.Equal(f.store.Kept, []string{"chain-base", "chain-needed"}) {
		t.Errorf("%+v, %v, views %q", done, err, f.store.Kept)
	}
}
