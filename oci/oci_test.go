package oci

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	testID    = "abcdefghijklmnopqrstuvwx27"
	testState = "/run/caisson/sandboxes/" + testID
)

func ptr[T any](v T) *T { return &v }

// good is a Config that every check accepts.
func good() Config {
	return Config{
		ID: testID,
		Process: Process{
			Args: []string{InitMount + "/caisson-init"},
			Env:  []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home"},
			Cwd:  "/", UID: 1000, GID: 1000, AdditionalGIDs: []uint32{44},
		},
		StateDir:    testState,
		RootPath:    testState + "/rootfs",
		InitDir:     testState + "/init",
		DevDir:      testState + "/own/dev",
		NetNSPath:   testState + "/netns",
		UserNSPath:  testState + "/userns",
		IDMap:       IDMap{HostBase: 1879048192, Size: IDBlockSize},
		CgroupsPath: "/caisson/" + testID,
		Seccomp: &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, DefaultErrnoRet: ptr(uint(1)), Architectures: []specs.Arch{nativeArch()},
			Syscalls: []specs.LinuxSyscall{{Names: []string{"read", "write", "exit_group"}, Action: specs.ActAllow}},
		},
		Resources: &specs.LinuxResources{
			Memory:  &specs.LinuxMemory{Limit: ptr(int64(512 << 20)), Swap: ptr(int64(512 << 20))},
			CPU:     &specs.LinuxCPU{Quota: ptr(int64(100000)), Period: ptr(uint64(100000))},
			Pids:    &specs.LinuxPids{Limit: ptr(int64(256))},
			Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}, {Allow: true, Type: "c", Major: ptr(int64(1)), Minor: ptr(int64(3)), Access: "rw"}},
		},
		Rlimits:     Rlimits(RlimitValues{OpenFiles: 1024, OpenFilesMax: 4096, PIDs: 256}),
		OOMScoreAdj: 500, TmpfsBytes: 64 << 20, TmpfsInodes: 65536,
		Mounts:      []specs.Mount{{Destination: "/workspace", Source: testState + "/workspace", Options: []string{"rw", "exec"}}},
		Annotations: map[string]string{"caisson.managed": "true", "caisson.profile": "strict"},
	}
}

func TestBuildGolden(t *testing.T) {
	c := good()
	c.Seccomp.Architectures = []specs.Arch{specs.ArchX86_64} // whatever the test runs on
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "spec.golden.json", append(got, '\n'))
	golden(t, "mounts.golden.txt", []byte(strings.Join(MountLines(spec), "\n")+"\n"))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test -update rewrites it:\n%s", file, got)
	}
}

func TestBuildPassesVerify(t *testing.T) {
	spec, err := Build(good())
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(spec); err != nil {
		t.Error(err)
	}
}

// TestBuildSharesNothing: a caller that goes on using its Config must not
// change a specification that was already verified.
func TestBuildSharesNothing(t *testing.T) {
	c := good()
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(spec)
	c.Process.Args[0], c.Process.Env[0], c.Process.AdditionalGIDs[0] = "/bin/sh", "X=Y", 0
	c.Mounts[0].Options[0] = "suid"
	c.Rlimits[0].Hard = unlimited
	c.Annotations["x"] = "y"
	*c.Resources.Memory.Limit, *c.Resources.Memory.Swap = -1, -1
	*c.Resources.Pids.Limit, *c.Resources.CPU.Quota, *c.Resources.CPU.Period = -1, -1, 0
	*c.Resources.Devices[1].Major = 8
	c.Resources.Devices[0].Allow = true
	c.Seccomp.Architectures[0] = specs.ArchX86
	c.Seccomp.Syscalls[0].Names[0] = "mount"
	*c.Seccomp.DefaultErrnoRet = 0
	if after, _ := json.Marshal(spec); !bytes.Equal(before, after) {
		t.Errorf("the specification changed with the config:\n%s\n%s", before, after)
	}
}

func TestBuildRefuses(t *testing.T) {
	mount := func(m specs.Mount) func(*Config) {
		return func(c *Config) { c.Mounts = []specs.Mount{m} }
	}
	at := func(dest string, options ...string) func(*Config) {
		return mount(specs.Mount{Destination: dest, Source: testState + "/workspace", Options: options})
	}
	from := func(source string) func(*Config) {
		return mount(specs.Mount{Destination: "/workspace", Source: source})
	}
	for name, tc := range map[string]struct {
		break_ func(*Config)
		want   string
	}{
		"empty id":              {func(c *Config) { c.ID = "" }, "id"},
		"id with a dash":        {func(c *Config) { c.ID = "abcdefghijklmnopqrstuvwx-7" }, "id"},
		"id traverses":          {func(c *Config) { c.ID = "../../etc/passwd/../../abcd" }, "id"},
		"no arguments":          {func(c *Config) { c.Process.Args = nil }, "no arguments"},
		"program of the image":  {func(c *Config) { c.Process.Args = []string{"/bin/sh"} }, "pid 1"},
		"program climbs out":    {func(c *Config) { c.Process.Args = []string{InitMount + "/../x"} }, "pid 1"},
		"relative program":      {func(c *Config) { c.Process.Args = []string{"caisson-init"} }, "pid 1"},
		"nul in an argument":    {func(c *Config) { c.Process.Args = append(c.Process.Args, "a\x00b") }, "nul byte"},
		"relative cwd":          {func(c *Config) { c.Process.Cwd = "tmp" }, "working directory"},
		"empty cwd":             {func(c *Config) { c.Process.Cwd = "" }, "working directory"},
		"cwd in proc":           {func(c *Config) { c.Process.Cwd = "/proc/self/fd/7" }, "working directory"},
		"cwd climbs":            {func(c *Config) { c.Process.Cwd = "/tmp/../proc" }, "working directory"},
		"no home":               {func(c *Config) { c.Process.Env = c.Process.Env[:1] }, "lacks HOME"},
		"empty home":            {func(c *Config) { c.Process.Env[1] = "HOME=" }, "empty HOME"},
		"no path":               {func(c *Config) { c.Process.Env = c.Process.Env[1:] }, "lacks PATH"},
		"env twice":             {func(c *Config) { c.Process.Env = append(c.Process.Env, "HOME=/x") }, "twice"},
		"env without value":     {func(c *Config) { c.Process.Env = append(c.Process.Env, "X") }, "NAME=VALUE"},
		"env without name":      {func(c *Config) { c.Process.Env = append(c.Process.Env, "=X") }, "NAME=VALUE"},
		"env with nul":          {func(c *Config) { c.Process.Env = append(c.Process.Env, "X=a\x00b") }, "NAME=VALUE"},
		"uid 0":                 {func(c *Config) { c.Process.UID = 0 }, "uid 0"},
		"uid outside":           {func(c *Config) { c.Process.UID = 65535 }, "uid 65535"},
		"gid 0":                 {func(c *Config) { c.Process.GID = 0 }, "gid 0"},
		"group 0":               {func(c *Config) { c.Process.AdditionalGIDs = []uint32{0} }, "additional gid 0"},
		"group twice":           {func(c *Config) { c.Process.AdditionalGIDs = []uint32{5, 5} }, "twice"},
		"too many groups":       {func(c *Config) { c.Process.AdditionalGIDs = make([]uint32, 65) }, "65 additional"},
		"host ids":              {func(c *Config) { c.IDMap.HostBase = 0 }, "host id 0"},
		"ids of host users":     {func(c *Config) { c.IDMap.HostBase = 1000 }, "host id 1000"},
		"ids overflow":          {func(c *Config) { c.IDMap.HostBase = 1<<32 - 1 }, "host id"},
		"no id size":            {func(c *Config) { c.IDMap.Size = 0 }, "0 ids"},
		"large id block":        {func(c *Config) { c.IDMap.Size = 1 << 31 }, "ids, want"},
		"host network":          {func(c *Config) { c.NetNSPath = "" }, "network namespace"},
		"users of root":         {func(c *Config) { c.UserNSPath = "" }, "user namespace"},
		"host users":            {func(c *Config) { c.UserNSPath = "/proc/1/ns/user" }, "user namespace"},
		"one file for two":      {func(c *Config) { c.UserNSPath = c.NetNSPath }, "contain one another"},
		"foreign network":       {func(c *Config) { c.NetNSPath = "/proc/1/ns/net" }, "network namespace"},
		"no state":              {func(c *Config) { c.StateDir = "" }, "state directory"},
		"state of another":      {func(c *Config) { c.StateDir = "/run/caisson/sandboxes/other" }, "state directory"},
		"root elsewhere":        {func(c *Config) { c.RootPath = "/" }, "root \"/\""},
		"root climbs":           {func(c *Config) { c.RootPath = testState + "/../../.." }, "root"},
		"root is state":         {func(c *Config) { c.RootPath = testState }, "root"},
		"init elsewhere":        {func(c *Config) { c.InitDir = "/usr/lib/caisson" }, "init directory"},
		"init in the root":      {func(c *Config) { c.InitDir = c.RootPath + "/init" }, "contain one another"},
		"no cgroup":             {func(c *Config) { c.CgroupsPath = "" }, "cgroup path"},
		"cgroup without parent": {func(c *Config) { c.CgroupsPath = "/" + testID }, "cgroup path"},
		"cgroup of another":     {func(c *Config) { c.CgroupsPath = "/caisson/other" }, "cgroup path"},
		"relative cgroup":       {func(c *Config) { c.CgroupsPath = "caisson/" + testID }, "cgroup path"},
		"systemd cgroup":        {func(c *Config) { c.CgroupsPath = "/system.slice:x/" + testID }, "cgroup path"},
		"cgroup climbs":         {func(c *Config) { c.CgroupsPath = "/caisson/../" + testID }, "cgroup path"},
		"source elsewhere":      {from("/etc"), "source"},
		"source climbs":         {from(testState + "/../other/workspace"), "source"},
		"source of another":     {from(testState + "x/workspace"), "source"},
		"relative source":       {from("workspace"), "source"},
		"source is the root":    {from(testState + "/rootfs/etc"), "source"},
		"source is the netns":   {from(testState + "/netns"), "source"},
		"source is the init":    {from(testState + "/init"), "source"},
		"onto the root":         {at("/"), "destination"},
		"onto proc":             {at("/proc"), "destination"},
		"into proc":             {at("/proc/sys"), "destination"},
		"into sys":              {at("/sys/fs/cgroup"), "destination"},
		"into dev":              {at("/dev/shm/x"), "destination"},
		"onto init":             {at(InitMount), "destination"},
		"into init":             {at(InitMount + "/x"), "destination"},
		"above init":            {at("/run"), "destination"},
		"onto tmp":              {at("/tmp"), "overlaps"},
		"above tmp":             {at("/var"), "overlaps"},
		"destination climbs":    {at("/workspace/../proc"), "destination"},
		"relative destination":  {at("workspace"), "destination"},
		"suid option":           {at("/workspace", "suid"), "option \"suid\""},
		"dev option":            {at("/workspace", "dev"), "option \"dev\""},
		"shared option":         {at("/workspace", "rshared"), "option \"rshared\""},
		"recursive option":      {at("/workspace", "rbind"), "option \"rbind\""},
		"data option":           {at("/workspace", "size=1"), "option \"size=1\""},
		"type":                  {mount(specs.Mount{Destination: "/w", Source: testState + "/w", Type: "overlay"}), "type"},
		"id mapped by runtime":  {mount(specs.Mount{Destination: "/w", Source: testState + "/w", UIDMappings: []specs.LinuxIDMapping{{}}}), "id mappings"},
		"mount twice":           {func(c *Config) { c.Mounts = append(c.Mounts, c.Mounts[0]) }, "another mount"},
		"mount over a mount": {func(c *Config) {
			c.Mounts = append(c.Mounts, specs.Mount{Destination: "/data/x", Source: testState + "/x"}, specs.Mount{Destination: "/data", Source: testState + "/y"})
		}, "another mount"},
		"mount in a tmpfs": {func(c *Config) {
			c.Mounts = append(c.Mounts, specs.Mount{Destination: "/data", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=4096"}}, specs.Mount{Destination: "/data/x", Source: testState + "/x"})
		}, "another mount"},
		"tmpfs of no size":        {mount(specs.Mount{Destination: "/w", Source: "tmpfs", Type: "tmpfs", Options: []string{"size=0"}}), "size"},
		"tmpfs for set-id":        {mount(specs.Mount{Destination: "/w", Source: "tmpfs", Type: "tmpfs", Options: []string{"size=4096", "suid"}}), "size"},
		"tmpfs of elsewhere":      {mount(specs.Mount{Destination: "/w", Source: "/dev/sda", Type: "tmpfs", Options: []string{"size=4096"}}), "not tmpfs"},
		"no seccomp":              {func(c *Config) { c.Seccomp = nil }, "seccomp filter is missing"},
		"seccomp allows":          {func(c *Config) { c.Seccomp.DefaultAction = specs.ActAllow }, "default action"},
		"seccomp logs":            {func(c *Config) { c.Seccomp.DefaultAction = specs.ActLog }, "default action"},
		"seccomp without arch":    {func(c *Config) { c.Seccomp.Architectures = nil }, "architectures"},
		"seccomp with x86":        {func(c *Config) { c.Seccomp.Architectures = append(c.Seccomp.Architectures, specs.ArchX86) }, "architectures"},
		"seccomp listener":        {func(c *Config) { c.Seccomp.ListenerPath = "/run/x.sock" }, "listener"},
		"seccomp notifies":        {func(c *Config) { c.Seccomp.Syscalls[0].Action = specs.ActNotify }, "SCMP_ACT_NOTIFY"},
		"seccomp speculates":      {func(c *Config) { c.Seccomp.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagSpecAllow} }, "speculative"},
		"no resources":            {func(c *Config) { c.Resources = nil }, "resources are missing"},
		"no memory limit":         {func(c *Config) { c.Resources.Memory.Limit = nil }, "memory limit"},
		"memory unlimited":        {func(c *Config) { c.Resources.Memory.Limit = ptr(int64(-1)) }, "memory limit"},
		"no pids":                 {func(c *Config) { c.Resources.Pids = nil }, "process limit"},
		"pids unlimited":          {func(c *Config) { c.Resources.Pids.Limit = ptr(int64(0)) }, "process limit"},
		"no cpu":                  {func(c *Config) { c.Resources.CPU = nil }, "cpu quota"},
		"no period":               {func(c *Config) { c.Resources.CPU.Period = nil }, "cpu quota"},
		"devices allowed":         {func(c *Config) { c.Resources.Devices[0].Allow = true }, "device rules"},
		"no device rules":         {func(c *Config) { c.Resources.Devices = nil }, "device rules"},
		"no rlimits":              {func(c *Config) { c.Rlimits = nil }, "RLIMIT_NOFILE is missing"},
		"rlimit unlimited":        {func(c *Config) { c.Rlimits[0].Hard = unlimited }, "unlimited"},
		"rlimit inverted":         {func(c *Config) { c.Rlimits[0].Soft = 2 }, "above the hard"},
		"core files":              {func(c *Config) { c.Rlimits[0].Hard = 4096 }, "above its fixed"},
		"rlimit twice":            {func(c *Config) { c.Rlimits = append(c.Rlimits, c.Rlimits[0]) }, "twice"},
		"rlimit unknown":          {func(c *Config) { c.Rlimits[0].Type = "RLIMIT_X" }, "not one of"},
		"oom exempt":              {func(c *Config) { c.OOMScoreAdj = -1000 }, "oom score"},
		"oom neutral":             {func(c *Config) { c.OOMScoreAdj = 0 }, "oom score"},
		"oom past the scale":      {func(c *Config) { c.OOMScoreAdj = 1001 }, "oom score"},
		"no tmpfs size":           {func(c *Config) { c.TmpfsBytes = 0 }, "tmpfs size"},
		"no tmpfs inodes":         {func(c *Config) { c.TmpfsInodes = 0 }, "inodes"},
		"runc annotation":         {func(c *Config) { c.Annotations["org.systemd.property.X"] = "1" }, "not one of ours"},
		"crun annotation":         {func(c *Config) { c.Annotations["run.oci.handler"] = "krun" }, "not one of ours"},
		"gvisor annotation":       {func(c *Config) { c.Annotations["dev.gvisor.flag.x"] = "1" }, "not one of ours"},
		"cdi annotation":          {func(c *Config) { c.Annotations["cdi.k8s.io/x"] = "y" }, "not one of ours"},
		"restart annotation":      {func(c *Config) { c.Annotations["containerd.io/restart.loguri"] = "binary:///x" }, "not one of ours"},
		"annotation with newline": {func(c *Config) { c.Annotations["caisson.task"] = "a\nb" }, "printable"},
		"annotation too long":     {func(c *Config) { c.Annotations["caisson.task"] = strings.Repeat("a", 257) }, "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good()
			tc.break_(&c)
			_, err := Build(c)
			if sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s with %q", err, sbxerr.Config, tc.want)
			}
		})
	}
}

// TestBuildReportsAll: agents retry, so one refusal must hold every reason.
func TestBuildReportsAll(t *testing.T) {
	_, err := Build(Config{})
	for _, want := range []string{"id ", "process", "HOME", "uid", "gid", "state", "cgroup", "seccomp", "memory", "rlimit", "oom", "tmpfs", "resources"} {
		if want == "memory" {
			continue // resources as a whole are missing
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestCallerMountStartsStrict(t *testing.T) {
	for _, tc := range []struct {
		asked []string
		want  string
	}{
		{nil, "bind nosuid nodev rprivate ro noexec"},
		{[]string{"rw"}, "bind nosuid nodev rprivate rw noexec"},
		{[]string{"rw", "exec"}, "bind nosuid nodev rprivate rw"},
		{[]string{"rw", "ro", "exec", "noexec"}, "bind nosuid nodev rprivate ro noexec"},
		{[]string{"rro", "rw", "bind", "nosuid"}, "bind nosuid nodev rprivate rro noexec"},
	} {
		if got := strings.Join(callerBind(tc.asked), " "); got != tc.want {
			t.Errorf("callerBind(%v) = %s, want %s", tc.asked, got, tc.want)
		}
	}
}

// TestReasons: an entry that nobody can justify is one that nobody can remove.
func TestReasons(t *testing.T) {
	for _, b := range baseMounts {
		if b.why == "" {
			t.Errorf("mount on %s has no reason", b.destination)
		}
	}
	for _, r := range rlimitRules {
		if r.why == "" {
			t.Errorf("%s has no reason", r.name)
		}
	}
}

func TestClampRlimits(t *testing.T) {
	limit := func(name string, soft, hard uint64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: name, Soft: soft, Hard: hard}
	}
	want := []specs.POSIXRlimit{limit("A", 10, 40), limit("B", 10, 40), limit("C", 10, 40), limit("D", 10, 40)}
	have := []specs.POSIXRlimit{limit("A", 0, unlimited), limit("B", 1, 20), limit("C", 0, 5)}
	got, warnings := ClampRlimits(want, have)
	if wantGot := []specs.POSIXRlimit{limit("A", 10, 40), limit("B", 10, 20), limit("C", 5, 5), limit("D", 10, 40)}; !slices.Equal(got, wantGot) {
		t.Errorf("got %v, want %v", got, wantGot)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "B is 20 instead of 40") || !strings.Contains(warnings[1], "C is 5") {
		t.Errorf("warnings %q", warnings)
	}
	if want[1].Hard != 40 {
		t.Error("the wanted limits were changed")
	}
}

// TestProcessRlimitAbovePIDs: the cgroup must refuse first, since only it
// counts what it refused.
func TestProcessRlimitAbovePIDs(t *testing.T) {
	for _, l := range Rlimits(RlimitValues{OpenFiles: 1, OpenFilesMax: 2, PIDs: 100}) {
		if l.Type == "RLIMIT_NPROC" && l.Soft <= 100 {
			t.Errorf("RLIMIT_NPROC %d fires before the process limit", l.Soft)
		}
	}
}

func TestMountLinesOfNothing(t *testing.T) {
	if got := MountLines(nil); got != nil {
		t.Errorf("got %q", got)
	}
	got := MountLines(&specs.Spec{Root: &specs.Root{Path: "/r"}, Mounts: []specs.Mount{{Destination: "/w", Source: "/s", Type: "bind", Options: []string{"rw"}}}})
	if want := "/w  /s  rw"; len(got) != 2 || got[1] != want || !strings.HasPrefix(got[0], "/  /r  rw") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnnotationKeysAreOurs(t *testing.T) {
	c := good()
	c.Annotations = map[string]string{}
	for _, key := range AnnotationKeys {
		c.Annotations[key] = "x"
	}
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(spec.Annotations, c.Annotations) {
		t.Errorf("annotations %v", spec.Annotations)
	}
	if err := Verify(spec); err != nil {
		t.Error(err)
	}
}

func TestConfigFieldsAreChecked(t *testing.T) {
	// A field that is added later must be looked at here: each zero value but
	// the optional ones has to be refused.
	optional := []string{"Hostname", "Allowed", "ShmBytes", "HomeDir", "Mounts", "Annotations"}
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		c := good()
		reflect.ValueOf(&c).Elem().Field(i).SetZero()
		_, err := Build(c)
		if want := !slices.Contains(optional, name); (err != nil) != want {
			t.Errorf("zero %s: error %v, want one: %v", name, err, want)
		}
	}
}

func TestMaxPIDs(t *testing.T) {
	if got := MaxPIDs(Rlimits(RlimitValues{OpenFiles: 1, OpenFilesMax: 1, PIDs: 256})); got != 256 {
		t.Errorf("as made: %d", got)
	}
	for _, have := range [][]specs.POSIXRlimit{nil, {{Type: "RLIMIT_NPROC", Soft: 10, Hard: 10}}} {
		if got := MaxPIDs(have); got != 0 {
			t.Errorf("%v: %d", have, got)
		}
	}
}

// TestRuntimeMounts: the OCI runtime gets no mount whose target lies among files that others
// can change (CVE-2021-30465), and all others.
func TestRuntimeMounts(t *testing.T) {
	c := good()
	c.Mounts = append(c.Mounts,
		specs.Mount{Destination: "/workspace/.git", Source: testState + "/mounts/0", Options: []string{"ro"}},
		specs.Mount{Destination: "/workspace/build", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=65536"}},
		specs.Mount{Destination: "/workspace2", Source: testState + "/mounts/2", Options: []string{"ro"}})
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(spec); err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, m := range spec.Mounts {
		if !slices.ContainsFunc(RuntimeMounts(spec), func(r specs.Mount) bool { return r.Destination == m.Destination }) {
			missing = append(missing, m.Destination)
		}
	}
	if !slices.Equal(missing, []string{"/workspace/.git", "/workspace/build"}) {
		t.Errorf("left to the daemon: %q", missing)
	}
}

func TestHomeDir(t *testing.T) {
	c := good()
	c.HomeDir = c.StateDir + "/homes/0"
	c.Mounts = append(c.Mounts, specs.Mount{Destination: "/home/a/.cache", Source: c.StateDir + "/mounts/0", Options: []string{"rw"}})
	spec, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(spec); err != nil {
		t.Error(err)
	}
	i := slices.IndexFunc(spec.Mounts, func(m specs.Mount) bool { return m.Destination == HomeMount })
	if m := spec.Mounts[i]; m.Type != "bind" || m.Source != c.HomeDir || !slices.Contains(m.Options, "rw") || slices.Contains(m.Options, "noexec") {
		t.Errorf("%+v", m)
	}
	// The runtime makes no mount among the image's files.
	if made := RuntimeMounts(spec); slices.ContainsFunc(made, func(m specs.Mount) bool { return m.Destination == "/home/a/.cache" }) {
		t.Errorf("%+v", made)
	}
	spec.Mounts[i].Source = c.StateDir + "/workspace"
	if err := Verify(spec); err == nil || !strings.Contains(err.Error(), "home directories") {
		t.Errorf("another directory on /home: %v", err)
	}
	c.HomeDir = "/home"
	if _, err := Build(c); err == nil {
		t.Error("the host's /home was taken")
	}
}
