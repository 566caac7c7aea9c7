package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/forms"
	"github.com/caisson-run/caisson/cmd/caisson/internal/host"
	"github.com/caisson-run/caisson/cmd/caisson/internal/verbs"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/gateway/route/tokens"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/observe"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/pool"
	"github.com/caisson-run/caisson/runtime/secrets"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/runtime/templates"
	"github.com/caisson-run/caisson/runtime/volumes"
	"github.com/caisson-run/caisson/server/servertest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const patience = 10 * time.Second

// mainEnv makes the test binary be caisson, so that processes can be tested.
const mainEnv = "CAISSON_TEST_MAIN"

// whole is a program with all that does not need an agent.
var whole = cli.Program{Version: "dev", Commit: "unknown", Groups: verbs.Groups(), Template: formTemplate, YAML: forms.YAML}

func formTemplate(text string) (cli.Form, error) { return forms.Template(text) }

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == cli.DaemonName:
		os.Exit(fakeDaemon(os.Args[1:]))
	case os.Getenv(mainEnv) != "":
		whole.Main()
	}
	os.Setenv("CAISSON_REQUEST_ID", "a-request") // the same in each answer
	os.Setenv("XDG_CONFIG_HOME", "/nonexistent") // without contexts
	os.Exit(m.Run())
}

// invoke runs the CLI against f.
func invoke(t *testing.T, f *servertest.Fake, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	var out, errOut bytes.Buffer
	a := cli.NewApp(whole, strings.NewReader(stdin), &out, &errOut)
	a.Now = func() time.Time { return time.Date(2026, 3, 4, 6, 0, 0, 0, time.UTC) } // 54 minutes after sample's
	code = a.Run(t.Context(), args)
	return code, out.String(), errOut.String()
}

// command is caisson as a process of its own, talking to f.
func command(t *testing.T, f *servertest.Fake, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1", "CAISSON_SOCKET="+servertest.Listen(t, f))
	return cmd
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	panic("unreachable")
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s changed (-update rewrites it):\n%s", path, got)
	}
}

// sample is a daemon with one of everything.
func sample() *servertest.Fake {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	live := runtime.Info{
		ID: "aaaaaaaaaaaaaaaaaaaaaaaaaa", Name: "build", State: runtime.StateRunning, Image: "base", Profile: "strict", Isolation: "sandbox",
		Args: []string{"make", "-j2", "all", "and", "more", "than", "fits", "into", "a", "table"}, CreatedAt: at, PID: 4711,
		Labels: map[string]string{"team": "x"}, Session: "s", Task: "t",
		Workspace: &plan.WorkspaceRequest{Dir: "/srv/w", Mode: "ro"},
	}
	result := runtime.Result{
		SandboxID: "bbbbbbbbbbbbbbbbbbbbbbbbbb", ExitCode: 137, Signal: 9, OOMKilled: true, StdoutBytes: 5, StderrBytes: 6,
		Duration: 1500 * time.Microsecond, CPU: time.Millisecond, PeakMemoryBytes: 1 << 20, MaxRSSBytes: 1 << 19, ThrottledPeriods: 2,
		Network: "none", Source: "command", Reason: runtime.ReasonOOM,
		Stages: []runtime.Stage{{Name: "rootfs", Duration: 250 * time.Microsecond}}, Warnings: []string{"nofile clamped to 512"},
	}
	ended := runtime.Info{
		ID: "bbbbbbbbbbbbbbbbbbbbbbbbbb", Name: "bbbbbbbbbbbbbbbbbbbbbbbbbb", State: runtime.StateExited, Image: "base", Profile: "strict", Isolation: "sandbox",
		Args: []string{"sh", "-c", "echo \x1b[31mred"}, CreatedAt: at, ExitedAt: at.Add(time.Minute), Result: &result,
	}
	base := images.Image{Name: "base", Digest: "sha256:0123", SizeBytes: 1_572_864, CreatedAt: at, Source: "embedded"}
	e1 := runtime.ExecInfo{ID: "e1", SandboxID: live.ID, Args: []string{"sleep", "60"}, State: runtime.ExecRunning, PID: 7, Stdin: true, StartedAt: at, StdoutBytes: 3}
	e2 := runtime.ExecInfo{ID: "e2", SandboxID: live.ID, Args: []string{"sh"}, State: runtime.ExecExited, PID: 8, TTY: true, StartedAt: at, EndedAt: at, Result: &runtime.Result{ExitCode: 3}}
	known := func(ref string) (runtime.Info, error) {
		if ref != "build" {
			return runtime.Info{}, sbxerr.New(sbxerr.NotFound, "fake.find", "no sandbox %q", ref)
		}
		return live, nil
	}
	return &servertest.Fake{
		OnCreate: func(req plan.CreateRequest) (runtime.Info, error) {
			if req.Ensure && req.Name == "other" {
				return runtime.Info{}, sbxerr.New(sbxerr.Exists, "fake.create", "sandbox %q has other settings: memory", req.Name)
			}
			replaced := ""
			if req.Replace {
				replaced = live.ID
			}
			return runtime.Info{
				Replaced: replaced, ID: "dddddddddddddddddddddddddd", Name: req.Name, State: runtime.StateRunning, Image: "base", Profile: "strict", Isolation: "sandbox",
				CreatedAt: at, ExpiresAt: at.Add(time.Hour), IdleSince: at, IdleTimeout: time.Minute, Labels: req.Labels, OwnerUID: 1000, Parent: live.ID, Execs: 2,
			}, nil
		},
		OnRun: func(_ context.Context, req plan.Request, rio runtime.IO) (*runtime.Result, error) {
			r := runtime.Result{ExitCode: 3, Source: "command", Reason: runtime.ReasonExited, StdoutBytes: 4}
			if req.Learn {
				r.Learned = &runtime.Learned{Rules: []string{"a.example:443", "b.example:22"}, Warnings: []string{"2 attempts have no record"}}
			}
			_, err := io.WriteString(rio.Stdout, "out\n")
			return &r, err
		},
		OnExecs: func(string) ([]runtime.ExecInfo, error) { return []runtime.ExecInfo{e1, e2}, nil },
		OnSignal: func(_, exec string, _ runtime.SignalRequest) error {
			return sbxerr.New(sbxerr.NotFound, "fake.kill", "no command %q", exec)
		},
		OnWait: func(_ context.Context, ref string) (runtime.Info, error) {
			if ref == "build" { // of which no result is known
				return runtime.Info{ID: live.ID, Name: live.Name, State: runtime.StateRemoving, Args: live.Args}, nil
			}
			return ended, nil
		},
		OnWaitEx: func(context.Context, string, string) (runtime.ExecInfo, error) { return e2, nil },
		OnPause:  known,
		OnResume: known, OnRestart: known,
		OnStop:   func(ref string, _ *time.Duration) (runtime.Info, error) { return known(ref) },
		OnUpdate: func(ref string, _ runtime.UpdateRequest) (runtime.Info, error) { return known(ref) },
		OnStats: func(sel runtime.StatsSelection, _ bool) ([]runtime.SandboxStats, error) {
			if slices.Contains(sel.Refs, "nobody") {
				return nil, sbxerr.New(sbxerr.NotFound, "fake.stats", "no sandbox %q", "nobody")
			}
			n, p := int64(3<<20), 12.5
			return []runtime.SandboxStats{
				{
					SandboxID: live.ID, Name: live.Name, State: live.State, CPUPercent: 99.96, CPU: 1500 * time.Millisecond, MilliCPU: 2000, MemoryBytes: 1 << 20, PeakMemoryBytes: &n,
					MemoryLimitBytes: 4 << 20, PIDs: 3, PIDsLimit: 256, Processes: &n, IOReadBytes: &n, IOWriteBytes: &n, SentBytes: 1023, ReceivedBytes: 5 << 30, CPUPressure: &p, MemoryPressure: &p, IOPressure: &p,
				},
				{SandboxID: ended.ID, Name: "old", State: ended.State, MemoryLimitBytes: 1 << 30, PIDsLimit: 256},
			}, nil
		},
		OnHistory: func(ref string) (*runtime.History, error) {
			h := &runtime.History{SandboxID: live.ID, Name: ref, State: live.State, MemoryLimitBytes: 64 << 20, MilliCPU: 1000, PIDsLimit: 256}
			for i := range 8 * min(1, len(ref)-4) { // of "build", and none of "idle"
				s := observe.Sample{Time: time.Unix(int64(1767322800+5*i), 0), CPUPercent: float64(10 * i), MemoryBytes: int64(i) << 20, PIDs: 2, IOReadBytes: 1 << 20}
				h.Samples = append(h.Samples, s)
			}
			return h, nil
		},
		Counts: runtime.HostInfo{
			Sandboxes: map[runtime.State]int{runtime.StateRunning: 2, runtime.StateExited: 1}, Execs: 3, Queued: 4,
			Capacity:  peer.Resources{MilliCPU: 4000, MemoryBytes: 8 << 30, Sandboxes: 512, DiskBytes: 100 << 30},
			Available: peer.Resources{MilliCPU: 1500, MemoryBytes: 7 << 30, Sandboxes: 510, DiskBytes: 40 << 30},
			Pools:     []pool.Stats{{Profile: "strict", Image: "base", Ready: 5, Filling: 1, Size: 3, Target: 6, Max: 12, Hits: 7, Misses: 8, Failures: 9, Refill: 1500 * time.Microsecond}},
			Networks: []runtime.NetworkStats{{SandboxID: "a1", Name: "build", Network: "allow", Egress: runtime.EgressCounters{
				Open: 1, Allowed: 2, Refused: 3, Failed: 4, SentBytes: 5, ReceivedBytes: 6000, LookupsAnswered: 7, LookupsRefused: 8, Lost: 9,
			}}, {SandboxID: "a2", Name: "quiet", Network: "open"}},
		},
		Infos: []runtime.Info{live, ended},
		Details: map[string]*runtime.Detail{"build": {
			Info: live, Limits: plan.Limits{MemoryBytes: 1, MilliCPU: 2, PIDs: 3, OpenFiles: 4, TmpfsBytes: 5},
			Cgroup: "/caisson/a", ImageDigest: "sha256:0123", HostIDBase: 1879048192, HostIDSize: 65536,
			SpecJSON: []byte(`{"ociVersion":"1.3.0"}`), Posture: []runtime.PostureCheck{{Name: "seccomp", Declared: "2", Live: "2"}},
		}},
		Images: []images.Image{base, {Name: "tiny", SizeBytes: 512, Source: "rootfs"}},
		Volumes: []volumes.Info{
			{Volume: volumes.Volume{Key: volumes.Key{Name: "cache"}, CreatedAt: at}},
			{Volume: volumes.Volume{Key: volumes.Key{Owner: 1000, Name: "data"}, CreatedAt: at}, UsedBy: []string{"build", "test"}},
		},
		Templates: []templates.Info{
			{Profile: "js", Base: "node", State: "failed", Key: "ab", BuiltAt: at, Took: 1500 * time.Millisecond, Error: "setup.run[0]: the command exited with 1", Log: "[1/2] image node\nno such\x1b[31m package\n"},
			{Profile: "py", Base: "python", State: "ready", Key: "cd", BuiltAt: at, Took: time.Minute, Image: images.Image{Name: "template/py:cd", Digest: "sha256:89ab", SizeBytes: 1 << 20}},
		},
		Secrets: []secrets.Secret{
			{Name: "forge", Source: "command:/usr/bin/pass", Read: at, Err: sbxerr.New(sbxerr.DaemonConf, "fake.secret", "secrets.forge: command %q did not end within 10s", "/usr/bin/pass")},
			{Name: "models", Source: "file:/etc/caisson/models.key", Read: at, Used: at, Routes: []string{"agent/claude", "agent/gpt"}},
			{Name: "spare", Source: "file:/etc/caisson/spare.key", Kept: true},
		},
		ImageDetails: map[string]*images.Detail{"base": {
			Image: base, ConfigJSON: []byte(`{"User":"1000"}`), Layers: []string{"sha256:4567"},
			Report: images.Report{Entries: 300, Bytes: 1_572_864, Stripped: map[string]int64{"device": 2}},
		}},
		Version:  runtime.Versions{Version: "v1", Commit: "c", GoVersion: "go1", Containerd: "v2", ContainerdAddress: "/x.sock", Runc: "1.5", Root: "/var/lib/caisson", Instance: "caisson"},
		Supports: []runtime.Capability{{Field: "memory", Support: "enforced"}, {Field: "disk", Support: "unsupported", Detail: "no quota"}},
		OnCleanup: func(dryRun bool) ([]runtime.Leftover, error) {
			return []runtime.Leftover{{Kind: "mount", ID: "cccccccccccccccccccccccccc", Reason: "no record", Removed: !dryRun}}, nil
		},
		OnDoctor: func() ([]runtime.Check, error) {
			return []runtime.Check{
				{Name: "kernel", Status: "ok", Detail: "6.18"},
				{Name: "userns", Status: "fail", Detail: "max_user_namespaces is 0", Code: "SBX-112", Remedy: "raise it"},
			}, nil
		},
		OnSpec: func(req plan.Request) (*runtime.SpecView, error) {
			return &runtime.SpecView{
				SpecJSON: fmt.Appendf(nil, `{"process":{"args":[%q]}}`, req.Exec.Args[0]), SeccompProfile: "strict",
				CgroupValues: map[string]string{"pids.max": "256", "memory.max": "536870912"},
				Mounts:       []string{"tmpfs on /tmp"},
				SeccompRules: []runtime.SeccompRule{
					{Syscalls: []string{"read", "write"}, Action: "allow", Why: "every program"},
					{Syscalls: []string{"chmod"}, Action: "errno", Condition: "mode & 06000", Why: "no set-id files"},
				},
				NetworkRules: []string{"nothing leaves"},
			}, nil
		},
		OnPolicy: func(runtime.PolicyQuery) (runtime.PolicyView, error) {
			return runtime.PolicyView{Network: "allow", Lines: []runtime.PolicyLine{
				{Rule: "deny *.bad.example", Effect: "refused: names below bad.example"}, {Rule: "mode allow", Effect: "refused: all else"},
			}}, nil
		},
		OnCheck: func(q runtime.PolicyQuery, target string) (runtime.PolicyVerdict, error) {
			v := runtime.PolicyVerdict{Network: "allow", Host: target, Port: 443}
			v.Allowed, v.Rule = slices.Contains(q.Allow, target), "allow "+target
			if !v.Allowed {
				v.Rule, v.Code, v.Reason, v.Remedy, v.Needs = "mode allow", sbxerr.EgressDenied, "no rule allows it", "allow it with "+target, target
			}
			return v, nil
		},
		Spent: spentRows(),
		OnTraffic: func(string, string, bool) ([]runtime.TrafficEntry, error) {
			return []runtime.TrafficEntry{
				{Time: time.Unix(1_760_000_000, 0), Kind: "lookup", Verdict: "refused", Name: "x.bad.example", Type: "A", Code: sbxerr.EgressDenied, Reason: "denied", Skipped: 3, Sandbox: "abcdefghijklmnopqrstuvwxyz"},
				{Time: time.Unix(1_760_000_001, 0), Kind: "connection", Verdict: "allowed", Name: "a.example", Port: 443, Address: "192.0.2.7", Rule: "allow a.example", Sent: 10, Received: 20, Duration: 1500 * time.Microsecond},
				{Time: time.Unix(1_760_000_002, 0), Kind: "packet", Verdict: "refused", Type: "udp", Port: 53, Address: "192.0.2.7", Rule: "mode bridge: 192.0.2.0/24", Code: sbxerr.EgressDenied, Reason: "documentation"},
				{Time: time.Unix(1_760_000_003, 0), Kind: "connection", Verdict: "cut", Name: "a.example", Port: 443, Address: "192.0.2.7", Rule: "mode allow", Code: sbxerr.EgressDenied, Reason: "no rule allows it", Sent: 10, Received: 20, Duration: time.Second},
			}, nil
		},
		OnLearn: func(string) (*runtime.Learned, error) {
			return &runtime.Learned{Rules: []string{"a.example:443", "*.b.example"}}, nil
		},
		OnRemove: func(ref string, force bool) (string, error) {
			switch {
			case ref == "gone":
				return "", sbxerr.New(sbxerr.NotFound, "fake.remove", "no sandbox %q", ref)
			case ref == "build" && !force:
				return "", sbxerr.New(sbxerr.State, "fake.remove", "%q is running", ref)
			}
			return strings.Repeat(ref[:1], 26), nil
		},
		OnLogs: func(_ context.Context, ref string, o runtime.LogOptions, stdout, stderr io.Writer) error {
			if ref != "build" {
				return sbxerr.New(sbxerr.NotFound, "fake.logs", "no sandbox %q", ref)
			}
			fmt.Fprint(stdout, "out\xff")
			if o.Stream == "" {
				fmt.Fprint(stderr, "err")
			}
			return nil
		},
		OnImport: func(name string, r io.Reader, progress func(string)) (images.Imported, error) {
			data, err := io.ReadAll(r)
			progress("read the archive")
			return images.Imported{Image: images.Image{Name: name, Digest: "sha256:89ab", SizeBytes: int64(len(data)), Source: "rootfs"}, Report: images.Report{Entries: 1}}, err
		},
		OnHost: func(req images.FromHostRequest, _ func(string)) (images.Imported, error) {
			return images.Imported{Image: images.Image{Name: req.Name, Digest: strings.Join(append(req.Packages, req.Paths...), "+"), Source: "from-host"}}, nil
		},
	}
}

func TestGolden(t *testing.T) {
	tests := []struct {
		name string
		args string
		code int
	}{
		{"ls", "ls", 0},
		{"ls-json", "ls -o json", 0},
		{"ls-wide", "ls -o wide", 0},
		{"ls-yaml", "ls -o yaml", 0},
		{"ls-name", "ls -o name", 0},
		{"ls-format", "ls --format {{.id}}={{.state}}{{with.workspace}}@{{.dir}}{{end}}", 0},
		{"ls-format-absent", "ls --format {{.nme}}", 125},
		{"ls-format-unclosed", "ls --format {{", 125},
		{"ls-output-near", "ls -o yam", 125},
		{"inspect-format", "inspect --format {{.limits|json}} build", 0},
		{"image-ls-wide", "image ls -o wide", 0},
		{"stats-wide", "stats --no-stream -o wide", 0},
		{"ls-label", "ls --label team=x", 0},
		{"inspect", "inspect build", 0},
		{"create-replace", "create --replace --name new", 0},
		{"create-replace-json", "create --json --replace --name new", 0},
		{"create-replace-unnamed", "create --replace", 125},
		{"inspect-all", "inspect --all build", 0},
		{"run-trace-json", "run --json --trace -- x", 3},
		{"inspect-absent", "inspect nobody", 125},
		{"inspect-absent-json", "inspect --json nobody", 125},
		{"rm", "rm one two", 0},
		{"rm-json", "rm --json --force build", 0},
		{"ls-quiet", "ls -q", 0},
		{"rm-part-json", "rm --json --force build gone", 125},
		{"clean", "clean build", 0},
		{"clean-json", "clean --json build", 0},
		{"restart", "restart --json build", 0},
		{"rm-all", "rm --all --force", 0},
		{"rm-all-named", "rm --all build", 125},
		{"rm-running", "rm build", 125},
		{"rm-several", "rm gone one build", 125},
		{"cleanup", "cleanup", 0},
		{"cleanup-dry-run-json", "cleanup --dry-run --json", 0},
		{"logs", "logs build", 0},
		{"logs-json", "logs --json build", 0},
		{"logs-stream", "logs --stream stdout build", 0},
		{"logs-absent", "logs nobody", 125},
		{"image-ls", "image ls", 0},
		{"image-ls-json", "image ls --json", 0},
		{"volume-create", "volume create cache", 0},
		{"volume-create-json", "volume create --json cache", 0},
		{"volume-create-refused", "volume create a/b", 125},
		{"volume-ls", "volume ls", 0},
		{"volume-ls-json", "volume ls --json", 0},
		{"volume-inspect", "volume inspect cache", 0},
		{"volume-rm", "volume rm cache", 0},
		{"volume-rm-used", "volume rm data", 125},
		{"volume-rm-absent", "volume rm nothing", 125},
		{"template-ls", "template ls", 0},
		{"template-ls-json", "template ls --json", 0},
		{"template-build", "template build py", 0},
		{"template-build-json", "template build --json py", 0},
		{"template-build-none", "template build strict", 125},
		{"template-inspect", "template inspect js", 0},
		{"template-inspect-json", "template inspect --json py", 0},
		{"template-rm", "template rm py", 0},
		{"template-help", "template --help", 0},
		{"template-build-help", "template build --help", 0},
		{"volume-prune", "volume prune", 0},
		{"secret-ls", "secret ls", 0},
		{"secret-ls-json", "secret ls --json", 0},
		{"secret-help", "secret --help", 0},
		{"secret-set", "secret set --from file:/etc/new.key new", 0},
		{"secret-set-json", "secret set --json --refresh 30m --from file:/etc/new.key new", 0},
		{"secret-set-configured", "secret set --from file:/etc/new.key models", 125},
		{"secret-set-without", "secret set new", 125},
		{"secret-set-help", "secret set --help", 0},
		{"key-help", "key --help", 0},
		{"key-create-help", "key create --help", 0},
		{"key-create-without", "key create --root /none ci", 125},
		{"key-create-root", "key create --root /none --as root ci", 125},
		{"key-create-both", "key create --root /none --as 5 --admin ci", 125},
		{"key-create-expires", "key create --root /none --as 5 --expires soon ci", 125},
		{"key-elsewhere", "key ls --host ssh://build.lan", 125},
		{"context-help", "context --help", 0},
		{"context-create-help", "context create --help", 0},
		{"context-create-without", "context create far", 125},
		{"context-create-password", "context create far --host ssh://ann:word@build.lan", 125},
		{"context-create-none", "context create far --host build.lan", 125},
		{"context-use-absent", "context use nowhere", 125},
		{"context-absent", "ls --context nowhere", 125},
		{"host-and-socket", "ls --host ssh://build.lan --socket /s", 125},
		{"host-key", "ls --host ssh://build.lan --key-file /k", 125},
		{"secret-rm", "secret rm spare", 0},
		{"secret-rm-used", "secret rm models", 125},
		{"secret-rm-absent", "secret rm nothing", 125},
		{"volume-prune-json", "volume prune --json --dry-run", 0},
		{"image-inspect", "image inspect base", 0},
		{"image-inspect-absent", "image inspect nothing", 125},
		{"image-rm", "image rm base", 0},
		{"image-rm-absent", "image rm nothing", 125},
		{"image-import", "image import --name tools -", 0},
		{"image-import-json", "image import --json --name tools -", 0},
		{"spec-seccomp", "spec --seccomp", 0},
		{"spec-seccomp-json", "spec --seccomp -o json", 0},
		{"spec-seccomp-pfc", "spec --seccomp --pfc", 0},
		{"spec-seccomp-pfc-json", "spec --seccomp --pfc -o json", 0},
		{"spec-pfc", "spec --pfc", 125},
		{"image-from-host", "image from-host py --package python3 --path /opt/x", 0},
		{"spec", "spec -m 512M -- true", 0},
		{"spec-json", "spec --json -- true", 0},
		{"doctor", "doctor", 1},
		{"doctor-json", "doctor -o json", 1},
		{"capabilities", "capabilities", 0},
		{"capabilities-json", "capabilities --json", 0},
		{"explain", "explain 402", 0},
		{"explain-json", "explain sbx-201 -o json", 0},
		{"create", "create --name agent --ttl 1h -l team=x", 0},
		{"create-json", "create --json --ensure --name agent", 0},
		{"create-differs", "create --ensure --name other", 125},
		{"ps", "ps build", 0},
		{"ps-json", "ps --json build", 0},
		{"kill-absent", "kill build absent", 125},
		{"wait", "wait ended", 137},
		{"wait-unknown", "wait build", 125},
		{"wait-exec-json", "wait --json build e2", 3},
		{"stop", "stop --grace 0s build", 0},
		{"stop-json", "stop --json build", 0},
		{"stop-part-json", "stop --json build nobody", 125},
		{"pause-absent", "pause build nobody", 125},
		{"resume", "resume build", 0},
		{"update", "update --ttl never -m 1G -l team= build", 0},
		{"update-network", "update --allow a.example --deny b.example build", 0},
		{"policy", "policy", 0},
		{"policy-check", "policy check --allow a.example a.example", 0},
		{"policy-check-refused", "policy check --sandbox build b.example", 1},
		{"policy-check-json", "policy check --json --sandbox build b.example", 1},
		{"policy-explain", "policy explain build", 0},
		{"policy-explain-json", "policy explain --json --network allow", 0},
		{"policy-log", "policy log build", 0},
		{"policy-log-json", "policy log --json build", 0},
		{"policy-learn", "policy learn build", 0},
		{"policy-learn-json", "policy learn --json build", 0},
		{"policy-learn-command", "policy learn --deny bad.example -- make deps", 3},
		{"policy-learn-command-json", "policy learn --json -- make deps", 3},
		{"policy-learn-help", "policy learn --help", 0},
		{"usage", "usage", 0},
		{"usage-by-profile", "usage --by profile --json", 0},
		{"usage-budgets", "usage --budgets", 0},
		{"usage-wrong", "usage --by month", 125},
		{"stats", "stats --no-stream", 0},
		{"stats-stream", "stats build", 0},
		{"stats-json", "stats --no-stream --json", 0},
		{"stats-absent", "stats nobody", 125},
		{"stats-both", "stats --session s1 build", 125},
		{"history", "history build", 0},
		{"history-empty", "history idle", 0},
		{"history-since", "history --since soon build", 125},
		{"info", "info", 0},
		{"info-json", "info --json", 0},
		{"exec-help", "exec --help", 0},
		{"create-help", "create --help", 0},
		{"run-help", "run --help", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := invoke(t, sample(), "archive", strings.Fields(tt.args)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			socket := os.Getenv("CAISSON_SOCKET")
			text := fmt.Sprintf("$ caisson %s\n%s", tt.args, stdout)
			if stderr != "" {
				text += "--- stderr\n" + stderr
			}
			golden(t, tt.name, strings.ReplaceAll(text, socket, "SOCKET"))
		})
	}
}

// TestNoLog: a sandbox that tried nothing is told from one of which nothing is recorded.
func TestNoLog(t *testing.T) {
	for mode, warned := range map[string]bool{"none": true, "bridge": false, "allow": false} {
		f := &servertest.Fake{
			Details:   map[string]*runtime.Detail{"a": {Info: runtime.Info{ID: "a", Network: mode}}},
			OnTraffic: func(string, string, bool) ([]runtime.TrafficEntry, error) { return nil, nil },
		}
		code, stdout, stderr := invoke(t, f, "", "policy", "log", "--json", "a")
		if code != 0 || stdout != "" || (stderr != "") != warned || warned && !strings.Contains(stderr, fmt.Sprintf("mode %q", mode)) {
			t.Errorf("%s: %d, %q, %q", mode, code, stdout, stderr)
		}
	}
}

// What cannot be written is told on standard error, and is a failure.
func TestFullDevice(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	f := running(func(_ context.Context, _ plan.ExecRequest, rio runtime.IO) (*runtime.Result, error) {
		_, _ = io.WriteString(rio.Stdout, "text")
		return &runtime.Result{Reason: runtime.ReasonExited, StdoutBytes: 4}, nil
	})
	t.Setenv("CAISSON_SOCKET", servertest.Listen(t, f))
	for _, line := range []string{
		"ls", "ls --json", "version", "version --json", "explain SBX-101", "exec box -- x", "exec --json box -- x", "exec --stream jsonl box -- x",
		"inspect --json nothing!", "completion bash",
	} {
		var stderr bytes.Buffer
		code := whole.Run(t.Context(), strings.Fields(line), strings.NewReader(""), full, &stderr)
		if code != cli.ExitRuntime || stderr.Len() == 0 {
			t.Errorf("%s: ended with %d, %q", line, code, &stderr)
		}
	}
}

func TestEmptyListsAreEmptyArrays(t *testing.T) {
	for _, args := range []string{"ls --json", "image ls --json", "cleanup --json", "capabilities --json"} {
		if code, stdout, stderr := invoke(t, &servertest.Fake{}, "", strings.Fields(args)...); code != 0 || stdout != "[]\n" {
			t.Errorf("%s: %d %q %q", args, code, stdout, stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("CAISSON_SOCKET", "/nonexistent/socket") // needs no daemon
	var out, errOut bytes.Buffer
	if code := whole.Run(t.Context(), []string{"version"}, nil, &out, &errOut); code != 0 || !strings.HasPrefix(out.String(), "caisson dev (commit unknown, go1") {
		t.Errorf("%d %q %q", code, &out, &errOut)
	}
	code, stdout, _ := invoke(t, sample(), "", "version", "--daemon")
	if want := "\ncaissond v1 (commit c, go1)\ncontainerd v2 on /x.sock\nrunc 1.5\nroot /var/lib/caisson, instance caisson\n"; code != 0 || !strings.HasSuffix(stdout, want) {
		t.Errorf("%d %q", code, stdout)
	}
	var v struct {
		Version, API string
		Daemon       *struct{ Containerd string }
	}
	_, stdout, _ = invoke(t, sample(), "", "version", "--daemon", "--json")
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v.Version != "dev" || v.API != "caisson.v1" || v.Daemon.Containerd != "v2" {
		t.Errorf("%+v %v", v, err)
	}
	_, stdout, _ = invoke(t, sample(), "", "version", "--json")
	v.Daemon = nil
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v.Daemon != nil {
		t.Errorf("%+v %v", v, err)
	}
}

func TestExplainAll(t *testing.T) {
	code, stdout, _ := invoke(t, &servertest.Fake{}, "", "explain")
	for _, row := range sbxerr.All() {
		if code != 0 || !strings.Contains(stdout, string(row.Code)) {
			t.Errorf("%d, %s is missing", code, row.Code)
		}
	}
	var rows []host.CodeView
	_, stdout, _ = invoke(t, &servertest.Fake{}, "", "explain", "--json")
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != len(sbxerr.All()) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_caisson", "zsh": "#compdef caisson", "fish": "complete -c caisson"} {
		if code, stdout, _ := invoke(t, &servertest.Fake{}, "", "completion", shell); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: %d %.80q", shell, code, stdout)
		}
	}
	for args, want := range map[string]string{
		"__complete rm ":            "build\n",
		"__complete image inspect ": "base\n",
		"__complete ls -o ":         "table\nwide\njson\nyaml\nname\n",
		"__complete completion ":    "bash\nzsh\nfish\n",
		"__complete run --image ":   "base\n",
		"__complete explain ":       "SBX-000\t",
		"__complete cp ":            "build:\n",
		"__complete attach build ":  "e1\tsleep 60\n",
	} {
		words := append(strings.Fields(args), "")
		if _, stdout, _ := invoke(t, sample(), "", words...); !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: %q", args, stdout)
		}
	}
}

// A verb that is built alone must go by the name that it is found by.
func TestVerbsGoByTheirNames(t *testing.T) {
	a := cli.NewApp(whole, nil, io.Discard, io.Discard)
	for _, v := range a.Verbs() {
		if name := v.Command(a).Name(); name != v.Name {
			t.Errorf("the verb %q is called %q", v.Name, name)
		}
	}
	if got := cli.Needed(a.Verbs(), []string{"exec", "x"}); len(got) != 1 || got[0].Name != "exec" {
		t.Errorf("for exec: %d verbs", len(got))
	}
	for _, args := range [][]string{nil, {"--socket", "x", "exec"}, {"exce"}, {"help", "exec"}, {"completion", "bash"}, {"__complete", "ex"}} {
		if got := cli.Needed(a.Verbs(), args); len(got) != len(a.Verbs()) {
			t.Errorf("for %q: %d verbs", args, len(got))
		}
	}
}

// spentRows are what requests of two sandboxes by one route took.
func spentRows() (rows []spend.Row) {
	at := time.Date(2025, 10, 9, 8, 53, 20, 0, time.UTC)
	for i, id := range []string{"abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza"} {
		bill := budget.Bill{Sandbox: id, Session: "1000/nightly", Profile: "1000/agent"}
		about := spend.About{Sandbox: id, Name: []string{"build", "test"}[i], Owner: 1000, Session: "nightly", Profile: "agent", Bill: bill}
		amount := budget.Amount{Requests: 3, Bytes: 4096, Tokens: tokens.Count{Input: 1200, Cached: 1024, Output: 300}, Micros: 12_500, Estimated: uint64(i)}
		for _, s := range []budget.Scope{budget.Sandbox, budget.Session} {
			rows = append(rows, spend.Row{Account: bill.Account(s, "gpt", at), Amount: amount, About: about, Updated: at})
		}
	}
	return rows[:3]
}
