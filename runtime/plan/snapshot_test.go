package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/disk"
)

// TestSnapshotFieldsAreDecided: of each setting that there will be it must be said whether a
// snapshot keeps it.
func TestSnapshotFieldsAreDecided(t *testing.T) {
	const keeps = "Rootfs Caches Image Language LanguageReason Profile User Env Network Allow Deny DNS Routes AllowECH Limits Labels"
	const leaves = "Name Hostname From SnapshotOnEnd Publish Expose Links Workspace Mounts Session Task TTL IdleTimeout OnIdle Nested Ensure Replace Build Site Pooled Key"
	of := reflect.TypeFor[CreateRequest]()
	var r CreateRequest
	all := reflect.ValueOf(&r).Elem()
	for i := range of.NumField() {
		switch f := all.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			t.Fatalf("%s is a %s", of.Field(i).Name, f.Kind())
		}
	}
	kept := reflect.ValueOf(r.Kept())
	on := reflect.ValueOf(CreateRequest{}.On(r.Kept()))
	for i := range of.NumField() {
		name := of.Field(i).Name
		wanted := slices.Contains(strings.Fields(keeps), name)
		if !wanted && !slices.Contains(strings.Fields(leaves), name) {
			t.Errorf("%s: keep it in Kept and On, or name it here as left out", name)
		}
		if wanted == kept.Field(i).IsZero() {
			t.Errorf("%s is kept: %v", name, !wanted)
		}
		if name != "Language" && name != "LanguageReason" && wanted == on.Field(i).IsZero() { // an image is named
			t.Errorf("%s comes along: %v", name, !wanted)
		}
	}
}

// What a request names is before what the snapshot keeps, and lists of a policy replace others.
func TestRequestOnSnapshot(t *testing.T) {
	kept := CreateRequest{
		Profile: "dev", Env: []string{"A=1", "B=2"}, Network: "allow", Allow: []string{"a.example"}, Labels: map[string]string{"k": "v", "l": "w"},
		Limits: &caissonv1.Limits{MemoryBytes: new(int64(1)), Pids: new(int64(2))},
	}
	r := CreateRequest{Env: []string{"B=3"}, Network: "none", Labels: map[string]string{"l": "x"}, Limits: &caissonv1.Limits{Pids: new(int64(5))}}.On(kept)
	if r.Profile != "dev" || !slices.Equal(r.Env, []string{"A=1", "B=3"}) || r.Network != "none" || len(r.Allow) > 0 || r.Labels["k"] != "v" || r.Labels["l"] != "x" {
		t.Errorf("%+v", r)
	}
	if r.Limits.GetMemoryBytes() != 1 || r.Limits.GetPids() != 5 || kept.Limits.GetPids() != 2 || kept.Labels["l"] != "w" {
		t.Errorf("%v, kept %v %v", r.Limits, kept.Limits, kept.Labels)
	}
}

// A sandbox begins only with what fits: its image, its kind of root, and the size of its disk.
func TestOriginFits(t *testing.T) {
	from := func() *Origin {
		return &Origin{Name: "s", Snapshot: Snapshot{ImageDigest: "sha256:b", WritableRoot: true, Size: disk.Size{Bytes: 64 << 20}}}
	}
	for name, tt := range map[string]struct {
		change func(*Planner, *CreateRequest)
		code   sbxerr.Code
	}{
		"as it was":     {func(*Planner, *CreateRequest) {}, ""},
		"another image": {func(p *Planner, _ *CreateRequest) { p.From.ImageDigest = "sha256:old" }, sbxerr.SnapshotImage},
		"another image below a workspace alone": {func(p *Planner, r *CreateRequest) {
			p.From.ImageDigest, p.From.WritableRoot, r.Rootfs = "sha256:old", false, "ro"
		}, ""},
		"another kind of root": {func(_ *Planner, r *CreateRequest) { r.Rootfs = "ro" }, sbxerr.Config},
		"another size":         {func(_ *Planner, r *CreateRequest) { r.Limits = &caissonv1.Limits{DiskBytes: new(int64(32 << 20))} }, sbxerr.Limits},
		"the same size":        {func(_ *Planner, r *CreateRequest) { r.Limits = &caissonv1.Limits{DiskBytes: new(int64(64 << 20))} }, ""},
	} {
		p, r := testPlanner(), CreateRequest{From: "s", Rootfs: "rw"}
		p.From = from()
		tt.change(&p, &r)
		s, err := p.Sandbox(r)
		if sbxerr.Of(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (s.Limits.DiskBytes != 64<<20 || s.WritableRoot != p.From.WritableRoot || !s.OwnWorkspace) {
			t.Errorf("%s: %+v", name, s.Limits)
		}
	}
}
