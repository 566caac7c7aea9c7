package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
)

var testBlock = idblock.Block{Base: 1879048192}

// testPlaces are the paths of the sandbox id.
func testPlaces(id string) Places {
	dir := "/run/caisson/" + id
	return Places{
		Base: "/run/caisson", State: dir, Rootfs: dir + "/rootfs", Init: dir + "/init", Dev: mount.DevDir(dir + "/own"), NetNS: dir + "/netns", UserNS: dir + "/userns",
		Cgroup: "/caisson/" + id,
	}
}

// testHost has cgroup v2 with every controller.
func testHost() Host {
	return Host{Cgroups: cgroups.Host{
		Mode: cgroups.V2, Unified: "/sys/fs/cgroup", SwapLimit: finding.Yes,
		Controllers: map[string]finding.Answer{"memory": finding.Yes, "cpu": finding.Yes, "pids": finding.Yes, "devices": finding.Yes},
	}}
}

// FuzzPlan: what the plan accepts must be something that can be made, by the
// word of an oracle that shares no code with the planner or the builder.
func FuzzPlan(f *testing.F) {
	f.Add("true", "A=1", "/", "", "", "base", "strict", "", "rw", "/srv/a", int64(1<<30), int64(1000), int64(256), int64(1024), int64(1<<26), int64(0), int64(1<<20))
	f.Add("sh\x00-c\x00x", "A=1\x00B", "/workspace", "1000:1000", "job", "tools", "big", "none", "ro", "", int64(1), int64(0), int64(16), int64(1<<20), int64(1<<40), int64(time.Hour), int64(2))
	f.Add("x", "", "/a b\n", "65534:1", "a", "rooted", "debug", "open", "cow", "/etc", int64(8<<20), int64(10), int64(1<<22), int64(16), int64(64<<10), int64(-1), int64(0))
	pl := testPlanner()
	pl.Workspaces = mount.Allowed{}
	f.Fuzz(func(t *testing.T, args, env, cwd, who, name, image, profile, network, mode, dir string, memory, cpu, pids, files, tmpfs, timeout, output int64) {
		r := Request{Create: CreateRequest{User: who, Name: name, Image: image, Profile: profile, Network: network, Limits: &caissonv1.Limits{MemoryBytes: &memory, MilliCpu: &cpu, Pids: &pids, OpenFiles: &files, TmpfsBytes: &tmpfs}}, Exec: ExecRequest{Args: strings.Split(args, "\x00"), Cwd: cwd, Timeout: new(time.Duration(timeout)), OutputLimit: &output}}
		if timeout == 0 {
			r.Exec.Timeout = nil
		}
		if env != "" {
			r.Exec.Env = strings.Split(env, "\x00")
		}
		if dir != "" {
			r.Create.Workspace = &WorkspaceRequest{Dir: dir, Mode: mode}
		}
		p, err := planRun(pl, r)
		if err != nil {
			if c := sbxerr.Of(err); c == sbxerr.Unknown || c == sbxerr.Internal || c == "" {
				t.Fatalf("a refusal without a code of its own: %v", err)
			}
			return
		}
		spec, _, err := p.Spec(testHost(), testPlaces(p.ID), testBlock)
		if err != nil {
			t.Fatalf("an accepted plan cannot be built: %v\n%+v", err, p)
		}
		if err := oci.Verify(spec); err != nil {
			t.Fatalf("an accepted plan breaks a rule: %v", err)
		}
		if p.exec.Cwd == "" || p.User.UID == 0 || p.User.GID == 0 || p.exec.Timeout < 0 || p.exec.OutputLimit < 2 {
			t.Fatalf("an accepted plan has %+v", p)
		}
	})
}

func TestSpecIsClampedToTheDaemon(t *testing.T) {
	own := []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 256, Hard: 512}}
	h := testHost()
	h.Rlimits, h.OOMScore = own, 900
	p, err := planRun(testPlanner(), Request{Create: CreateRequest{Limits: &caissonv1.Limits{OpenFiles: new(int64(8192))}}, Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	spec, warnings, err := p.Spec(h, testPlaces(p.ID), testBlock)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "RLIMIT_NOFILE is 512 instead of 8192") {
		t.Errorf("warnings %q", warnings)
	}
	for _, l := range spec.Process.Rlimits {
		if l.Type == "RLIMIT_NOFILE" && l.Hard != 512 {
			t.Errorf("limit %+v", l)
		}
	}
	if *spec.Process.OOMScoreAdj != 900 {
		t.Errorf("oom_score_adj %d, want the daemon's own, below which it cannot go", *spec.Process.OOMScoreAdj)
	}
}

func TestWorkspaceMount(t *testing.T) {
	for mode, want := range map[string]string{"rw": "rw", "ro": "ro", "cow": "rw"} {
		p, err := planRun(testPlanner(), Request{Create: CreateRequest{Workspace: &WorkspaceRequest{Dir: "/srv/a", Mode: mode}}, Exec: ExecRequest{Args: []string{"true"}}})
		if err != nil {
			t.Fatal(err)
		}
		got, source := p.specMounts("/s"), "/s/workspace"
		if len(got) != 1 || got[0].Options[0] != want || got[0].Source != source || got[0].Destination != "/workspace" {
			t.Errorf("mode %s: %+v", mode, got)
		}
	}
}
