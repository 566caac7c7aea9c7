package runtime

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/sbxerr"
)

// specManager can only build specifications.
func specManager(t testing.TB, limits []specs.POSIXRlimit) *Manager {
	blocks, err := idblock.NewAllocator(filepath.Join(t.TempDir(), "ids"), idblock.Range{Base: 1879048192, Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &Manager{
		paths: paths{root: "/var/lib/caisson", state: "/run/caisson"}, blocks: blocks, host: fakeHost("/sys/fs/cgroup"), rlimit: limits,
		opts: Options{CgroupParent: "caisson"},
	}
}

// FuzzPlan: what the plan accepts must be something that can be made, by the
// word of an oracle that shares no code with the planner or the builder.
func FuzzPlan(f *testing.F) {
	f.Add("true", "A=1", "/", "", "", "base", "strict", "", "rw", "/srv/a", int64(1<<30), int64(1000), int64(256), int64(1024), int64(1<<26), int64(0), int64(1<<20))
	f.Add("sh\x00-c\x00x", "A=1\x00B", "/workspace", "1000:1000", "job", "tools", "big", "none", "ro", "", int64(1), int64(0), int64(16), int64(1<<20), int64(1<<40), int64(time.Hour), int64(2))
	f.Add("x", "", "/a b\n", "65534:1", "a", "rooted", "debug", "open", "cow", "/etc", int64(8<<20), int64(10), int64(1<<22), int64(16), int64(64<<10), int64(-1), int64(0))
	m, pl := specManager(f, nil), testPlanner()
	pl.workspaces = mount.Allowed{}
	f.Fuzz(func(t *testing.T, args, env, cwd, who, name, image, profile, network, mode, dir string, memory, cpu, pids, files, tmpfs, timeout, output int64) {
		r := Request{Create: CreateRequest{User: who, Name: name, Image: image, Profile: profile, Network: network, Limits: LimitsRequest{MemoryBytes: &memory, MilliCPU: &cpu, PIDs: &pids, OpenFiles: &files, TmpfsBytes: &tmpfs}}, Exec: ExecRequest{Args: strings.Split(args, "\x00"), Cwd: cwd, Timeout: ptr(time.Duration(timeout)), OutputLimit: &output}}
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
		spec, _, err := m.buildSpec(p.plan, m.blocks.First())
		if err != nil {
			t.Fatalf("an accepted plan cannot be built: %v\n%+v", err, p)
		}
		if err := oci.Verify(spec); err != nil {
			t.Fatalf("an accepted plan breaks a rule: %v", err)
		}
		if p.exec.cwd == "" || p.user.UID == 0 || p.user.GID == 0 || p.exec.timeout < 0 || p.exec.outputLimit < 2 {
			t.Fatalf("an accepted plan has %+v", p)
		}
	})
}

func TestSpec(t *testing.T) {
	f := newFixture(t)
	v, err := f.Spec(callerContext(t), Request{Create: CreateRequest{Profile: "debug", Workspace: &WorkspaceRequest{Dir: f.dir, Mode: "ro"}}, Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(v.SpecJSON, &spec); err != nil {
		t.Fatal(err)
	}
	if err := oci.Verify(&spec); err != nil {
		t.Error(err)
	}
	if v.SeccompProfile != "debug" || len(v.SeccompRules) == 0 || len(v.NetworkRules) == 0 || v.CgroupValues["memory.max"] != "536870912" {
		t.Errorf("view %+v", v)
	}
	if lines := strings.Join(v.Mounts, "\n"); !strings.Contains(lines, "/workspace") {
		t.Errorf("mounts:\n%s", lines)
	}
	if spec.Process.Args[0] != "/run/caisson/caisson-init" || spec.Linux.UIDMappings[0].HostID != 1879048192 {
		t.Errorf("process %+v, ids %+v", spec.Process, spec.Linux.UIDMappings)
	}
	_, err = f.Spec(callerContext(t), Request{})
	wantError(t, err, sbxerr.Config, "no command")
	f.host.Controllers = nil
	_, err = f.Spec(callerContext(t), request("true"))
	wantError(t, err, sbxerr.CgroupController)
	f.wantNothingLeft(t) // it only looks
}

func TestSpecIsClampedToTheDaemon(t *testing.T) {
	own := []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 256, Hard: 512}}
	m := specManager(t, own)
	m.oomScore = 900
	p, err := planRun(testPlanner(), Request{Create: CreateRequest{Limits: LimitsRequest{OpenFiles: ptr(int64(8192))}}, Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	spec, warnings, err := m.buildSpec(p.plan, m.blocks.First())
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
	m := specManager(t, nil)
	for mode, want := range map[string]string{"rw": "rw", "ro": "ro"} {
		p, err := planRun(testPlanner(), Request{Create: CreateRequest{Workspace: &WorkspaceRequest{Dir: "/srv/a", Mode: mode}}, Exec: ExecRequest{Args: []string{"true"}}})
		if err != nil {
			t.Fatal(err)
		}
		got := m.workspaceMount(p.plan)
		if len(got) != 1 || got[0].Options[0] != want || got[0].Source != m.paths.workspace(p.id) || got[0].Destination != "/workspace" {
			t.Errorf("mode %s: %+v", mode, got)
		}
	}
}

func TestOwnLimits(t *testing.T) {
	may := MayRaiseLimits()
	limits, err := ownRlimits()
	if err != nil || may != (len(limits) == 0) || (!may && len(limits) != len(rlimitNumbers)) {
		t.Errorf("may raise %v, own %+v, %v", may, limits, err)
	}
	score, err := ownOOMScoreAdj()
	if err != nil || score < -1000 || score > 1000 {
		t.Errorf("oom_score_adj %d, %v", score, err)
	}
}
