package oci

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// goodSpec is a specification that breaks no rule, as read from the golden file:
// what Verify accepts must not hang on what Build makes.
func goodSpec(t testing.TB) *specs.Spec {
	t.Helper()
	data, err := os.ReadFile("testdata/spec.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	spec := new(specs.Spec)
	if err := json.Unmarshal(data, spec); err != nil {
		t.Fatal(err)
	}
	spec.Linux.Seccomp.Architectures = []specs.Arch{nativeArch()}
	return spec
}

func TestVerifyAcceptsGolden(t *testing.T) {
	spec := goodSpec(t)
	if err := Verify(spec); err != nil {
		t.Error(err)
	}
	throttled(func(*specs.LinuxBlockIO) {})(spec)
	if err := Verify(spec); err != nil {
		t.Errorf("with rates of block I/O: %v", err)
	}
}

// throttled gives a specification rates of block I/O that are allowed, and changes them.
func throttled(change func(*specs.LinuxBlockIO)) func(*specs.Spec) {
	return func(s *specs.Spec) {
		rate := func() []specs.LinuxThrottleDevice {
			d := specs.LinuxThrottleDevice{Rate: 65536}
			d.Major = 8
			return []specs.LinuxThrottleDevice{d}
		}
		s.Linux.Resources.BlockIO = &specs.LinuxBlockIO{ThrottleReadBpsDevice: rate(), ThrottleWriteBpsDevice: rate()}
		change(s.Linux.Resources.BlockIO)
	}
}

func TestVerifyRefuses(t *testing.T) {
	mount := func(dest string, change func(*specs.Mount)) func(*specs.Spec) {
		return func(s *specs.Spec) {
			i := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == dest })
			change(&s.Mounts[i])
		}
	}
	without := func(dest, option string) func(*specs.Spec) {
		return mount(dest, func(m *specs.Mount) {
			m.Options = slices.DeleteFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, option) })
		})
	}
	with := func(dest string, options ...string) func(*specs.Spec) {
		return mount(dest, func(m *specs.Mount) { m.Options = append(m.Options, options...) })
	}
	add := func(m specs.Mount) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Mounts = append(s.Mounts, m) }
	}
	safe := []string{"bind", "nosuid", "nodev", "rprivate", "ro"}
	for name, tc := range map[string]struct {
		change func(*specs.Spec)
		want   string
	}{
		"no process":           {func(s *specs.Spec) { s.Process = nil }, "lacks"},
		"no root":              {func(s *specs.Spec) { s.Root = nil }, "lacks"},
		"no linux":             {func(s *specs.Spec) { s.Linux = nil }, "lacks"},
		"hook":                 {func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/x"}}} }, "Hooks"},
		"domain name":          {func(s *specs.Spec) { s.Domainname = "x" }, "Domainname"},
		"vm":                   {func(s *specs.Spec) { s.VM = &specs.VM{} }, "VM"},
		"terminal":             {func(s *specs.Spec) { s.Process.Terminal = true }, "Terminal"},
		"scheduler":            {func(s *specs.Spec) { s.Process.Scheduler = &specs.Scheduler{} }, "Scheduler"},
		"io priority":          {func(s *specs.Spec) { s.Process.IOPriority = &specs.LinuxIOPriority{} }, "IOPriority"},
		"user name":            {func(s *specs.Spec) { s.Process.User.Username = "root" }, "Username"},
		"device":               {func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/kvm"}} }, "Devices"},
		"network device":       {func(s *specs.Spec) { s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth0": {}} }, "NetDevices"},
		"sysctl":               {func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"kernel.shm_rmid_forced": "1+x"} }, "Sysctl"},
		"rdt":                  {func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{} }, "IntelRdt"},
		"personality":          {func(s *specs.Spec) { s.Linux.Personality = &specs.LinuxPersonality{} }, "Personality"},
		"time offsets":         {func(s *specs.Spec) { s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"monotonic": {Secs: 1}} }, "TimeOffsets"},
		"net class":            {func(s *specs.Spec) { s.Linux.Resources.Network = &specs.LinuxNetwork{} }, "Network"},
		"block i/o weight":     {throttled(func(b *specs.LinuxBlockIO) { b.Weight = new(uint16) }), "block I/O sets Weight"},
		"block i/o operations": {throttled(func(b *specs.LinuxBlockIO) { b.ThrottleReadIOPSDevice = b.ThrottleReadBpsDevice }), "ThrottleReadIOPSDevice"},
		"anonymous device":     {throttled(func(b *specs.LinuxBlockIO) { b.ThrottleReadBpsDevice[0].Major = 0 }), "names no disk"},
		"negative device":      {throttled(func(b *specs.LinuxBlockIO) { b.ThrottleReadBpsDevice[0].Minor = -1 }), "names no disk"},
		"disk named twice": {throttled(func(b *specs.LinuxBlockIO) {
			b.ThrottleReadBpsDevice = append(b.ThrottleReadBpsDevice, b.ThrottleReadBpsDevice...)
		}), "twice"},
		"stalled reads":          {throttled(func(b *specs.LinuxBlockIO) { b.ThrottleReadBpsDevice[0].Rate = 65535 }), "fewer than 64K"},
		"stalled writes":         {throttled(func(b *specs.LinuxBlockIO) { b.ThrottleWriteBpsDevice[0].Rate = 0 }), "fewer than 64K"},
		"listener":               {func(s *specs.Spec) { s.Linux.Seccomp.ListenerPath = "/x" }, "ListenerPath"},
		"program of the image":   {func(s *specs.Spec) { s.Process.Args[0] = "/bin/sh" }, "pid 1"},
		"program climbs":         {func(s *specs.Spec) { s.Process.Args[0] = "/run/caisson/../x" }, "pid 1"},
		"no program":             {func(s *specs.Spec) { s.Process.Args = nil }, "pid 1"},
		"cwd in proc":            {func(s *specs.Spec) { s.Process.Cwd = "/proc/self/fd/7" }, "working directory"},
		"relative cwd":           {func(s *specs.Spec) { s.Process.Cwd = "x" }, "working directory"},
		"new privileges":         {func(s *specs.Spec) { s.Process.NoNewPrivileges = false }, "new privileges"},
		"no oom score":           {func(s *specs.Spec) { s.Process.OOMScoreAdj = nil }, "oom score"},
		"oom exempt":             {func(s *specs.Spec) { *s.Process.OOMScoreAdj = -1 }, "oom score"},
		"no home":                {func(s *specs.Spec) { s.Process.Env = s.Process.Env[:1] }, "HOME"},
		"root user":              {func(s *specs.Spec) { s.Process.User.UID = 0 }, "is root"},
		"root group":             {func(s *specs.Spec) { s.Process.User.AdditionalGids = []uint32{0} }, "is root"},
		"no umask":               {func(s *specs.Spec) { s.Process.User.Umask = nil }, "umask"},
		"open umask":             {func(s *specs.Spec) { *s.Process.User.Umask = 0o020 }, "umask"},
		"no capability object":   {func(s *specs.Spec) { s.Process.Capabilities = nil }, "absent"},
		"bounding":               {func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_CHOWN"} }, "Bounding"},
		"effective":              {func(s *specs.Spec) { s.Process.Capabilities.Effective = []string{"CAP_CHOWN"} }, "Effective"},
		"inheritable":            {func(s *specs.Spec) { s.Process.Capabilities.Inheritable = []string{"CAP_CHOWN"} }, "Inheritable"},
		"permitted":              {func(s *specs.Spec) { s.Process.Capabilities.Permitted = []string{"CAP_CHOWN"} }, "Permitted"},
		"ambient":                {func(s *specs.Spec) { s.Process.Capabilities.Ambient = []string{"CAP_CHOWN"} }, "Ambient"},
		"no rlimits":             {func(s *specs.Spec) { s.Process.Rlimits = nil }, "NOFILE is missing"},
		"infinite rlimit":        {func(s *specs.Spec) { s.Process.Rlimits[1].Hard = unlimited }, "infinite"},
		"core files":             {func(s *specs.Spec) { s.Process.Rlimits[0].Hard = 4096 }, "core files"},
		"rlimit twice":           {func(s *specs.Spec) { s.Process.Rlimits = append(s.Process.Rlimits, s.Process.Rlimits[0]) }, "repeated"},
		"writable root":          {func(s *specs.Spec) { s.Root.Readonly = false }, "can be written"},
		"root of the host":       {func(s *specs.Spec) { s.Root.Path = "/" }, "root"},
		"root at the top":        {func(s *specs.Spec) { s.Root.Path = "/rootfs" }, "root"},
		"relative root":          {func(s *specs.Spec) { s.Root.Path = "rootfs" }, "root"},
		"shared root":            {func(s *specs.Spec) { s.Linux.RootfsPropagation = "rshared" }, "propagation"},
		"slave root":             {func(s *specs.Spec) { s.Linux.RootfsPropagation = "" }, "propagation"},
		"host name of two lines": {func(s *specs.Spec) { s.Hostname = "host\n10.0.0.1 github.com" }, "host name"},
		"host name with a dot":   {func(s *specs.Spec) { s.Hostname = "github.com" }, "host name"},
		"host name with a dash":  {func(s *specs.Spec) { s.Hostname = "-host" }, "host name"},
		"long host name":         {func(s *specs.Spec) { s.Hostname = strings.Repeat("a", 64) }, "host name"},
		"no host name":           {func(s *specs.Spec) { s.Hostname = "" }, "host name"},
		"host pids":              {func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, "pid is the host's"},
		"joined user namespace":  {func(s *specs.Spec) { s.Linux.Namespaces[5].Path = "/proc/1/ns/user" }, "user namespace"},
		"users of the runtime":   {func(s *specs.Spec) { s.Linux.Namespaces[5].Path = "" }, "user namespace"},
		"joined pid namespace":   {func(s *specs.Spec) { s.Linux.Namespaces[0].Path = "/proc/1/ns/pid" }, "existing one"},
		"network of the runtime": {func(s *specs.Spec) { s.Linux.Namespaces[6].Path = "" }, "network namespace"},
		"network of another":     {func(s *specs.Spec) { s.Linux.Namespaces[6].Path = "/run/netns/x" }, "network namespace"},
		"namespace twice":        {func(s *specs.Spec) { s.Linux.Namespaces = append(s.Linux.Namespaces, s.Linux.Namespaces[0]) }, "named twice"},
		"time namespace": {func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "time"})
		}, "more namespaces"},
		"no id map":        {func(s *specs.Spec) { s.Linux.UIDMappings = nil }, "id map"},
		"host root":        {func(s *specs.Spec) { s.Linux.UIDMappings[0].HostID = 0 }, "ids of the host"},
		"host users":       {func(s *specs.Spec) { s.Linux.GIDMappings[0].HostID = 60000 }, "ids of the host"},
		"ids wrap":         {func(s *specs.Spec) { s.Linux.UIDMappings[0].Size = 1<<32 - 1 }, "ids of the host"},
		"second range":     {func(s *specs.Spec) { s.Linux.UIDMappings = append(s.Linux.UIDMappings, specs.LinuxIDMapping{Size: 1}) }, "2 ranges"},
		"maps differ":      {func(s *specs.Spec) { s.Linux.GIDMappings[0].HostID += 65536 }, "differently"},
		"kcore shows":      {func(s *specs.Spec) { s.Linux.MaskedPaths = remove(s.Linux.MaskedPaths, "/proc/kcore") }, "/proc/kcore is not masked"},
		"triggers":         {func(s *specs.Spec) { s.Linux.MaskedPaths = remove(s.Linux.MaskedPaths, "/proc/pressure") }, "/proc/pressure is not masked"},
		"locks show":       {func(s *specs.Spec) { s.Linux.MaskedPaths = remove(s.Linux.MaskedPaths, "/proc/locks") }, "/proc/locks is not masked"},
		"interrupts show":  {func(s *specs.Spec) { s.Linux.MaskedPaths = remove(s.Linux.MaskedPaths, "/proc/interrupts") }, "/proc/interrupts"},
		"writable sysctls": {func(s *specs.Spec) { s.Linux.ReadonlyPaths = remove(s.Linux.ReadonlyPaths, "/proc/sys") }, "/proc/sys is not"},
		"no filter":        {func(s *specs.Spec) { s.Linux.Seccomp = nil }, "no seccomp"},
		"filter allows":    {func(s *specs.Spec) { s.Linux.Seccomp.DefaultAction = specs.ActAllow }, "unknown system calls"},
		"filter for all":   {func(s *specs.Spec) { s.Linux.Seccomp.Architectures = nil }, "architectures"},
		"filter for 32 bit": {func(s *specs.Spec) {
			s.Linux.Seccomp.Architectures = append(s.Linux.Seccomp.Architectures, specs.ArchX86)
		}, "architectures"},
		"filter without flags":    {func(s *specs.Spec) { s.Linux.Seccomp.Flags = nil }, "speculative"},
		"filter speculates":       {func(s *specs.Spec) { s.Linux.Seccomp.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagSpecAllow} }, "speculative"},
		"filter notifies":         {func(s *specs.Spec) { s.Linux.Seccomp.Syscalls[0].Action = specs.ActNotify }, "SCMP_ACT_NOTIFY"},
		"filter allows mount":     {func(s *specs.Spec) { s.Linux.Seccomp.Syscalls[0].Names[0] = "mount" }, "allows mount"},
		"filter allows io_uring":  {func(s *specs.Spec) { s.Linux.Seccomp.Syscalls[0].Names[0] = "io_uring_setup" }, "allows io_uring_setup"},
		"cgroup of another":       {func(s *specs.Spec) { s.Linux.CgroupsPath = "/caisson/other" }, "cgroup"},
		"cgroup at the top":       {func(s *specs.Spec) { s.Linux.CgroupsPath = "/" + testID }, "cgroup"},
		"no cgroup":               {func(s *specs.Spec) { s.Linux.CgroupsPath = "" }, "cgroup"},
		"no resources":            {func(s *specs.Spec) { s.Linux.Resources = nil }, "no resource limits"},
		"no memory limit":         {func(s *specs.Spec) { s.Linux.Resources.Memory = nil }, "memory is not limited"},
		"swap":                    {func(s *specs.Spec) { *s.Linux.Resources.Memory.Swap *= 2 }, "can swap"},
		"unlimited swap":          {func(s *specs.Spec) { *s.Linux.Resources.Memory.Swap = -1 }, "can swap"},
		"oom killer off":          {func(s *specs.Spec) { s.Linux.Resources.Memory.DisableOOMKiller = ptr(true) }, "oom killer"},
		"no process limit":        {func(s *specs.Spec) { s.Linux.Resources.Pids = nil }, "processes are not limited"},
		"no cpu limit":            {func(s *specs.Spec) { s.Linux.Resources.CPU.Quota = nil }, "cpu time"},
		"realtime":                {func(s *specs.Spec) { s.Linux.Resources.CPU.RealtimeRuntime = ptr(int64(1)) }, "cpu time"},
		"huge pages":              {func(s *specs.Spec) { s.Linux.Resources.HugepageLimits = []specs.LinuxHugepageLimit{{Limit: 1}} }, "huge pages"},
		"raw memory limit":        {func(s *specs.Spec) { s.Linux.Resources.Unified = map[string]string{"memory.max": "max"} }, "memory.max"},
		"ends whole":              {func(s *specs.Spec) { s.Linux.Resources.Unified = map[string]string{"memory.oom.group": "1"} }, "memory.oom.group"},
		"raw swap":                {func(s *specs.Spec) { s.Linux.Resources.Unified = map[string]string{"memory.swap.max": "max"} }, "memory.swap.max"},
		"devices allowed":         {func(s *specs.Spec) { s.Linux.Resources.Devices[0].Allow = true }, "deny all"},
		"no device rules":         {func(s *specs.Spec) { s.Linux.Resources.Devices = nil }, "devices are not limited"},
		"disk":                    {func(s *specs.Spec) { *s.Linux.Resources.Devices[1].Major = 8 }, "c 8:3"},
		"block device":            {func(s *specs.Spec) { s.Linux.Resources.Devices[1].Type = "b" }, "b 1:3"},
		"any minor":               {func(s *specs.Spec) { s.Linux.Resources.Devices[1].Minor = nil }, "c 1:*"},
		"annotation":              {func(s *specs.Spec) { s.Annotations["run.oci.handler"] = "x" }, "annotation"},
		"sysfs":                   {add(specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs"}), "type \"sysfs\""},
		"cgroup mount":            {add(specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"}), "type \"cgroup\""},
		"overlay":                 {add(specs.Mount{Destination: "/x", Type: "overlay", Source: "overlay"}), "type \"overlay\""},
		"second proc":             {add(specs.Mount{Destination: "/x", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}}), "no place"},
		"tmpfs elsewhere":         {add(specs.Mount{Destination: "/etc", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "size=1k", "nr_inodes=1", "mode=755"}}), "no place"},
		"host directory":          {add(specs.Mount{Destination: "/x", Type: "bind", Source: "/etc", Options: safe}), "not the sandbox's own"},
		"directory of another":    {add(specs.Mount{Destination: "/x", Type: "bind", Source: testState + "/../other", Options: safe}), "not the sandbox's own"},
		"the root again":          {add(specs.Mount{Destination: "/x", Type: "bind", Source: testState + "/rootfs", Options: safe}), "not the sandbox's own"},
		"bind over proc":          {add(specs.Mount{Destination: "/proc/sys", Type: "bind", Source: testState + "/x", Options: safe}), "covers /proc"},
		"bind over the root":      {add(specs.Mount{Destination: "/", Type: "bind", Source: testState + "/x", Options: safe}), "clean and absolute"},
		"bind over tmp":           {add(specs.Mount{Destination: "/tmp", Type: "bind", Source: testState + "/x", Options: safe}), "hides"},
		"bind over run":           {add(specs.Mount{Destination: "/run", Type: "bind", Source: testState + "/x", Options: safe}), "hides"},
		"bind in init":            {add(specs.Mount{Destination: "/run/caisson/x", Type: "bind", Source: testState + "/x", Options: safe}), "lies inside"},
		"host bind in workspace":  {add(specs.Mount{Destination: "/workspace/.git", Type: "bind", Source: "/etc", Options: safe}), "not the sandbox's own"},
		"tmpfs of no size":        {add(specs.Mount{Destination: "/x", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "nr_inodes=1", "mode=1777"}}), "set size"},
		"tmpfs with set-id":       {add(specs.Mount{Destination: "/x", Type: "tmpfs", Source: "tmpfs", Options: []string{"nodev", "size=4096", "nr_inodes=1", "mode=1777"}}), "lacks nosuid"},
		"neither ro nor rw":       {add(specs.Mount{Destination: "/x", Type: "bind", Source: testState + "/x", Options: safe[:4]}), "not clearly"},
		"mapped ids":              {mount("/workspace", func(m *specs.Mount) { m.UIDMappings = []specs.LinuxIDMapping{{}} }), "maps ids"},
		"init can be written":     {mount("/run/caisson", func(m *specs.Mount) { m.Options = append(safe[:4:4], "rw") }), "could be replaced"},
		"workspace recursive":     {with("/workspace", "rbind"), "option rbind"},
		"workspace shared":        {with("/workspace", "rshared"), "option rshared"},
		"workspace with set-id":   {with("/workspace", "suid"), "option suid"},
		"workspace with devices":  {without("/workspace", "nodev"), "lacks nodev"},
		"workspace not private":   {without("/workspace", "rprivate"), "lacks rprivate"},
		"devices of the host":     {mount("/dev", func(m *specs.Mount) { m.Source = "/dev" }), "not the sandbox's own"},
		"devices of elsewhere":    {mount("/dev", func(m *specs.Mount) { m.Source = testState + "/x" }), "directory of devices"},
		"devices in a workspace":  {mount("/workspace", func(m *specs.Mount) { m.Source = testState + "/own/dev" }), "directory of devices"},
		"devices can be written":  {mount("/dev", func(m *specs.Mount) { m.Options = append(m.Options[:4:4], "rw") }), "lacks ro"},
		"executable dev":          {without("/dev", "noexec"), "lacks noexec"},
		"dev with set-id":         {without("/dev", "nosuid"), "lacks nosuid"},
		"tmp with set-id":         {without("/tmp", "nosuid"), "lacks nosuid"},
		"tmp without size":        {without("/tmp", "size="), "set size"},
		"tmp without inodes":      {without("/tmp", "nr_inodes="), "set nr_inodes"},
		"tmp without end":         {with("/tmp", "size=0"), "set size"},
		"tmp copies":              {with("/tmp", "tmpcopyup"), "option tmpcopyup"},
		"executable run":          {without("/run", "noexec"), "lacks noexec"},
		"executable run, by name": {with("/run", "exec"), "option exec"},
		"executable shm":          {without("/dev/shm", "noexec"), "lacks noexec"},
		"executable proc":         {without("/proc", "noexec"), "lacks noexec"},
		"shared terminals":        {without("/dev/pts", "newinstance"), "lacks newinstance"},
		"endless terminals":       {without("/dev/pts", "max="), "set max"},
		"no proc":                 {func(s *specs.Spec) { s.Mounts = s.Mounts[1:] }, "nothing is mounted on /proc"},
	} {
		t.Run(name, func(t *testing.T) {
			s := goodSpec(t)
			tc.change(s)
			err := Verify(s)
			if sbxerr.Of(err) != sbxerr.Config || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	if err := Verify(nil); sbxerr.Of(err) != sbxerr.Config {
		t.Errorf("no specification: %v", err)
	}
}

func remove(paths []string, p string) []string {
	return slices.DeleteFunc(paths, func(q string) bool { return q == p })
}

// TestVerifyKnowsEveryField: each field of the specification is set in turn. It
// is refused, or it is one that a sandbox has.
func TestVerifyKnowsEveryField(t *testing.T) {
	used := map[string]string{
		"Spec":           "Version Process Root Hostname Mounts Annotations Linux",
		"Process":        "User Args Env Cwd Capabilities Rlimits NoNewPrivileges OOMScoreAdj ApparmorProfile SelinuxLabel",
		"User":           "UID GID Umask AdditionalGids",
		"Linux":          "UIDMappings GIDMappings Resources CgroupsPath Namespaces Seccomp RootfsPropagation MaskedPaths ReadonlyPaths MountLabel",
		"LinuxResources": "Devices Memory CPU Pids BlockIO HugepageLimits Rdma Unified",
		"LinuxSeccomp":   "DefaultAction DefaultErrnoRet Architectures Flags Syscalls",
	}
	for _, part := range []func(*specs.Spec) reflect.Value{
		func(s *specs.Spec) reflect.Value { return reflect.ValueOf(s).Elem() },
		func(s *specs.Spec) reflect.Value { return reflect.ValueOf(s.Process).Elem() },
		func(s *specs.Spec) reflect.Value { return reflect.ValueOf(&s.Process.User).Elem() },
		func(s *specs.Spec) reflect.Value { return reflect.ValueOf(s.Linux).Elem() },
		func(s *specs.Spec) reflect.Value { return reflect.ValueOf(s.Linux.Resources).Elem() },
		func(s *specs.Spec) reflect.Value { return reflect.ValueOf(s.Linux.Seccomp).Elem() },
	} {
		kind := part(goodSpec(t)).Type()
		for i := range kind.NumField() {
			name := kind.Field(i).Name
			if slices.Contains(strings.Fields(used[kind.Name()]), name) {
				continue
			}
			s := goodSpec(t)
			set(part(s).Field(i))
			if err := Verify(s); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s.%s is not refused: %v", kind.Name(), name, err)
			}
		}
	}
}

// set gives v any value but its zero.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	default:
		panic(v.Kind().String())
	}
}

// FuzzBuild: whatever Build accepts, Verify accepts. The input is a Config as
// JSON laid over a good one, so the fuzzer starts close to what is accepted.
func FuzzBuild(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"ID":"abcdefghijklmnopqrstuvwx22","Process":{"UID":1}}`,
		`{"Mounts":[{"destination":"/home/x/y","source":"` + testState + `/a","options":["rro"]}]}`,
		`{"Mounts":[{"destination":"/tmp/a","source":"` + testState + `/a"},{"destination":"/tmp/ab","source":"` + testState + `/a"}]}`,
		`{"Process":{"Args":["/run/caisson/x","` + "\u2028" + `"],"Cwd":"/workspace","Env":["HOME=/h","PATH=/p","=","A"]}}`,
		`{"IDMap":{"HostBase":2147418112,"Size":65536},"TmpfsBytes":65536,"TmpfsInodes":64,"OOMScoreAdj":1}`,
		`{"Rlimits":[{"type":"RLIMIT_CORE","hard":0,"soft":0}]}`,
		`{"StateDir":"/` + testID + `","RootPath":"/` + testID + `/r","InitDir":"/` + testID + `/i","DevDir":"/` + testID + `/own/dev","NetNSPath":"/` + testID + `/n","UserNSPath":"/` + testID + `/u","Mounts":null,"CgroupsPath":"/a/b/` + testID + `"}`,
		`{"Rlimits":null,"Annotations":{"caisson.task":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := good()
		if json.Unmarshal(data, &c) != nil {
			return
		}
		// Which system calls and devices there are, other packages decide; Build
		// passes them on for Verify to look into.
		c.Seccomp, c.Resources = good().Seccomp, good().Resources
		spec, err := Build(c)
		if err != nil {
			return
		}
		if err := Verify(spec); err != nil {
			t.Errorf("built, but %v\n%s", err, data)
		}
	})
}
