package oci

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// Verify reports every rule of the sandbox that spec breaks. It is written from the rules
// alone, and must use nothing of Build or of its tables. It refuses fields that it does
// not know. So a field of a later OCI specification is an error until it has a rule.
func Verify(spec *specs.Spec) error {
	return VerifyAllowed(spec, Allowed{})
}

// verifyImage checks the rules of every sandbox that has an image, and further ones.
func verifyImage(spec *specs.Spec, further ...func(*specs.Spec) error) error {
	return verify(spec, append([]func(*specs.Spec) error{ruleInit, ruleRoot, ruleNamespaces, ruleIDMap, ruleMounts}, further...)...)
}

// verify checks the rules of every sandbox and further ones.
func verify(spec *specs.Spec, further ...func(*specs.Spec) error) error {
	const op = "oci.verify"
	if spec == nil || spec.Process == nil || spec.Root == nil || spec.Linux == nil {
		return sbxerr.New(sbxerr.Config, op, "specification lacks its process, root or linux part")
	}
	var errs []error
	for _, rule := range append([]func(*specs.Spec) error{
		ruleFields, ruleProcess, ruleLimits, rulePropagation, rulePaths, ruleSeccomp, ruleCgroup, ruleBlockIO, ruleUnified, ruleDevices, ruleAnnotations,
	}, further...) {
		errs = append(errs, rule(spec))
	}
	return sbxerr.Wrap(sbxerr.Config, op, errors.Join(errs...))
}

// ruleFields: hooks, devices, sysctls, labels, schedulers, personalities and
// whatever else a specification can say are not ours to say.
func ruleFields(s *specs.Spec) error {
	errs := []error{
		only("specification", s, "Version", "Process", "Root", "Hostname", "Mounts", "Annotations", "Linux"),
		only("process", s.Process, "User", "Args", "Env", "Cwd", "Capabilities", "Rlimits", "NoNewPrivileges", "OOMScoreAdj", "ApparmorProfile", "SelinuxLabel"),
		only("user", &s.Process.User, "UID", "GID", "Umask", "AdditionalGids"),
		only("linux", s.Linux, "UIDMappings", "GIDMappings", "Resources", "CgroupsPath", "Namespaces", "Seccomp", "RootfsPropagation", "MaskedPaths", "ReadonlyPaths", "MountLabel"),
	}
	if r := s.Linux.Resources; r != nil {
		errs = append(errs, only("resources", r, "Devices", "Memory", "CPU", "Pids", "BlockIO", "HugepageLimits", "Rdma", "Unified"))
	}
	if f := s.Linux.Seccomp; f != nil {
		errs = append(errs, only("seccomp", f, "DefaultAction", "DefaultErrnoRet", "Architectures", "Flags", "Syscalls"))
	}
	return errors.Join(errs...)
}

// only reports the fields of the struct at ptr that say something and are not
// among names.
func only(what string, ptr any, names ...string) error {
	var errs []error
	v := reflect.ValueOf(ptr).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !slices.Contains(names, name) && !v.Field(i).IsZero() {
			errs = append(errs, fmt.Errorf("%s sets %s", what, name))
		}
	}
	return errors.Join(errs...)
}

// ruleInit: PID 1 is never a program of the image.
func ruleInit(s *specs.Spec) error {
	if p := s.Process; len(p.Args) == 0 || !strings.HasPrefix(p.Args[0], "/run/caisson/") || path.Clean(p.Args[0]) != p.Args[0] {
		return fmt.Errorf("pid 1 %q is not ours", p.Args)
	}
	return nil
}

func ruleProcess(s *specs.Spec) error {
	var errs []error
	p := s.Process
	for _, dir := range []string{"/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(p.Cwd+"/", dir) {
			errs = append(errs, fmt.Errorf("working directory %q is below %s", p.Cwd, dir))
		}
	}
	if !path.IsAbs(p.Cwd) || path.Clean(p.Cwd) != p.Cwd {
		errs = append(errs, fmt.Errorf("working directory %q is not clean and absolute", p.Cwd))
	}
	if !p.NoNewPrivileges {
		errs = append(errs, errors.New("new privileges can be gained"))
	}
	if p.OOMScoreAdj == nil || *p.OOMScoreAdj <= 0 || *p.OOMScoreAdj > 1000 {
		errs = append(errs, errors.New("oom score adjustment is not above 0"))
	}
	if !hasVariable(p.Env, "HOME") || !hasVariable(p.Env, "PATH") {
		errs = append(errs, errors.New("environment lacks HOME or PATH"))
	}
	return errors.Join(errs...)
}

func hasVariable(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") && len(kv) > len(name)+1 })
}

func ruleUser(s *specs.Spec) error {
	if s.Process.User.UID == 0 || s.Process.User.GID == 0 {
		return errors.New("the user is root, or in its group")
	}
	return ruleRootUser(s)
}

func ruleNoCapabilities(s *specs.Spec) error {
	c := s.Process.Capabilities
	if c == nil {
		return errors.New("capabilities are absent, which means the runtime's own")
	}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if v.Field(i).Len() != 0 {
			return fmt.Errorf("capability set %s holds %v", v.Type().Field(i).Name, v.Field(i))
		}
	}
	return nil
}

// ruleLimits: every resource limit of setrlimit(2) that bounds kernel memory or
// priority is there, and none is infinite.
func ruleLimits(s *specs.Spec) error {
	var errs []error
	hard := map[string]uint64{}
	for _, l := range s.Process.Rlimits {
		if _, twice := hard[l.Type]; twice || l.Soft > l.Hard || l.Hard == 1<<64-1 {
			errs = append(errs, fmt.Errorf("rlimit %s %d:%d is repeated, infinite or inverted", l.Type, l.Soft, l.Hard))
		}
		hard[l.Type] = l.Hard
	}
	for _, name := range []string{"CORE", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC", "RTPRIO", "SIGPENDING", "STACK"} {
		if _, ok := hard["RLIMIT_"+name]; !ok {
			errs = append(errs, fmt.Errorf("rlimit %s is missing", name))
		}
	}
	if hard["RLIMIT_CORE"] > 1 || hard["RLIMIT_RTPRIO"] > 0 || hard["RLIMIT_NICE"] > 20 {
		errs = append(errs, errors.New("rlimits allow core files, realtime or raised priority"))
	}
	return errors.Join(errs...)
}

func ruleRoot(s *specs.Spec) error {
	var errs []error
	if !path.IsAbs(s.Root.Path) || path.Clean(s.Root.Path) != s.Root.Path || path.Dir(s.Root.Path) == "/" {
		errs = append(errs, fmt.Errorf("root %q is not a clean path inside a directory of the sandbox", s.Root.Path))
	}
	if !isLabel(s.Hostname) {
		errs = append(errs, fmt.Errorf("host name %q is no label", s.Hostname))
	}
	return errors.Join(errs...)
}

// isLabel reports whether name can be a line of /etc/hosts, and nothing more (RFC 1123).
func isLabel(name string) bool {
	odd := func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return name != "" && len(name) <= 63 && !strings.ContainsFunc(name, odd) && strings.Trim(name, "-") == name
}

func rulePropagation(s *specs.Spec) error {
	if s.Linux.RootfsPropagation != "rprivate" {
		return fmt.Errorf("propagation of the root is %q", s.Linux.RootfsPropagation)
	}
	return nil
}

func ruleReadOnlyRoot(s *specs.Spec) error {
	if !s.Root.Readonly {
		return errors.New("root can be written")
	}
	return nil
}

// sandboxDir is the one directory of the host that a specification may name.
func sandboxDir(s *specs.Spec) string { return path.Dir(s.Root.Path) }

// owns reports whether p is inside the sandbox's directory, and so neither the
// host's nor another sandbox's.
func owns(s *specs.Spec, p string) bool {
	return path.Clean(p) == p && strings.HasPrefix(p, sandboxDir(s)+"/")
}

func ruleNamespaces(s *specs.Spec) error {
	var errs []error
	seen := map[specs.LinuxNamespaceType]string{}
	for _, n := range s.Linux.Namespaces {
		if _, twice := seen[n.Type]; twice {
			errs = append(errs, fmt.Errorf("namespace %s is named twice", n.Type))
		}
		seen[n.Type] = n.Path
		if n.Path != "" && n.Type != specs.NetworkNamespace && n.Type != specs.UserNamespace {
			errs = append(errs, fmt.Errorf("namespace %s is an existing one", n.Type))
		}
	}
	for _, t := range []specs.LinuxNamespaceType{"pid", "network", "mount", "ipc", "uts", "user", "cgroup"} {
		if _, ok := seen[t]; !ok {
			errs = append(errs, fmt.Errorf("namespace %s is the host's", t))
		}
	}
	if len(seen) > 7 {
		errs = append(errs, errors.New("more namespaces than there are rules for"))
	}
	// A network namespace made by the runtime would belong to the sandbox's
	// user namespace, and root inside could configure it. A user namespace made by
	// the runtime would belong to the host's root, and use up root's limits.
	for _, t := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.UserNamespace} {
		if !owns(s, seen[t]) {
			errs = append(errs, fmt.Errorf("%s namespace %q is not the sandbox's own", t, seen[t]))
		}
	}
	return errors.Join(errs...)
}

func ruleIDMap(s *specs.Spec) error {
	for _, m := range [][]specs.LinuxIDMapping{s.Linux.UIDMappings, s.Linux.GIDMappings} {
		if len(m) != 1 {
			return fmt.Errorf("id map has %d ranges", len(m))
		}
		if m[0].ContainerID != 0 || m[0].Size < 65536 || m[0].HostID < 65536 || uint64(m[0].HostID)+uint64(m[0].Size) > 1<<31 {
			return fmt.Errorf("id map %v reaches ids of the host", m[0])
		}
	}
	if s.Linux.UIDMappings[0] != s.Linux.GIDMappings[0] {
		return errors.New("user and group ids are mapped differently")
	}
	return nil
}

// rulePaths requires masks on every /proc file that reveals or changes the host.
func rulePaths(s *specs.Spec) error {
	var errs []error
	for _, name := range strings.Fields(`acpi asound interrupts kcore keys latency_stats locks sched_debug scsi timer_list timer_stats
		kallsyms kmsg kpagecount kpageflags kpagecgroup pagetypeinfo slabinfo vmallocinfo iomem ioports modules config.gz
		sysrq-trigger fs irq bus driver cmdline diskstats partitions pressure vmstat zoneinfo`) {
		if !slices.Contains(s.Linux.MaskedPaths, "/proc/"+name) {
			errs = append(errs, fmt.Errorf("/proc/%s is not masked", name))
		}
	}
	for _, name := range strings.Fields("bus fs irq sys sysrq-trigger") {
		if !slices.Contains(s.Linux.ReadonlyPaths, "/proc/"+name) {
			errs = append(errs, fmt.Errorf("/proc/%s is not read-only", name))
		}
	}
	return errors.Join(errs...)
}

// neverFree are system calls that no profile may allow without a condition on
// their arguments: each reaches the host, another namespace or code that has
// repeatedly broken.
var neverFree = strings.Fields(`acct add_key bpf clone3 delete_module finit_module fsconfig fsmount fsopen fspick init_module
	io_uring_enter io_uring_register io_uring_setup iopl ioperm kcmp kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr
	move_mount nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root quotactl reboot
	request_key setns settimeofday swapoff swapon syslog umount umount2 unshare userfaultfd vhangup`)

func ruleSeccomp(s *specs.Spec) error {
	f := s.Linux.Seccomp
	if f == nil {
		return errors.New("there is no seccomp filter")
	}
	var errs []error
	if f.DefaultAction != specs.ActErrno {
		errs = append(errs, fmt.Errorf("seccomp lets unknown system calls %s", f.DefaultAction))
	}
	if len(f.Architectures) != 1 || f.Architectures[0] != nativeArch() {
		errs = append(errs, fmt.Errorf("seccomp architectures are %v, not %s alone", f.Architectures, nativeArch()))
	}
	// Without any flag, runc sets SPEC_ALLOW by itself.
	if len(f.Flags) == 0 || slices.Contains(f.Flags, specs.LinuxSeccompFlagSpecAllow) {
		errs = append(errs, errors.New("seccomp opts out of the speculative store bypass mitigation"))
	}
	for _, call := range f.Syscalls {
		switch call.Action {
		case specs.ActErrno, specs.ActKill, specs.ActKillThread, specs.ActKillProcess:
			continue
		case specs.ActAllow:
		default:
			errs = append(errs, fmt.Errorf("seccomp has action %s", call.Action))
		}
		for _, name := range call.Names {
			if len(call.Args) == 0 && slices.Contains(neverFree, name) {
				errs = append(errs, fmt.Errorf("seccomp allows %s whatever its arguments", name))
			}
		}
	}
	return errors.Join(errs...)
}

// nativeArch names the architecture that this program runs on; a filter for
// another one would refuse nothing that it means to.
func nativeArch() specs.Arch {
	return map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}[goruntime.GOARCH]
}

func ruleAnnotations(s *specs.Spec) error {
	for key := range s.Annotations {
		switch key {
		case "caisson.managed", "caisson.session", "caisson.task", "caisson.profile":
		default:
			return fmt.Errorf("annotation %q could mean something to a runtime", key)
		}
	}
	return nil
}
