package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
)

// testPlanner knows two images and the users that a number can name.
func testPlanner() Planner {
	profiles := BuiltinProfiles()
	big := profiles["strict"]
	big.Limits.MemoryBytes, big.Env, big.User, big.Image, big.Seccomp = 4<<30, []string{"MODE=big", "HOME=/big"}, "2000:2000", "tools", "compat"
	profiles["big"] = big
	stored := map[string]images.Stored{"base": {Image: images.Image{Name: "base", Digest: "sha256:b"}, ChainID: "chain-b"}}
	tools := images.Stored{Image: images.Image{Name: "tools", Digest: "sha256:t"}, ChainID: "chain-t"}
	tools.Config.Config.Env = []string{"PATH=/tools", "LANG=C"}
	tools.Config.Config.WorkingDir = "/app/"
	tools.Config.Config.User = "1234:1234"
	tools.Config.Config.Labels = map[string]string{"containerd.io/trap": "1"}
	stored["tools"] = tools
	for name, u := range map[string]string{"rooted": "0", "grouped": "5:0", "nameless": "nobody-knows"} {
		img := images.Stored{Image: images.Image{Name: name}}
		img.Config.Config.User = u
		stored[name] = img
	}
	for name, env := range map[string]string{"noname": "=x", "novalue": "PATH", "nul": "A=\x00"} {
		img := images.Stored{Image: images.Image{Name: name}}
		img.Config.Config.Env = []string{env}
		stored[name] = img
	}
	for name, dir := range map[string]string{"inproc": "/proc/self/fd/7", "climbs": "/a/../proc/self", "relative": "app"} {
		img := images.Stored{Image: images.Image{Name: name}}
		img.Config.Config.WorkingDir = dir
		stored[name] = img
	}
	find := func(ref string) (images.Stored, error) {
		if img, ok := stored[ref]; ok {
			return img, nil
		}
		return images.Stored{}, sbxerr.New(sbxerr.ImageNotFound, "test.image", "no image %q", ref)
	}
	return Planner{
		CPUs:       2,
		MaxTmpfs:   1 << 30,
		ID:         strings.Repeat("a", 26),
		Profiles:   profiles,
		Workspaces: mount.Allowed{Roots: []string{"/srv"}, Private: []string{"/srv/daemon"}},
		Image:      find, RootImage: find,
		User: func(_ images.Stored, name string) (Account, error) {
			u, err := image.ResolveUser(name, strings.NewReader(""), strings.NewReader(""))
			return Account{User: User{UID: u.UID, GID: u.GID, Groups: u.GIDs}, Name: u.Name, Home: u.Home}, err
		},
	}
}

// planned is both plans of a run.
type planned struct {
	*Sandbox
	exec *Command
}

// planRun plans both, as Run does.
func planRun(pl Planner, r Request) (*planned, error) {
	p, err := pl.Sandbox(r.Create)
	if err := JoinReasons(err, r.Exec.Check()); err != nil {
		return nil, err
	}
	lookup := func(name string) (User, error) {
		u, err := pl.User(p.Image, name)
		return u.User, err
	}
	e, err := r.Exec.Command(p.Defaults(), lookup)
	if err != nil {
		return nil, err
	}
	return &planned{p, e}, nil
}

func TestPlanRefuses(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name   string
		change func(*Request)
		code   sbxerr.Code
		words  []string
	}{
		{"no command", func(r *Request) { r.Exec.Args = nil }, sbxerr.Config, []string{"no command: give it after --"}},
		{"empty command", func(r *Request) { r.Exec.Args = []string{""} }, sbxerr.Config, []string{"no command"}},
		{"NUL in an argument", func(r *Request) { r.Exec.Args = []string{"a", "b\x00"} }, sbxerr.Config, []string{"argument 1 holds a NUL byte"}},
		{"large argument", func(r *Request) { r.Exec.Args = []string{"a", strings.Repeat("x", maxArgsBytes)} }, sbxerr.Config, []string{"more than 524288", "-i or the workspace"}},
		{"large environment", func(r *Request) { r.Exec.Env = []string{"A=" + strings.Repeat("x", maxArgsBytes)} }, sbxerr.Config, []string{"arguments and environment take"}},
		{"environment without =", func(r *Request) { r.Exec.Env = []string{"A=1", "B"} }, sbxerr.Config, []string{"environment entry 1 is not NAME=VALUE"}},
		{"environment without a name", func(r *Request) { r.Exec.Env = []string{"=secret"} }, sbxerr.Config, []string{"environment entry 0 has no name"}},
		{"NUL in the environment", func(r *Request) { r.Exec.Env = []string{"A=secret\x00"} }, sbxerr.Config, []string{`environment variable "A" holds a NUL byte`}},
		{"terminal without rows", func(r *Request) { r.Exec.TTY = &WinSize{Cols: 80} }, sbxerr.Config, []string{"terminal of 0 rows and 80 columns"}},
		{"script and command", func(r *Request) { r.Exec.Shell = "x" }, sbxerr.Config, []string{"not both"}},
		{"long script", func(r *Request) { r.Exec.Args, r.Exec.Shell = nil, strings.Repeat("x", maxScript+1) }, sbxerr.Config, []string{"the script takes 131072 bytes"}},
		{"NUL in the script", func(r *Request) { r.Exec.Args, r.Exec.Shell = nil, "a\x00" }, sbxerr.Config, []string{"the script holds a NUL byte"}},
		{"unknown resource limit", func(r *Request) { r.Exec.Rlimits = []Rlimit{{Name: "RLIMIT_NOFILES"}} }, sbxerr.Config, []string{"there are RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_LOCKS, ", `did you mean "RLIMIT_NOFILE"?`}},
		{"soft above hard", func(r *Request) { r.Exec.Rlimits = []Rlimit{{Name: "RLIMIT_NOFILE", Soft: 2, Hard: 1}} }, sbxerr.Config, []string{"the soft limit 2 is above the hard limit 1"}},
		{"few tasks of the command", func(r *Request) { r.Exec.Limits.PIDs = new(int64(4)) }, sbxerr.Limits, []string{`of a command: limit "pids" is 4, below the minimum of 8 tasks, because the threads that start the command count`}},
		{"no memory of the command", func(r *Request) { r.Exec.Limits.MemoryBytes = new(int64(0)) }, sbxerr.Limits, []string{"memory"}},
		{"life below zero", func(r *Request) { r.Create.TTL = new(-time.Second) }, sbxerr.Config, []string{"ttl -1s"}},
		{"much life", func(r *Request) { r.Create.TTL = new(100000 * time.Hour) }, sbxerr.Config, []string{"ttl 100000h0m0s: give at most 8760h, such as 30m, or 0 for never"}},
		{"no idleness", func(r *Request) { r.Create.IdleTimeout = new(-time.Second) }, sbxerr.Config, []string{"idle timeout -1s"}},
		{"nothing to ensure", func(r *Request) { r.Create.Ensure = true }, sbxerr.Config, []string{"ensure needs a name"}},
		{"nothing to replace", func(r *Request) { r.Create.Replace = true }, sbxerr.Config, []string{"replace needs a name"}},
		{"ensure and replace", func(r *Request) { r.Create.Name, r.Create.Ensure, r.Create.Replace = "a", true, true }, sbxerr.Config, []string{"exclude each other"}},
		{"long key", func(r *Request) { r.Create.Key = long }, sbxerr.Config, []string{"the idempotency key has", "give at most 128"}},
		{"blank key", func(r *Request) { r.Create.Key = "a b" }, sbxerr.Config, []string{`the idempotency key holds ' '`}},
		{"key beyond ASCII", func(r *Request) { r.Create.Key = "aé" }, sbxerr.Config, []string{"printable ASCII"}},
		{"many arguments", func(r *Request) { r.Exec.Args = make([]string, maxWords+1) }, sbxerr.Config, []string{"65537 arguments are more than 65536"}},
		{"many variables", func(r *Request) { r.Exec.Env = make([]string, maxWords+1) }, sbxerr.Config, []string{"65537 entries of the environment are more than 65536"}},
		{"many bad variables", func(r *Request) { r.Exec.Env = make([]string, 1000) }, sbxerr.Config, []string{"entry 15 is not", "and 984 more"}},
		{"many resource limits", func(r *Request) { r.Exec.Rlimits = make([]Rlimit, 20_000) }, sbxerr.Config, []string{"20000 resource limits are more than 16"}},
		{"many ports", func(r *Request) { r.Create.Publish = make([]string, 20_000) }, sbxerr.Config, []string{"20000 ports are more than 16"}},
		{"many exposed ports", func(r *Request) { r.Create.Expose = make([]uint32, 20_000) }, sbxerr.Config, []string{"20000 exposed ports are more than 16"}},
		{"long directory", func(r *Request) { r.Exec.Cwd = long }, sbxerr.Config, []string{`x…" is not a clean absolute path`}},
		{"relative directory", func(r *Request) { r.Exec.Cwd = "x" }, sbxerr.Config, []string{`"x" is not a clean absolute path`}},
		{"unclean directory", func(r *Request) { r.Exec.Cwd = "/a/../proc" }, sbxerr.Config, []string{"not a clean absolute path"}},
		{"NUL in the directory", func(r *Request) { r.Exec.Cwd = "/a\x00" }, sbxerr.Config, []string{"not a clean absolute path"}},
		{"directory in /proc", func(r *Request) { r.Exec.Cwd = "/proc/self/fd/8" }, sbxerr.Config, []string{"lies in /proc"}},
		{"/proc", func(r *Request) { r.Exec.Cwd = "/proc" }, sbxerr.Config, []string{"lies in /proc"}},
		{"name of a letter beyond ASCII", func(r *Request) { r.Create.Name = "Jöb" }, sbxerr.Config, []string{`name "Jöb": give 1 to 128`}},
		{"name of 129 letters", func(r *Request) { r.Create.Name = strings.Repeat("x", 129) }, sbxerr.Config, []string{"give 1 to 128"}},
		{"name with a slash", func(r *Request) { r.Create.Name = "../x" }, sbxerr.Config, []string{`name "../x"`}},
		{"long name", func(r *Request) { r.Create.Name = long }, sbxerr.Config, []string{"give 1 to 128"}},
		{"reserved label", func(r *Request) { r.Create.Labels = map[string]string{"Caisson.managed": "no"} }, sbxerr.Config, []string{"caisson. is reserved"}},
		{"label with a slash", func(r *Request) { r.Create.Labels = map[string]string{"a/b": ""} }, sbxerr.Config, []string{`label "a/b"`}},
		{"large label", func(r *Request) { r.Create.Labels = map[string]string{"a": strings.Repeat("x", 4097)} }, sbxerr.Config, []string{`label "a": its value must be at most 4096 bytes`}},
		{"label of bytes", func(r *Request) { r.Create.Labels = map[string]string{"a": "\xff"} }, sbxerr.Config, []string{"UTF-8"}},
		{"many labels", func(r *Request) { r.Create.Labels = manyLabels(65) }, sbxerr.Config, []string{"65 labels are more than 64"}},
		{"long session", func(r *Request) { r.Create.Session = long }, sbxerr.Config, []string{"session: give at most 256 bytes"}},
		{"task of bytes", func(r *Request) { r.Create.Task = "\xff" }, sbxerr.Config, []string{"task: give at most 256 bytes of UTF-8"}},
		{"unknown profile", func(r *Request) { r.Create.Profile = "strick" }, sbxerr.Profile, []string{`no profile "strick", did you mean "strict"?`}},
		{"no such profile", func(r *Request) { r.Create.Profile = "zzzzzzzz" }, sbxerr.Profile, []string{"there are big, compat, debug, dev, strict"}},
		{"network of the host", func(r *Request) { r.Create.Network = "host" }, sbxerr.NetworkMode, []string{`"host"`}},
		{"network not offered", func(r *Request) { r.Create.Network = "bridge" }, sbxerr.NetworkMode, []string{"not offered"}},
		{"egress rules", func(r *Request) { r.Create.Allow = []string{"*.com"} }, sbxerr.NetPolicy, []string{"*.com"}},
		{"no time", func(r *Request) { r.Exec.Timeout = new(time.Duration(0)) }, sbxerr.Config, []string{"timeout 0s: give more than 0"}},
		{"negative time", func(r *Request) { r.Exec.Timeout = new(-time.Second) }, sbxerr.Config, []string{"timeout -1s"}},
		{"too much time", func(r *Request) { r.Exec.Timeout = new(MaxTimeout + 1) }, sbxerr.Config, []string{"timeout 8760h0m0.000000001s: give more than 0 and at most 8760h, such as 30s"}},
		{"no output", func(r *Request) { r.Exec.OutputLimit = new(int64(0)) }, sbxerr.Limits, []string{"output limit 0: give at least 2 bytes"}},
		{"one byte of output", func(r *Request) { r.Exec.OutputLimit = new(int64(1)) }, sbxerr.Limits, []string{"output limit 1"}},
		{"too much output", func(r *Request) { r.Exec.OutputLimit = new(int64(1)<<40 + 1) }, sbxerr.Limits, []string{"output limit"}},
		{"workspace of the host", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/etc"} }, sbxerr.Workspace, []string{`"/etc"`}},
		{"workspace of the daemon", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/daemon/x"} }, sbxerr.Workspace, []string{"the daemon's own"}},
		{"workspace mode that is none", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Mode: "copy"} }, sbxerr.Workspace, []string{`mode "copy" is none of rw, ro, cow, clone`}},
		{"workspace mode", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Mode: "r"} }, sbxerr.Workspace, []string{`mode "r" is none of rw, ro`}},
		{"workspace path", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Path: "src"} }, sbxerr.Workspace, []string{`path "src" is not a clean absolute path`}},
		{"workspace over a tmpfs", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Path: "/tmp"} }, sbxerr.Workspace, []string{`path "/tmp" is the sandbox's own`}},
		{"workspace over all homes", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Path: "/home"} }, sbxerr.Workspace, []string{"is the sandbox's own"}},
		{"workspace in /dev", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Path: "/dev/x"} }, sbxerr.Workspace, []string{`path "/dev/x" is part of the sandbox's own /dev`}},
		{"workspace at the root", func(r *Request) { r.Create.Workspace = &WorkspaceRequest{Dir: "/srv/a", Path: "/"} }, sbxerr.Workspace, []string{`path "/" is the sandbox's own`}},
		{"no memory", func(r *Request) { r.Create.Limits.MemoryBytes = new(int64(0)) }, sbxerr.Limits, []string{`"memory" is absent or zero`}},
		{"too little memory", func(r *Request) { r.Create.Limits.MemoryBytes = new(int64(4096)) }, sbxerr.Limits, []string{`"memory" is 4096`}},
		{"no CPU", func(r *Request) { r.Create.Limits.MilliCpu = new(int64(-1)) }, sbxerr.Limits, []string{`"cpus" is negative`}},
		{"too few tasks", func(r *Request) { r.Create.Limits.Pids = new(int64(1)) }, sbxerr.Limits, []string{`"pids" is 1`}},
		{"no files", func(r *Request) { r.Create.Limits.OpenFiles = new(int64(0)) }, sbxerr.Limits, []string{"open files 0: give 16 to 1048576"}},
		{"too many files", func(r *Request) { r.Create.Limits.OpenFiles = new(int64(1)<<20 + 1) }, sbxerr.Limits, []string{"open files 1048577"}},
		{"much tmpfs", func(r *Request) { r.Create.Limits.TmpfsBytes = new(int64(1<<40 + 1)) }, sbxerr.Limits, []string{"tmpfs 1099511627777: give 64K to 1T"}},
		{"no tmpfs", func(r *Request) { r.Create.Limits.TmpfsBytes = new(int64(0)) }, sbxerr.Limits, []string{"tmpfs 0: give 64K to 1T"}},
		{"unknown image", func(r *Request) { r.Create.Image = "bas" }, sbxerr.ImageNotFound, []string{`no image "bas"`}},
		{"root", func(r *Request) { r.Create.User = "0" }, sbxerr.ImageUser, []string{`user "0" is root inside the sandbox`}},
		{"root by number", func(r *Request) { r.Create.User = "0:1000" }, sbxerr.ImageUser, []string{"is root inside"}},
		{"root's group", func(r *Request) { r.Create.User = "1000:0" }, sbxerr.ImageUser, []string{"or in its group"}},
		{"root's group of the image", func(r *Request) { r.Create.Image = "grouped" }, sbxerr.ImageUser, []string{`user "5:0"`, "or in its group"}},
		{"no id", func(r *Request) { r.Create.User = "65535:65535" }, sbxerr.ImageUser, []string{`user "65535:65535": id 65535 is above 65534`}},
		{"unknown user", func(r *Request) { r.Create.User = "alice" }, sbxerr.ImageUser, []string{`"alice"`}},
		{"unknown user of the image", func(r *Request) { r.Create.Image = "nameless" }, sbxerr.ImageUser, []string{`"nobody-knows"`}},
		{"image with a nameless variable", func(r *Request) { r.Create.Image = "noname" }, sbxerr.ImageContent, []string{`image "noname"`, "environment entry 0 has no name"}},
		{"image with half a variable", func(r *Request) { r.Create.Image = "novalue" }, sbxerr.ImageContent, []string{"environment entry 0 is not NAME=VALUE"}},
		{"image with a NUL", func(r *Request) { r.Create.Image = "nul" }, sbxerr.ImageContent, []string{`"A" holds a NUL byte`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Exec: ExecRequest{Args: []string{"true"}}, Create: CreateRequest{Limits: &caissonv1.Limits{}}}
			tt.change(&r)
			p, err := planRun(testPlanner(), r)
			if p != nil {
				t.Errorf("planned %+v", p)
			}
			errtest.Want(t, err, tt.code, tt.words...)
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("%v tells a value of the environment", err)
			}
		})
	}
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprint("l", i)] = ""
	}
	return labels
}

// TestPlanTellsEveryReason: who asks again and again should not have to.
func TestPlanTellsEveryReason(t *testing.T) {
	_, err := planRun(testPlanner(), Request{Create: CreateRequest{Name: "-A", Network: "host", Image: "gone", Labels: map[string]string{"b/": "", "a/": ""}, Workspace: &WorkspaceRequest{Dir: "/etc", Mode: "copy"}, Limits: &caissonv1.Limits{MemoryBytes: new(int64(1)), OpenFiles: new(int64(1))}}, Exec: ExecRequest{Cwd: "x", Timeout: new(time.Duration(0))}})
	for _, code := range []sbxerr.Code{sbxerr.Config, sbxerr.NetworkMode, sbxerr.Workspace, sbxerr.Limits, sbxerr.ImageNotFound} {
		if !errors.Is(err, code) {
			t.Errorf("%v: lacks %s", err, code)
		}
	}
	errtest.Want(t, err, sbxerr.Config, `name "-A"`, `label "a/"`, `label "b/"`, "no command", "timeout 0s", `"/etc"`, `"copy"`, `"memory" is 1`, "open files 1", `no image "gone"`)
	if text := err.Error(); strings.Index(text, `"a/"`) > strings.Index(text, `"b/"`) {
		t.Error("the order of the reasons changes from call to call")
	}
	_, err = planRun(testPlanner(), Request{Create: CreateRequest{Profile: "no", Image: "gone"}})
	errtest.Want(t, err, sbxerr.Profile, `no profile "no"`, "no command")
	if errors.Is(err, sbxerr.Limits) {
		t.Errorf("%v: limits are refused that nobody set", err)
	}
}

func TestPlanDefaults(t *testing.T) {
	p, err := planRun(testPlanner(), Request{Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != p.ID || p.ProfileName != "strict" || p.Seccomp.Name != "strict" || p.Network != "none" {
		t.Errorf("identity: %+v", p)
	}
	if p.Image.Name != "base" || p.exec.Cwd != "/" || !reflect.DeepEqual(p.User, User{UID: 1000, GID: 1000}) || len(p.Mounts) > 0 {
		t.Errorf("image %q, cwd %q, user %+v", p.Image.Name, p.exec.Cwd, p.User)
	}
	if p.Limits != DefaultLimits() || p.exec.OutputLimit != 10<<20 || p.exec.Timeout != 0 {
		t.Errorf("limits %+v, output %d, timeout %s", p.Limits, p.exec.OutputLimit, p.exec.Timeout)
	}
	if want := append(told(p), "PATH="+DefaultPath, "HOME=/home/caisson", "USER=caisson", "HOSTNAME="+p.ID); !slices.Equal(p.exec.Env, want) {
		t.Errorf("environment %q, want %q", p.exec.Env, want)
	}
	if err := DefaultLimits().Validate(); err != nil {
		t.Error(err)
	}
	if want := (cgroups.Limits{MemoryBytes: 512 << 20, MilliCPU: 1000, PIDs: 256, CPUShares: 1024, OpenFiles: 1024, TmpfsBytes: 256 << 20, ShmBytes: 256 << 20}); p.Limits.Cgroup() != want {
		t.Errorf("cgroup limits %+v", p.Limits.Cgroup())
	}
}

func TestPlanOverrides(t *testing.T) {
	p, err := planRun(testPlanner(), Request{Create: CreateRequest{Profile: "big", Name: "job.1", Network: "none", Limits: &caissonv1.Limits{MilliCpu: new(int64(250)), Pids: new(int64(64)), OpenFiles: new(int64(9000)), TmpfsBytes: new(int64(1 << 20)), CpuShares: new(int64(7))}}, Exec: ExecRequest{Args: []string{"true"}, Env: []string{"LANG=de", "X=1", "X=2"}, Timeout: new(time.Minute), OutputLimit: new(int64(2))}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "job.1" || p.Seccomp.Name != "compat" || p.Image.Name != "tools" || p.exec.Cwd != "/app" || p.exec.Timeout != time.Minute || p.exec.OutputLimit != 2 {
		t.Errorf("plan %+v", p)
	}
	if want := (Limits{MemoryBytes: 4 << 30, MilliCPU: 250, PIDs: 64, OpenFiles: 9000, TmpfsBytes: 1 << 20, CPUShares: 7, ShmBytes: 1 << 20}); p.Limits != want {
		t.Errorf("limits %+v, want %+v", p.Limits, want)
	}
	want := append(told(p), "PATH=/tools", "HOME=/big", "USER=caisson", "HOSTNAME="+p.ID, "LANG=de", "MODE=big", "X=2")
	if !slices.Equal(p.exec.Env, want) {
		t.Errorf("environment %q, want %q", p.exec.Env, want)
	}
	p, err = planRun(testPlanner(), Request{Create: CreateRequest{Profile: "big", Limits: &caissonv1.Limits{MemoryBytes: new(int64(16 << 20))}}, Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil || p.Limits.MemoryBytes != 16<<20 {
		t.Errorf("memory: %+v, %v", p, err)
	}
}

// A rate of I/O is the request's, else the profile's, and the ceiling where nobody asks for less.
func TestPlanIORates(t *testing.T) {
	const most = 4 << 20
	for _, tt := range []struct {
		profile, asked, ceiling, want int64
	}{
		{0, 0, 0, 0},
		{0, 0, most, most},
		{1 << 20, 0, 0, 1 << 20},
		{1 << 20, 0, most, 1 << 20},
		{8 << 20, 0, most, most},
		{1 << 20, 2 << 20, most, 2 << 20},
		{0, 8 << 20, most, 8 << 20}, // which the grant refuses
	} {
		pl := testPlanner()
		slow := pl.Profiles["big"]
		slow.Limits.IOReadBPS, slow.Limits.IOWriteBPS = tt.profile, tt.profile
		pl.Profiles["big"], pl.IOReadBPS, pl.IOWriteBPS = slow, tt.ceiling, tt.ceiling
		asked := &caissonv1.Limits{}
		if tt.asked != 0 {
			asked.IoReadBps, asked.IoWriteBps = &tt.asked, &tt.asked
		}
		p, err := pl.Sandbox(CreateRequest{Profile: "big", Limits: asked})
		if err != nil || p.Limits.IOReadBPS != tt.want || p.Limits.IOWriteBPS != tt.want || p.Limits.RatesIO() != (tt.want != 0) {
			t.Errorf("%+v: %+v, %v", tt, p, err)
		}
	}
	for _, bad := range []int64{0, -1, 65535, 1<<40 + 1} {
		for _, asked := range []*caissonv1.Limits{{IoReadBps: &bad}, {IoWriteBps: &bad}} {
			if _, err := testPlanner().Sandbox(CreateRequest{Limits: asked}); sbxerr.Of(err) != sbxerr.Limits {
				t.Errorf("rate %d: %v", bad, err)
			}
		}
	}
}

// told are the variables that every command finds unless somebody sets them.
func told(p *planned) []string {
	return append(limitEnv(p.Limits, ExecLimits{}), withoutTracing)
}

// Runtimes are told the tighter of the limits of sandbox and command, and what the
// image, the sandbox or the request says comes first.
func TestLimitsAreTold(t *testing.T) {
	lookup := func(string) (User, error) { return User{}, nil }
	base := Defaults{Limits: Limits{MemoryBytes: 16 << 30, MilliCPU: 2500}, Tracing: true}
	for _, tt := range []struct {
		env  []string // of the sandbox
		exec ExecRequest
		want []string
	}{
		{want: []string{"NODE_OPTIONS=--max-old-space-size=4096", "JDK_JAVA_OPTIONS=-XX:MaxRAM=17179869184 -XX:ActiveProcessorCount=3",
			"GOMEMLIMIT=15461882262", "DOTNET_GCHeapHardLimit=300000000"}},
		{exec: ExecRequest{Limits: ExecLimits{MemoryBytes: new(int64(64 << 20)), MilliCPU: new(int64(100))}}, want: []string{
			"NODE_OPTIONS=--max-old-space-size=32", "JDK_JAVA_OPTIONS=-XX:MaxRAM=67108864 -XX:ActiveProcessorCount=1",
			"GOMEMLIMIT=60397974", "DOTNET_GCHeapHardLimit=3000000"}},
		{env: []string{"NODE_OPTIONS="}, exec: ExecRequest{Env: []string{"GOMEMLIMIT=off", "JDK_JAVA_OPTIONS=-Xmx1m"}}, want: []string{
			"NODE_OPTIONS=", "JDK_JAVA_OPTIONS=-Xmx1m", "GOMEMLIMIT=off", "DOTNET_GCHeapHardLimit=300000000"}},
	} {
		d := base
		d.Env, tt.exec.Args = tt.env, []string{"true"}
		e, err := tt.exec.Command(d, lookup)
		if err != nil || !slices.Equal(e.Env, tt.want) {
			t.Errorf("%+v: %q, %v, want %q", tt.exec, e.Env, err, tt.want)
		}
	}
	e, err := ExecRequest{Args: []string{"true"}}.Command(Defaults{}, lookup)
	if err != nil || !slices.Equal(e.Env, []string{withoutTracing}) {
		t.Errorf("without tracing: %q, %v", e.Env, err)
	}
}

// A tmpfs has half the memory limit, unless the request or the profile has a size. What
// follows from the memory is never above the caller's ceiling.
func TestTmpfsFollowsMemory(t *testing.T) {
	for _, tt := range []struct {
		memory, asked, profile int64
		want                   int64
	}{
		{want: 256 << 20},
		{memory: 100 << 20, want: 50 << 20},
		{memory: 8 << 30, want: 1 << 30}, // the ceiling
		{memory: 100 << 20, asked: 200 << 20, want: 200 << 20},
		{memory: 100 << 20, profile: 1 << 20, want: 1 << 20},
		{asked: 4 << 30, want: 4 << 30}, // refused by the grant, not made smaller
	} {
		pl := testPlanner()
		strict := pl.Profiles["strict"]
		strict.Limits.TmpfsBytes = tt.profile
		pl.Profiles["strict"] = strict
		limits := &caissonv1.Limits{}
		for n, to := range map[*int64]**int64{&tt.memory: &limits.MemoryBytes, &tt.asked: &limits.TmpfsBytes} {
			if *n != 0 {
				*to = n
			}
		}
		p, err := pl.Sandbox(CreateRequest{Limits: limits})
		if err != nil || p.Limits.TmpfsBytes != tt.want {
			t.Errorf("%+v: tmpfs %d, %v", tt, p.Limits.TmpfsBytes, err)
		}
	}
}

// TestPlanOtherUser: a sandbox is one user's, by whatever name.
func TestPlanOtherUser(t *testing.T) {
	users := map[string]User{
		"me": {1000, 1000, []uint32{7, 5}}, "1000:1000": {1000, 1000, nil}, "again": {1000, 1000, []uint32{5, 7, 7}},
		"other": {2000, 1000, []uint32{5, 7}}, "root": {0, 0, nil}, "large": {65535, 1000, nil},
	}
	lookup := func(name string) (User, error) { return users[name], nil }
	base := Defaults{User: users["me"], Cwd: "/"}
	for name, want := range map[string]struct {
		code sbxerr.Code
		say  string
	}{
		"": {}, "me": {}, "again": {},
		"1000:1000": {sbxerr.Config, `user "1000:1000" is 1000:1000, and every command of the sandbox runs as 1000:1000 with the groups [7 5]`},
		"other":     {sbxerr.Config, `user "other" is 2000:1000 with the groups [5 7], and every`},
		"root":      {sbxerr.ImageUser, "is root inside the sandbox"},
		"large":     {sbxerr.ImageUser, "id 65535 is above"},
	} {
		e, err := ExecRequest{Args: []string{"true"}, User: name}.Command(base, lookup)
		if want.code != "" {
			errtest.Want(t, err, want.code, want.say)
		} else if err != nil || e.User.UID != 1000 {
			t.Errorf("user %q: %+v, %v", name, e, err)
		}
	}
	_, err := ExecRequest{Args: []string{"true"}, User: "other"}.Command(base, lookup)
	if remedy := sbxerr.RemedyOf(err); !strings.Contains(remedy, "caisson create --user other") {
		t.Errorf("remedy %q", remedy)
	}
}

func TestPlanUser(t *testing.T) {
	for _, tt := range []struct {
		image, asked, profile string
		want                  User
	}{
		{"base", "", "strict", User{UID: 1000, GID: 1000}},   // the profile's
		{"tools", "", "strict", User{UID: 1234, GID: 1234}},  // the image's
		{"tools", "7:8", "strict", User{UID: 7, GID: 8}},     // the request's
		{"rooted", "", "strict", User{UID: 1000, GID: 1000}}, // root falls back
		{"rooted", "", "big", User{UID: 2000, GID: 2000}},
		{"grouped", "7", "strict", User{UID: 7, GID: 7}},
	} {
		p, err := planRun(testPlanner(), Request{Create: CreateRequest{Image: tt.image, User: tt.asked, Profile: tt.profile}, Exec: ExecRequest{Args: []string{"true"}}})
		if err != nil || p.User.UID != tt.want.UID || p.User.GID != tt.want.GID || len(p.User.Groups) > 0 {
			t.Errorf("image %s, user %q, profile %s: %+v, %v", tt.image, tt.asked, tt.profile, p, err)
		}
	}
	pl := testPlanner()
	pl.User = func(images.Stored, string) (Account, error) { return Account{User: User{1, 1, []uint32{5, 0}}}, nil }
	_, err := planRun(pl, Request{Exec: ExecRequest{Args: []string{"true"}}})
	errtest.Want(t, err, sbxerr.ImageUser, "or in its group")
}

func TestPlanCwd(t *testing.T) {
	ws := &WorkspaceRequest{Dir: "/srv/a"}
	for _, tt := range []struct {
		image, asked string
		workspace    *WorkspaceRequest
		want         string
	}{
		{"tools", "", nil, "/app"},
		{"tools", "", ws, "/workspace"},
		{"tools", "/x", ws, "/x"},
		{"base", "", nil, "/"},
		{"inproc", "", nil, "/"},
		{"climbs", "", nil, "/"},
		{"relative", "", nil, "/"},
	} {
		p, err := planRun(testPlanner(), Request{Create: CreateRequest{Image: tt.image, Workspace: tt.workspace}, Exec: ExecRequest{Args: []string{"true"}, Cwd: tt.asked}})
		if err != nil || p.exec.Cwd != tt.want {
			t.Errorf("%+v: %q, %v", tt, p.exec.Cwd, err)
		}
	}
}

func TestPlanWorkspaceMode(t *testing.T) {
	for mode, readOnly := range map[string]bool{"": false, "rw": false, "ro": true, "cow": false} {
		p, err := planRun(testPlanner(), Request{Create: CreateRequest{Workspace: &WorkspaceRequest{Dir: "/srv/a", Mode: mode}}, Exec: ExecRequest{Args: []string{"true"}}})
		if err != nil || p.Mounts[0].ReadOnly != readOnly {
			t.Errorf("mode %q: %+v, %v", mode, p, err)
		}
	}
}

// TestLabelsHoldNothingOfTheImage (CVE-2026-53488), nor of the request's own.
func TestLabelsHoldNothingOfTheImage(t *testing.T) {
	p, err := planRun(testPlanner(), Request{Create: CreateRequest{Image: "tools", Labels: map[string]string{"team": "red"}, Session: "s", Task: "t"}, Exec: ExecRequest{Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"caisson.managed": "true", "caisson.profile": "strict", "caisson.session": "s", "caisson.task": "t"}
	if got := p.Labels(); !reflect.DeepEqual(got, want) {
		t.Errorf("labels %v, want %v", got, want)
	}
}

// TestMemoryIsRefusedAlone: the sizes that follow from a memory out of range are no further
// mistakes.
func TestMemoryIsRefusedAlone(t *testing.T) {
	for _, memory := range []int64{-5, 1, 1 << 60} {
		r := Request{Exec: ExecRequest{Args: []string{"true"}}, Create: CreateRequest{Limits: &caissonv1.Limits{MemoryBytes: &memory}}}
		_, err := planRun(testPlanner(), r)
		if text := fmt.Sprint(err); !strings.Contains(text, `limit "memory" is`) || strings.Contains(text, "tmpfs") || strings.Contains(text, "shm") {
			t.Errorf("%d: %v", memory, err)
		}
	}
}

// More CPUs than the host has are no error, and a note says so. A profile may name more: its
// author has other hosts too.
func TestMoreCPUsThanTheHostHas(t *testing.T) {
	pl := testPlanner()
	big := pl.Profiles["big"]
	big.Limits.MilliCPU = 64000
	pl.Profiles["big"] = big
	for name, tt := range map[string]struct {
		create CreateRequest
		want   []string
	}{
		"all":          {CreateRequest{Limits: &caissonv1.Limits{MilliCpu: new(int64(2000))}}, nil},
		"a bit more":   {CreateRequest{Limits: &caissonv1.Limits{MilliCpu: new(int64(2500))}}, []string{"limits.milli_cpu: 2.5 CPUs are asked for, and the host has 2: that many can be used"}},
		"of a profile": {CreateRequest{Profile: "big"}, nil},
	} {
		p, err := planRun(pl, Request{Create: tt.create, Exec: ExecRequest{Args: []string{"true"}}})
		if err != nil || !slices.Equal(p.Notes, tt.want) {
			t.Errorf("%s: %q, %v", name, p.Notes, err)
		}
	}
}

// The settings of a record are read as they are written, and as older daemons wrote them.
func TestStoredSettings(t *testing.T) {
	want := &caissonv1.Limits{}
	old := map[string]*int64{}
	for i, name := range strings.Fields("MemoryBytes MilliCPU CPUShares PIDs OpenFiles TmpfsBytes IOReadBPS IOWriteBPS ShmBytes") {
		n := int64(i + 1)
		*settings.Table[i].Asked(want) = &n
		old[name] = &n
	}
	limits, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	now, err := json.Marshal(CreateRequest{Name: "box", Limits: want})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]*caissonv1.Limits{
		string(now): want,
		`{"Name":"box","Limits":` + string(limits) + `}`:                        want,
		`{"Name":"box","Limits":{"MemoryBytes":null,"MilliCPU":null,"PIDs":7}}`: {Pids: new(int64(7))},
		`{"Name":"box"}`: nil, `{"Name":"box","Limits":null}`: nil, `{"Name":"box","Limits":{}}`: {},
	} {
		var got CreateRequest
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Name != "box" || !proto.Equal(got.Limits, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"Limits":{"PIDs":"many"}}`), new(CreateRequest)); err == nil {
		t.Error("a limit that is no number was read")
	}
}
