package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/finding"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/disk"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/ctrd"
)

var errProbe = errors.New("it did not work")

func TestFeature(t *testing.T) {
	coded := sbxerr.New(sbxerr.Cgroup, "op", "no swap")
	for _, tt := range []struct {
		name   string
		answer finding.Answer
		err    error
		needed bool
		want   runtime.Check
	}{
		{"yes", finding.Yes, nil, true, runtime.Check{Status: OK, Detail: "d"}},
		{"yes, wanted", finding.Yes, nil, false, runtime.Check{Status: OK, Detail: "d"}},
		{"no", finding.No, errProbe, true, runtime.Check{Status: Fail, Detail: "d: it did not work", Code: "SBX-502"}},
		{"no, wanted", finding.No, errProbe, false, runtime.Check{Status: Warn, Detail: "d: it did not work", Code: "SBX-502"}},
		{"no, with a code", finding.No, coded, true, runtime.Check{Status: Fail, Detail: "d: " + coded.Error(), Code: "SBX-501"}},
		{"no, without a reason", finding.No, nil, true, runtime.Check{Status: Fail, Detail: "d", Code: "SBX-502"}},
		{"unknown", finding.Unknown, errProbe, true, runtime.Check{Status: Fail, Detail: "d: it did not work", Code: "SBX-502"}},
		{"unknown, wanted", finding.Unknown, errProbe, false, runtime.Check{Status: Unknown, Detail: "d: it did not work", Code: "SBX-502"}},
		{"an answer to come", finding.Yes + 1, nil, true, runtime.Check{Status: Fail, Detail: "d", Code: "SBX-502"}},
	} {
		got := feature(finding.Feature{Name: "thing", Answer: tt.answer, Detail: "d", Err: tt.err, Needed: tt.needed}, sbxerr.CgroupController)
		if tt.want.Code != "" && got.Remedy == "" {
			t.Errorf("%s: no remedy", tt.name)
		}
		tt.want.Name, tt.want.Remedy = "thing", got.Remedy
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	own := sbxerr.WithRemedy(sbxerr.CgroupController, "op", errProbe, "boot with swapaccount=1")
	if got := feature(finding.Feature{Name: "swap", Answer: finding.No, Err: own, Needed: true}, sbxerr.Cgroup); got.Remedy != "boot with swapaccount=1" || strings.HasPrefix(got.Detail, ":") {
		t.Errorf("the leaf's own remedy: %+v", got)
	}
}

// An examination that hangs holds up no other, and refuses where a sandbox needs it.
func TestExaminationThatHangs(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			never := make(chan struct{})
			defer close(never)
			begin := time.Now()
			found := examine(t.Context(), Host{}, []examination{
				{name: "stuck", late: late, examine: func(context.Context, Host) []runtime.Check { <-never; return nil }},
				{name: "other", examine: func(context.Context, Host) []runtime.Check { return ok("other", "works") }},
			})
			if len(found) != 2 || found[0].Name != "stuck" || found[1].Status != OK || time.Since(begin) != checkTimeout {
				t.Fatalf("after %s: %+v", time.Since(begin), found)
			}
			want := Fail
			if late {
				want = Unknown
			}
			if f := found[0]; f.Status != want || f.Code != string(sbxerr.Deadline) || !strings.Contains(f.Detail, "no answer within 35s") {
				t.Errorf("late %v: %+v", late, f)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	if err := Refusal([]runtime.Check{{Name: "a", Status: OK}, {Name: "b", Status: Warn}, {Name: "c", Status: Unknown}}); err != nil {
		t.Errorf("refused without a failure: %v", err)
	}
	err := Refusal([]runtime.Check{
		{Name: "disk space", Status: Warn, Detail: "little", Code: "SBX-609"},
		{Name: "user namespaces", Status: Fail, Detail: "none", Code: "SBX-112", Remedy: "enable them"},
		{Name: "programs", Status: Fail, Detail: "runc is missing", Code: "SBX-606"},
	})
	for _, code := range []sbxerr.Code{sbxerr.UserNS, sbxerr.Binary} {
		if !errors.Is(err, code) {
			t.Errorf("%v lacks %s", err, code)
		}
	}
	if errors.Is(err, sbxerr.StateDir) || !strings.Contains(err.Error(), "doctor.user_namespaces") || !strings.Contains(err.Error(), "runc is missing") {
		t.Errorf("refusal %v", err)
	}
	if sbxerr.Of(err) != sbxerr.UserNS || sbxerr.RemedyOf(err) != "enable them" {
		t.Errorf("code %s, remedy %q", sbxerr.Of(err), sbxerr.RemedyOf(err))
	}
}

func TestOverlapping(t *testing.T) {
	const first, last = 1879048192, 1879048192 + 2*65536 - 1
	for text, want := range map[string]string{
		"":                                       "",
		"alice:100000:65536\n":                   "",
		"alice:1879048191:1\n":                   "",
		"alice:1879048191:2\n":                   "alice:1879048191:2",
		"alice:100000:65536\nbob:1879179263:9\n": "bob:1879179263:9",
		"bob:1879179264:9\n":                     "",
		"bob:1879100000:1":                       "bob:1879100000:1",
		"bob:1879100000:0\n":                     "", // nothing
		"bob:0:4294967295\n":                     "bob:0:4294967295",
		"bob:1879048192:18446744073709551615\n":  "bob:1879048192:18446744073709551615", // more than there is
		"bob:1:18446744073709551615\n":           "bob:1:18446744073709551615",
		"# bob:1879048192:1:x\nbob\nbob:x:y\n":   "",
		"  bob:1879048192:1  \r\n":               "bob:1879048192:1",
	} {
		if got := overlapping(text, first, last); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func one(t *testing.T, checks []runtime.Check) runtime.Check {
	t.Helper()
	if len(checks) != 1 {
		t.Fatalf("%d checks: %+v", len(checks), checks)
	}
	return checks[0]
}

func TestIDs(t *testing.T) {
	dir := t.TempDir()
	subuid := filepath.Join(dir, "subuid")
	if err := os.WriteFile(subuid, []byte("bob:1879048192:65536\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	reserved := Host{IDBase: 1879048192, IDBlocks: 2}
	for _, tt := range []struct {
		name   string
		host   Host
		files  []string
		status string
		words  string
	}{
		{"none reserved", Host{}, []string{subuid}, OK, "no range is reserved yet"},
		{"free", reserved, nil, OK, "1879048192 to 1879179263, for 2 sandboxes"},
		{"no such file", reserved, []string{filepath.Join(dir, "absent")}, OK, "for 2 sandboxes"},
		{"taken", reserved, []string{subuid}, Warn, `"bob:1879048192:65536" in ` + subuid + " overlaps"},
		{"unreadable", reserved, []string{dir}, Unknown, "is a directory"},
	} {
		got := one(t, judgeIDs(tt.host, tt.files))
		if got.Status != tt.status || !strings.Contains(got.Detail, tt.words) {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if bad := tt.status != OK; bad != (got.Code == string(sbxerr.IDRange)) {
			t.Errorf("%s: code %q", tt.name, got.Code)
		}
	}
}

func TestRights(t *testing.T) {
	all := func(uint) bool { return true }
	without := func(missing ...uint) func(uint) bool {
		return func(n uint) bool { return !slices.Contains(missing, n) }
	}
	for _, tt := range []struct {
		name   string
		euid   int
		has    func(uint) bool
		status string
		words  []string
	}{
		{"all", 0, all, OK, []string{"root, with all"}},
		{"limits only", 0, without(unix.CAP_SYS_RESOURCE), Warn, []string{"CAP_SYS_RESOURCE (resource limits"}},
		{"not root", 1000, all, Fail, []string{"missing: root"}},
		{"some", 0, without(unix.CAP_SYS_ADMIN, unix.CAP_MKNOD, unix.CAP_SYS_RESOURCE), Fail, []string{"CAP_SYS_ADMIN (mounts", "CAP_MKNOD ("}},
		{"nothing", 1000, func(uint) bool { return false }, Fail, []string{"missing: root"}}, // the rest follows from it
	} {
		got := one(t, judgeRights("rights", tt.euid, tt.has))
		if got.Status != tt.status {
			t.Errorf("%s: %+v", tt.name, got)
		}
		for _, w := range tt.words {
			if !strings.Contains(got.Detail, w) {
				t.Errorf("%s: %q lacks %q", tt.name, got.Detail, w)
			}
		}
		if (got.Status != OK) != (got.Code == string(sbxerr.Rights)) {
			t.Errorf("%s: code %q", tt.name, got.Code)
		}
	}
}

func TestVersionCheck(t *testing.T) {
	for _, tt := range []struct {
		finding ctrd.VersionFinding
		want    runtime.Check
	}{
		{ctrd.VersionFinding{Severity: ctrd.Fine}, runtime.Check{Status: OK, Detail: "v1"}},
		{ctrd.VersionFinding{Severity: ctrd.Warned, Reason: "old"}, runtime.Check{Status: Warn, Detail: "v1: old", Code: "SBX-603"}},
		{ctrd.VersionFinding{Severity: ctrd.Refused, Reason: "bad"}, runtime.Check{Status: Fail, Detail: "v1: bad", Code: "SBX-603"}},
		{ctrd.VersionFinding{}, runtime.Check{Status: Fail, Detail: "v1: ", Code: "SBX-603"}}, // nothing known refuses
	} {
		got := versionCheck("runc", "v1", tt.finding)
		if (got.Remedy == "") != (tt.want.Status == OK) {
			t.Errorf("%+v: remedy %q", tt.finding, got.Remedy)
		}
		tt.want.Name, tt.want.Remedy = "runc version", got.Remedy
		if got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.finding, got, tt.want)
		}
	}
}

func TestExisting(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir: dir, filepath.Join(dir, "a", "b"): dir, filepath.Join(file, "below"): dir, "/": "/", "/no-such-directory/x": "/",
	} {
		if got := existing(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestHardening(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values map[string]string
		status string
		words  string
	}{
		{"no such settings", nil, OK, "all that is looked at is set"},
		{"all set", map[string]string{"kernel/kptr_restrict": "2\n", "kernel/dmesg_restrict": "1\n", "vm/unprivileged_userfaultfd": "0\n"}, OK, ""},
		{"one weak", map[string]string{"kernel/kptr_restrict": "0\n", "kernel/dmesg_restrict": "1\n"}, Warn, "kernel.kptr_restrict is 0 (hides kernel addresses)"},
		{"one that must be 0", map[string]string{"vm/unprivileged_userfaultfd": "1\n"}, Warn, "vm.unprivileged_userfaultfd is 1"},
		{"no number", map[string]string{"kernel/yama/ptrace_scope": "x"}, Warn, "kernel.yama.ptrace_scope is x"},
	} {
		got := one(t, judgeHardening(func(path string) ([]byte, error) {
			v, ok := tt.values[strings.TrimPrefix(path, "/proc/sys/")]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(v), nil
		}))
		if got.Status != tt.status || !strings.Contains(got.Detail, tt.words) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// programs makes a directory of programs, runc being a script.
func programs(t *testing.T, runc string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		text := "#!/bin/sh\nexit 0\n"
		if name == "runc" {
			text = "#!/bin/sh\n" + runc + "\n"
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var all = []string{"caisson-init", "caisson-gateway", "caisson-images", "runc", "containerd", "caisson-shim", "containerd-shim-runc-v2"}

func TestPrograms(t *testing.T) {
	dir := programs(t, "", all...)
	if got := one(t, examinePrograms(Host{BinDir: dir})); got.Status != OK || !strings.Contains(got.Detail, "containerd-shim-runc-v2") {
		t.Errorf("all there: %+v", got)
	}
	if got := one(t, examinePrograms(Host{BinDir: programs(t, "", "caisson-init", "caisson-gateway", "caisson-images", "runc"), External: true})); got.Status != OK {
		t.Errorf("an engine of the host's: %+v", got)
	}
	for path, mode := range map[string]os.FileMode{"runc": 0o644, "containerd": 0o775} {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "caisson-init")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "containerd-shim-runc-v2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "containerd-shim-runc-v2"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := one(t, examinePrograms(Host{BinDir: dir}))
	for _, w := range []string{`"runc" cannot be executed`, `"containerd" can be written by others`, "caisson-init: no such file", `"containerd-shim-runc-v2" cannot be executed`} {
		if !strings.Contains(got.Detail, w) {
			t.Errorf("%q lacks %q", got.Detail, w)
		}
	}
	if got.Status != Fail || got.Code != string(sbxerr.Binary) {
		t.Errorf("%+v", got)
	}
}

func TestRuncFeatures(t *testing.T) {
	for script, want := range map[string]runtime.Check{
		`echo '{"linux":{"seccomp":{"enabled":true}}}'`:  {Status: OK, Detail: "built in"},
		`echo '{"linux":{"seccomp":{"enabled":false}}}'`: {Status: Fail, Detail: "without seccomp", Code: "SBX-301"},
		`echo '{"linux":{}}'`:                            {Status: Fail, Detail: "without seccomp", Code: "SBX-301"}, // not said is not there
		`echo nonsense`:                                  {Status: Fail, Detail: "read runc's features", Code: "SBX-301"},
		`exit 1`:                                         {Status: Fail, Detail: "ask runc for its features", Code: "SBX-301"},
	} {
		got := one(t, examineRunc(t.Context(), Host{BinDir: programs(t, script, "runc")}))
		if got.Status != want.Status || got.Code != want.Code || !strings.Contains(got.Detail, want.Detail) {
			t.Errorf("%s: %+v", script, got)
		}
	}
	// It gets nothing of the daemon's environment.
	t.Setenv("CAISSON_CANARY", "seen")
	if got := one(t, examineRunc(t.Context(), Host{BinDir: programs(t, `test -z "$CAISSON_CANARY" && echo '{"linux":{"seccomp":{"enabled":true}}}'`, "runc")})); got.Status != OK {
		t.Errorf("%+v", got)
	}
}

func statuses(checks []runtime.Check) string {
	var list []string
	for _, c := range checks {
		list = append(list, c.Name+"="+c.Status)
	}
	return strings.Join(list, " ")
}

func TestEngine(t *testing.T) {
	dir := programs(t, `echo '{"linux":{"seccomp":{"enabled":true}}}'`, all...)
	running := func(containerd, runc string, err error) func(context.Context) (string, string, error) {
		return func(context.Context) (string, string, error) { return containerd, runc, err }
	}
	for _, tt := range []struct {
		name string
		host Host
		want string
	}{
		{"a good engine", Host{BinDir: dir, Engine: running("v9.0.0", "9.0.0", nil)}, "programs=ok containerd version=ok runc version=ok runc seccomp=ok"},
		{"an ancient one", Host{BinDir: dir, Engine: running("v1.2.0", "0.1.0", nil)}, "programs=ok containerd version=fail runc version=fail runc seccomp=ok"},
		{"one that does not answer", Host{BinDir: dir, Engine: running("", "", errProbe)}, "programs=ok engine versions=fail"},
		{"the host's, not connected yet", Host{BinDir: dir, External: true}, "programs=ok runc seccomp=ok"},
		{"programs that tell nothing", Host{BinDir: dir}, "programs=ok engine versions=fail"},
	} {
		if got := statuses(examineEngine(t.Context(), tt.host)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestExamine runs every probe on this very host. What it finds depends on the
// host, but each finding must be complete.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	found := Examine(t.Context(), Host{Root: filepath.Join(dir, "root"), State: dir, BinDir: filepath.Join(dir, "bin"), CgroupParent: "caisson-doctor-test"})
	names := map[string]bool{}
	for _, c := range found {
		if names[c.Name] {
			t.Errorf("%q is told twice", c.Name)
		}
		names[c.Name] = true
		if !slices.Contains([]string{OK, Warn, Fail, Unknown}, c.Status) || c.Detail == "" {
			t.Errorf("finding %+v", c)
		}
		if c.Status == Fail && (c.Code == "" || c.Remedy == "") {
			t.Errorf("a failure without a code or a remedy: %+v", c)
		}
	}
	for _, want := range []string{"rights", "kernel", "user namespaces", "host ids", "image files", "disk space", "programs", "host hardening"} {
		if !names[want] {
			t.Errorf("nothing is told of %q", want)
		}
	}
	if err := Refusal(found); !errors.Is(err, sbxerr.Binary) {
		t.Errorf("a host without programs is not refused: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("the probes left %v", left)
	}
}

func TestWhatCannotBeLookedAtFails(t *testing.T) {
	got := one(t, examineFS("image files", "/no/such/directory"))
	if got.Status != Fail || got.Code != string(sbxerr.StateDir) {
		t.Errorf("%+v", got)
	}
}

func TestOutputFiles(t *testing.T) {
	if got := one(t, examineOutput(t.TempDir())); got.Status != OK {
		t.Errorf("a usable directory: %+v", got)
	}
	got := one(t, examineOutput("/proc/self")) // nothing can be made there
	if got.Status != Fail || got.Code != string(sbxerr.StateDir) || got.Remedy == "" {
		t.Errorf("%+v", got)
	}
}

func TestCapabilities(t *testing.T) {
	host := cgroups.Host{Mode: cgroups.V2, Controllers: map[string]finding.Answer{"memory": finding.Yes, "cpu": finding.No, "pids": finding.Unknown}}
	support := func(mayRaise bool) map[string]string {
		m := map[string]string{}
		for _, c := range Capabilities(host, mayRaise, map[netns.Mode]error{netns.ModeBridge: errors.New("not set up"), netns.ModeOpen: errors.New("air-gapped")}) {
			if c.Detail == "" || m[c.Field] != "" {
				t.Errorf("capability %+v", c)
			}
			m[c.Field] = c.Support
		}
		return m
	}
	disks := Enforced
	if disk.Probe() != nil {
		disks = Unsupported
	}
	got := support(false)
	for field, want := range map[string]string{
		"limits.memory_bytes": Enforced, "limits.milli_cpu": Unsupported, "limits.pids": Unsupported, "limits.cpu_shares": Unsupported, "limits.io_read_bps": Unsupported, "limits.io_write_bps": Unsupported, // not known is not there
		"limits.open_files": BestEffort, "limits.tmpfs_bytes": Enforced, "limits.shm_bytes": Enforced, "limits.disk_bytes": disks,
		"timeout": Enforced, "tty": Enforced, "exec.limits": Enforced, "exec.kill": BestEffort, "files": Enforced, "exec.attach": Enforced, "pool": Enforced, "user=root": Enforced,
		"workspace.mode=ro": Enforced, "workspace.mode=cow": disks,
		"network=none": Enforced, "network=allow": Enforced, "network=open": Unsupported, "network=bridge": Unsupported,
	} {
		if got[field] != want {
			t.Errorf("%s: %q, want %q", field, got[field], want)
		}
	}
	if got := support(true)["limits.open_files"]; got != Enforced {
		t.Errorf("with CAP_SYS_RESOURCE: %q", got)
	}
	host.Tags = finding.Yes
	if got := support(false)["exec.kill"]; got != Enforced {
		t.Errorf("with tags: %q", got)
	}
	for _, m := range netns.Modes() {
		if _, ok := got["network="+string(m.Mode)]; !ok {
			t.Errorf("network mode %q is missing", m.Mode)
		}
	}
}
