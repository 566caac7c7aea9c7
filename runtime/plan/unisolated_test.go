package plan

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/runtime/idblock"
)

// hostPlanner has the profile host, without isolation.
func hostPlanner() Planner {
	pl := testPlanner()
	p := pl.Profiles["strict"]
	p.Timeout, p.Env, p.Unisolated = time.Minute, []string{"MODE=host"}, &HostUser{UID: 4321, GID: 8765, Name: "builder", Home: "/home/builder"}
	pl.Profiles["host"] = p
	return pl
}

func hostRequest() Request {
	return Request{
		Create: CreateRequest{Profile: "host", Env: []string{"X=1"}, Limits: &caissonv1.Limits{}, Workspace: &WorkspaceRequest{Dir: "/srv/a"}},
		Exec:   ExecRequest{Args: []string{"true"}},
	}
}

func TestPlanUnisolated(t *testing.T) {
	p, err := planRun(hostPlanner(), hostRequest())
	if err != nil {
		t.Fatal(err)
	}
	if p.User.String() != (User{UID: 4321, GID: 8765}).String() || p.Cwd != "/srv/a" || p.Network != HostNetwork || p.Request.Workspace.Path != "/srv/a" || len(p.Mounts) > 0 {
		t.Errorf("planned %+v", p.Sandbox)
	}
	for _, kv := range []string{"HOME=/home/builder", "USER=builder", "MODE=host", "X=1"} {
		if !slices.Contains(p.Env, kv) {
			t.Errorf("%s is not in %q", kv, p.Env)
		}
	}
	if p.exec.Timeout != time.Minute || p.exec.Cwd != "/srv/a" || !slices.Contains(p.Notes, UnisolatedWarning) {
		t.Errorf("the command: %+v, notes %q", p.exec, p.Notes)
	}
	spec, warnings, err := p.Spec(testHost(), testPlaces(p.ID), idblock.Block{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if err := errors.Join(oci.VerifyUnisolated(spec)); err != nil {
		t.Error(err)
	}
	if oci.Verify(spec) == nil {
		t.Error("it is taken for a strict one")
	}
}

func TestPlanUnisolatedRefuses(t *testing.T) {
	for setting, change := range map[string]func(*Request){
		"image":               func(r *Request) { r.Create.Image = "base" },
		"user":                func(r *Request) { r.Create.User = "4321" },
		"build":               func(r *Request) { r.Create.Build = true },
		"pool":                func(r *Request) { r.Create.Pooled = true },
		"nested":              func(r *Request) { r.Create.Nested = &NestedRequest{} },
		"network":             func(r *Request) { r.Create.Network = "host" },
		"allow":               func(r *Request) { r.Create.Allow = []string{"a.example"} },
		"deny":                func(r *Request) { r.Create.Deny = []string{"a.example"} },
		"allow-ech":           func(r *Request) { r.Create.AllowECH = true },
		"publish":             func(r *Request) { r.Create.Publish = []string{"1:1"} },
		"expose":              func(r *Request) { r.Create.Expose = []uint32{8080} },
		"link":                func(r *Request) { r.Create.Links = []string{"a=b:1"} },
		"mount":               func(r *Request) { r.Create.Mounts = []MountRequest{{Type: "tmpfs", Target: "/x"}} },
		"hostname":            func(r *Request) { r.Create.Hostname = "box" },
		"route":               func(r *Request) { r.Create.Routes = []string{"gpt"} },
		"dns":                 func(r *Request) { r.Create.DNS = []string{"192.0.2.53"} },
		"shm: it cannot":      func(r *Request) { r.Create.Limits.ShmBytes = new(int64(1 << 20)) },
		"io read bps":         func(r *Request) { r.Create.Limits.IoReadBps = new(int64(1 << 20)) },
		"io write bps":        func(r *Request) { r.Create.Limits.IoWriteBps = new(int64(1 << 20)) },
		"tmpfs: it cannot":    func(r *Request) { r.Create.Limits.TmpfsBytes = new(int64(1 << 20)) },
		"workspace mode ro":   func(r *Request) { r.Create.Workspace.Mode = "ro" },
		"workspace mode cow":  func(r *Request) { r.Create.Workspace.Mode = "cow" },
		"workspace path /w":   func(r *Request) { r.Create.Workspace.Path = "/w" },
		"user: it cannot be ": func(r *Request) { r.Exec.User = "0" },
	} {
		r := hostRequest()
		change(&r)
		if _, err := planRun(hostPlanner(), r); sbxerr.Of(err) != sbxerr.Unisolated || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	for name, tt := range map[string]struct {
		change func(*Request)
		code   sbxerr.Code
	}{
		"long timeout":        {func(r *Request) { r.Exec.Timeout = new(2 * time.Minute) }, sbxerr.Limits},
		"foreign workspace":   {func(r *Request) { r.Create.Workspace.Dir = "/home/a" }, sbxerr.Workspace},
		"daemon's workspace":  {func(r *Request) { r.Create.Workspace.Dir = "/srv/daemon/x" }, sbxerr.Workspace},
		"input file on disk":  {func(r *Request) { r.Exec.Inputs = []InputRequest{{Path: "/tmp/x"}} }, sbxerr.Config},
		"no command of image": {func(r *Request) { r.Exec.Args = nil }, sbxerr.Config},
		"no memory":           {func(r *Request) { r.Create.Limits.MemoryBytes = new(int64(0)) }, sbxerr.Limits},
	} {
		r := hostRequest()
		tt.change(&r)
		if _, err := planRun(hostPlanner(), r); sbxerr.Of(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := hostRequest()
	r.Create.Workspace.Path, r.Create.Workspace.Mode, r.Exec.Timeout = "/srv/a", "rw", new(time.Second)
	r.Exec.Inputs = []InputRequest{{Path: "key"}, {Path: "/dev/shm/x"}}
	if p, err := planRun(hostPlanner(), r); err != nil || p.exec.Timeout != time.Second || len(p.exec.Inputs) != 2 {
		t.Errorf("what a request may have: %v", err)
	}
}

// TestUnisolatedFieldsAreDecided: of each setting that there will be it must be said whether
// it holds without isolation. One that does not is refused.
func TestUnisolatedFieldsAreDecided(t *testing.T) {
	for of, decided := range map[reflect.Type]string{
		reflect.TypeFor[CreateRequest](): `Name Language LanguageReason Profile Env Workspace Limits Labels Session Task TTL IdleTimeout OnIdle Ensure Replace Key |
			Image User Hostname Rootfs From SnapshotOnEnd Network DNS Routes Allow Deny AllowECH Site Publish Expose Links Mounts Caches Nested Build Pooled`,
		reflect.TypeFor[WorkspaceRequest](): "Dir | Mode Path",
		reflect.TypeFor[ExecRequest]():      "Args Shell Env Cwd Stdin TTY Timeout OutputLimit Rlimits Limits Inputs | User",
	} {
		for i := range of.NumField() {
			if name := of.Field(i).Name; !slices.Contains(strings.Fields(decided), name) {
				t.Errorf("%s.%s: refuse it in checkUnisolated, or name it here before the bar if it holds", of.Name(), name)
			}
		}
	}
}
