package posture

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestRecordedSandboxIsAsDeclared(t *testing.T) {
	results, err := loadScene(t).compare()
	if err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, r := range results {
		if seen[r.Name] {
			t.Errorf("two results are called %q", r.Name)
		}
		seen[r.Name] = true
		if r.Name == "rlimit.RLIMIT_NOFILE" && (r.Declared != "up to 4096:4096" || r.Live != "4095:4096") { // which Go raised
			t.Errorf("%+v reads like a difference", r)
		}
	}
	if len(results) < 80 {
		t.Errorf("only %d results", len(results))
	}
}

// swap changes one text of the recording. A change that changes nothing fails
// the test: it would prove nothing.
func (s *scene) swap(t *testing.T, r recorded, key, old, changed string) {
	t.Helper()
	text, ok := r[key]
	if !ok || !strings.Contains(text, old) {
		t.Fatalf("%q has no %q", key, old)
	}
	r[key] = strings.Replace(text, old, changed, 1)
}

// lastThread is a thread other than the first.
func (s *scene) lastThread() string {
	tids := strings.Fields(s.live["names task"])
	return "read task/" + tids[len(tids)-1] + "/status"
}

func (s *scene) addFD(target, mount string) {
	s.live["names fd"] += " 9"
	s.live["readlink fd/9"] = target
	s.live["read fdinfo/9"] = "pos:\t0\nflags:\t02100001\nmnt_id:\t" + mount + "\n"
}

// replaceMount changes the line of mountinfo that is on point.
func (s *scene) replaceMount(t *testing.T, point string, change func(line string) string) {
	t.Helper()
	var b strings.Builder
	found := false
	for line := range strings.Lines(s.live["read mountinfo"]) {
		if m, err := parseMount(strings.TrimSuffix(line, "\n")); err == nil && m.point == point && !found {
			line, found = change(line), true
		}
		b.WriteString(line)
	}
	if !found || b.String() == s.live["read mountinfo"] {
		t.Fatalf("no mount on %s was changed", point)
	}
	s.live["read mountinfo"] = b.String()
}

// A PID 1 with commands looks at /proc at any time: at that of its own sandbox, and only
// to read.
func TestLooksOfPID1(t *testing.T) {
	for _, tt := range []struct {
		target, mount, flags string
		ok                   bool
	}{
		{"/proc", own, "02100000", true},
		{"/proc/7/stat", own, "02100000", true},
		{"/proc/1/task/7/net/protocols", own, "02100000", true},
		{"/proc/7/stat", own, "02100001", false},
		{"/proc/7/mem", own, "02100000", false},
		{"/proc/7/root/stat", own, "02100000", false},
		{"/proc/7/stat", "1", "02100000", false},
	} {
		for _, adopted := range []bool{true, false} {
			s := loadScene(t)
			s.declared.Adopted = adopted
			mount := tt.mount
			if mount == own {
				mount = s.mountID(t, "/proc")
			}
			s.addFD(tt.target, mount)
			s.live["read fdinfo/9"] = "pos:\t0\nflags:\t" + tt.flags + "\nmnt_id:\t" + mount + "\n"
			if _, err := s.compare(); (err == nil) != (tt.ok && adopted) {
				t.Errorf("%+v, adopted %v: %v", tt, adopted, err)
			}
		}
	}
}

// own stands for the mount of the sandbox itself.
const own = "own"

// mountID is the mount on point as the recording has it.
func (s *scene) mountID(t *testing.T, point string) string {
	t.Helper()
	for line := range strings.Lines(s.live["read mountinfo"]) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == point {
			return f[0]
		}
	}
	t.Fatalf("nothing is mounted on %s", point)
	return ""
}

// A re-adopted PID 1 closes the file of the earlier daemon when it has this one's.
func TestFileOfTheEarlierDaemon(t *testing.T) {
	for files, ok := range map[int][2]bool{1: {true, true}, 2: {false, true}, 3: {false, false}} {
		for i, adopted := range []bool{false, true} {
			s := loadScene(t)
			s.declared.Ends, s.declared.Adopted = path.Dir(s.declared.Spec.Root.Path)+"/own/ends", adopted
			for n := range files {
				number := fmt.Sprint(20 + n)
				s.live["names fd"] += " " + number
				s.live["readlink fd/"+number] = s.declared.Ends
				s.live["read fdinfo/"+number] = "pos:\t0\nflags:\t02100001\nmnt_id:\t45\n"
			}
			if _, err := s.compare(); (err == nil) != ok[i] {
				t.Errorf("%d files, adopted %v: %v", files, adopted, err)
			}
		}
	}
}

// PID 1 may write to the file that it was given, and to nothing else.
func TestFileForTheEndsOfCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		file, mount, flags string
		ok                 bool
	}{
		"as declared":        {"/own/ends", "45", "02100001", true},
		"to read and write":  {"/own/ends", "45", "02100002", false},
		"to read":            {"/own/ends", "45", "02100000", false},
		"of another mount":   {"/own/ends", "42", "02100001", false},
		"another file there": {"/own/dev/null", "45", "02100001", false},
	} {
		s := loadScene(t)
		dir := path.Dir(s.declared.Spec.Root.Path)
		s.declared.Ends = dir + "/own/ends"
		s.addFD(dir+tc.file, tc.mount)
		s.live["read fdinfo/9"] = strings.Replace(s.live["read fdinfo/9"], "02100001", tc.flags, 1)
		if _, err := s.compare(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func inMount(old, changed string) func(string) string {
	return func(line string) string { return strings.Replace(line, old, changed, 1) }
}

func TestEveryDifferenceIsDetected(t *testing.T) {
	status := func(old, changed string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) { s.swap(t, s.live, s.lastThread(), old, changed) }
	}
	text := func(key, old, changed string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) { s.swap(t, s.live, key, old, changed) }
	}
	mount := func(point, old, changed string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) { s.replaceMount(t, point, inMount(old, changed)) }
	}
	set := func(key, changed string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) { s.swap(t, s.live, key, s.live[key], changed) }
	}
	device := func(point, changed string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) {
			s.replaceMount(t, point, func(line string) string {
				f := strings.Split(line, " ")
				f[2] = changed
				return strings.Join(f, " ")
			})
		}
	}
	addMount := func(line string) func(*testing.T, *scene) {
		return func(_ *testing.T, s *scene) { s.live["read mountinfo"] += line + "\n" }
	}
	const zero = "0000000000000000"
	const capability = "0000000000000001" // CAP_CHOWN
	for name, tc := range map[string]struct {
		change func(*testing.T, *scene)
		want   string // the result that must tell
	}{
		"inheritable capability":    {status("CapInh:\t"+zero, "CapInh:\t"+capability), "capabilities.inheritable"},
		"permitted capability":      {status("CapPrm:\t"+zero, "CapPrm:\t"+capability), "capabilities.permitted"},
		"effective capability":      {status("CapEff:\t"+zero, "CapEff:\t"+capability), "capabilities.effective"},
		"bounding capability":       {status("CapBnd:\t"+zero, "CapBnd:\t000001ffffffffff"), "capabilities.bounding"},
		"ambient capability":        {status("CapAmb:\t"+zero, "CapAmb:\t"+capability), "capabilities.ambient"},
		"new privileges":            {status("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "no_new_privileges"},
		"no filter":                 {status("Seccomp:\t2", "Seccomp:\t0"), "seccomp"},
		"strict mode is not ours":   {status("Seccomp:\t2", "Seccomp:\t1"), "seccomp"},
		"filter elsewhere":          {status("Seccomp_filters:\t1", "Seccomp_filters:\t0"), "seccomp.filters"},
		"real uid":                  {status("Uid:\t1946158056", "Uid:\t0"), "uid"},
		"saved uid":                 {status("Uid:\t1946158056\t1946158056\t1946158056", "Uid:\t1946158056\t1946158056\t0"), "uid"},
		"file system gid":           {status("\t1946158056\nFDSize", "\t0\nFDSize"), "gid"},
		"another group":             {status("Groups:\t", "Groups:\t0 "), "groups"},
		"fewer groups":              {status("Groups:\t1946157100 ", "Groups:\t"), "groups"},
		"umask":                     {func(t *testing.T, s *scene) { s.eachStatus(t, "Umask:\t0022", "Umask:\t0000") }, "umask"},
		"host cgroup namespace":     {sharedNamespace("cgroup"), "namespace.cgroup"},
		"host ipc namespace":        {sharedNamespace("ipc"), "namespace.ipc"},
		"host mount namespace":      {sharedNamespace("mnt"), "namespace.mnt"},
		"host network namespace":    {sharedNamespace("net"), "namespace.net"},
		"host pid namespace":        {sharedNamespace("pid"), "namespace.pid"},
		"host user namespace":       {sharedNamespace("user"), "namespace.user"},
		"host uts namespace":        {sharedNamespace("uts"), "namespace.uts"},
		"undeclared time namespace": {text("readlink ns/time", "4026531834", "4026539999"), "namespace.time"},
		"network of another":        {text("readlink ns/net", "[", "[1"), "namespace.net"},
		"users of another":          {text("readlink ns/user", "[", "[1"), "namespace.user"},
		"declared users are the host's": {func(_ *testing.T, s *scene) {
			s.own["userns"], s.live["readlink ns/user"] = s.own["readlink ns/user"], s.own["readlink ns/user"]
		}, "namespace.user"},
		"declared network is the host's": {func(_ *testing.T, s *scene) {
			s.own["netns"], s.live["readlink ns/net"] = s.own["readlink ns/net"], s.own["readlink ns/net"]
		}, "namespace.net"},
		"uid map of the host":   {text("read uid_map", "1946157056", "0"), "uid_map"},
		"longer uid map":        {text("read uid_map", "65536", "65537"), "uid_map"},
		"second uid range":      {func(_ *testing.T, s *scene) { s.live["read uid_map"] += "65536 0 1\n" }, "uid_map"},
		"gid map of another":    {text("read gid_map", "1946157056", "1946222592"), "gid_map"},
		"setgroups":             {text("read setgroups", "allow", "deny"), "setgroups"},
		"group of memory":       {text("read cgroup", "4:memory:/caisson-posture-", "4:memory:/other-"), "cgroup.memory"},
		"group of pids":         {text("read cgroup", "8:pids:/", "8:pids:/.."), "cgroup.pids"},
		"group on v2":           {text("read cgroup", "0::/caisson", "0::/other"), "cgroup.unified"},
		"no group":              {func(_ *testing.T, s *scene) { s.live["read cgroup"] = "" }, "cgroup"},
		"root elsewhere":        {text("readlink root", "/", "/proc/self/fd/7"), "root"},
		"root of the same name": {set("mountID root", "27"), "root"},
		"cwd elsewhere":         {text("readlink cwd", "/", "/tmp"), "cwd"},
		"cwd of the host":       {set("mountID cwd", "27"), "cwd"},
		"program elsewhere":     {text("readlink exe", "caisson-init", "sh"), "program"},
		"program deleted":       {func(_ *testing.T, s *scene) { s.live["readlink exe"] += " (deleted)" }, "program"},
		"program of the host":   {set("mountID exe", "27"), "program"},
		"core files":            {limit("Max core file size        1                    1 ", "Max core file size        unlimited            unlimited"), "rlimit.RLIMIT_CORE"},
		"soft stack":            {text("read limits", "8388608", "8388609"), "rlimit.RLIMIT_STACK"},
		"hard descriptors":      {text("read limits", "4095                 4096", "4095                 8192"), "rlimit.RLIMIT_NOFILE"},
		"fewer descriptors":     {text("read limits", "4095                 4096", "1024                 1024"), "rlimit.RLIMIT_NOFILE"},
		"processes":             {text("read limits", "320                  320 ", "unlimited            unlimited"), "rlimit.RLIMIT_NPROC"},
		"limit unknown":         {text("read limits", "Max msgqueue size", "Max something    "), "rlimit.RLIMIT_MSGQUEUE"},
		"oom score":             {text("read oom_score_adj", "500", "-500"), "oom_score_adj"},
		"variable of the host":  {func(_ *testing.T, s *scene) { s.live["read environ"] += "TOKEN=s3cret\x00" }, "environment"},
		"variable changed":      {text("read environ", "PATH=/bin", "PATH=/tmp"), "environment"},
		"variable gone":         {text("read environ", "HOME=/home\x00", ""), "environment"},
		"file of the host":      {func(_ *testing.T, s *scene) { s.addFD("/etc/shadow", "27") }, "descriptors"},
		"directory of the host": {func(_ *testing.T, s *scene) { s.addFD("/", "27") }, "descriptors"},
		"pipe":                  {func(_ *testing.T, s *scene) { s.addFD("pipe:[1234]", "14") }, "descriptors"},
		"socket of the host":    {func(_ *testing.T, s *scene) { s.addFD("socket:[1234]", "10") }, "descriptors"},
		"memfd":                 {func(_ *testing.T, s *scene) { s.addFD("/memfd:runc (deleted)", "1") }, "descriptors"},
		"io_uring":              {func(_ *testing.T, s *scene) { s.addFD("anon_inode:[io_uring]", "17") }, "descriptors"},
		"second listener": {func(_ *testing.T, s *scene) {
			s.addFD(listenerFile, "17")
			s.live["names fd"] += " 10"
			s.live["readlink fd/10"], s.live["read fdinfo/10"] = s.live["readlink fd/9"], s.live["read fdinfo/9"]
		}, "descriptors"},
		"second connection":      {secondSocket, "sockets"},
		"host's null":            {set("read fdinfo/0", "flags:\t02\nmnt_id:\t24\n"), "standard streams"},
		"stderr is a file":       {text("readlink fd/2", "/dev/null", "/run/log"), "descriptors"},
		"stdin closed":           {text("names fd", "0 ", ""), "standard streams"},
		"writable root":          {mount("/", "ro,nosuid", "rw,nosuid"), "mount /"},
		"root with set-id":       {mount("/", "nosuid,", ""), "mount /"},
		"root with devices":      {mount("/", "nodev,", ""), "mount /"},
		"another root":           {mount("/", "/rootfs /", "/workspace /"), "mount /"},
		"root of another device": {device("/", "254:1"), "mount /"},
		"writable dev":           {mount("/dev", "ro,nosuid", "rw,nosuid"), "mount /dev"},
		"executable shm":         {mount("/dev/shm", ",noexec", ""), "mount /dev/shm"},
		"tmp with set-id":        {mount("/tmp", "nosuid,", ""), "mount /tmp"},
		"tmp with devices":       {mount("/tmp", "nodev,", ""), "mount /tmp"},
		"tmp without size":       {mount("/tmp", "size=65540k,", ""), "mount /tmp"},
		"larger tmp":             {mount("/tmp", "size=65540k", "size=65544k"), "mount /tmp"},
		"tmp without inodes":     {mount("/tmp", "nr_inodes=65536,", ""), "mount /tmp"},
		"tmp of another owner":   {mount("/tmp", ",uid=1946157056", ",uid=0"), "mount /tmp"},
		"tmp closed":             {mount("/tmp", "size=", "mode=700,size="), "mount /tmp"},
		"tmp of the host":        {device("/tmp", "0:27"), "mount /tmp"},
		"part of a tmpfs":        {mount("/tmp", " / /tmp ", " /x /tmp "), "mount /tmp"},
		"tmp on disk":            {mount("/tmp", "- tmpfs tmpfs", "- ext4 /dev/vda"), "mount /tmp"},
		"executable run":         {mount("/run", ",noexec", ""), "mount /run"},
		"home of root":           {mount("/home", "uid=1946158056", "uid=1946157056"), "mount /home"},
		"home open to all":       {mount("/home", "mode=755,", ""), "mount /home"},
		"host's terminals":       {device("/dev/pts", "0:26"), "mount /dev/pts"},
		"more terminals":         {mount("/dev/pts", "max=64", "max=1024"), "mount /dev/pts"},
		"terminals for all":      {mount("/dev/pts", "mode=620", "mode=666"), "mount /dev/pts"},
		"host's proc":            {device("/proc", "0:21"), "mount /proc"},
		"executable proc":        {mount("/proc", ",noexec", ""), "mount /proc"},
		"writable init":          {mount("/run/caisson", "ro,", "rw,"), "mount /run/caisson"},
		"init of another":        {mount("/run/caisson", "/init ", "/init2 "), "mount /run/caisson"},
		"workspace of another":   {mount("/workspace", "/workspace /workspace", "/other /workspace"), "mount /workspace"},
		"workspace with devices": {mount("/workspace", ",nodev", ""), "mount /workspace"},
		"dev of another":         {device("/dev", "0:27"), "mount /dev"},
		"null is zero":           {func(t *testing.T, s *scene) { s.swap(t, s.own, "nodes", "null 1:3", "null 1:5") }, "device nodes"},
		"another node":           {func(t *testing.T, s *scene) { s.swap(t, s.own, "nodes", "full", "disk 254:0, full") }, "device nodes"},
		"part of another system": {func(t *testing.T, s *scene) {
			s.swap(t, s.own, "read mountinfo", " / "+path.Dir(devDir(s.declared.Spec)), " /x "+path.Dir(devDir(s.declared.Spec)))
		}, "device nodes"},
		"node of the host":      {addMount("999 24 0:5 /null /dev/null rw,nosuid - devtmpfs devtmpfs rw"), "mount /dev/null"},
		"writable sysctls":      {mount("/proc/sys", "ro,", "rw,"), "mount /proc/sys"},
		"sysctls of the host":   {device("/proc/sys", "0:21"), "mount /proc/sys"},
		"part of the sysctls":   {mount("/proc/sys", " /sys ", " /sys/vm "), "mount /proc/sys"},
		"mask shows":            {mount("/proc/kallsyms", " /dev/null ", " /dev/kmsg "), "mount /proc/kallsyms"},
		"mask is writable":      {mount("/proc/acpi", " ro,relatime - tmpfs", " rw,relatime - tmpfs"), "mount /proc/acpi"},
		"mask can be remounted": {mount("/proc/acpi", "tmpfs ro,", "tmpfs rw,"), "mount /proc/acpi"},
		"mask is below":         {func(_ *testing.T, s *scene) { s.flip("/proc/bus") }, "mount /proc/bus"},
		"mask of the host":      {device("/proc/acpi", "0:27"), "mount /proc/acpi"},
		"shared with the host":  {mount("/tmp", " - tmpfs", " shared:7 - tmpfs"), "propagation"},
		"slave of the host":     {mount("/", " - tmpfs", " master:1 - tmpfs"), "propagation"},
		"mount over a mask":     {addMount("300 54 0:45 / /proc/acpi rw,relatime - proc proc rw"), "mount /proc/acpi"},
		"second proc":           {addMount("300 74 0:99 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw"), "mount /proc"},
		"sysfs":                 {addMount("300 84 0:22 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs rw"), "mount /sys"},
		"cgroup":                {addMount("300 84 0:41 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"), "mount /sys/fs/cgroup"},
		"socket of the engine":  {addMount("300 84 254:0 /run/x.sock /run/x.sock rw - ext4 /dev/vda rw"), "mount /run/x.sock"},
		"old root":              {addMount("300 84 254:0 / /.pivot rw - ext4 /dev/vda rw"), "mount /.pivot"},
		"console":               {addMount("300 86 0:26 /3 /dev/console rw - devpts devpts rw"), "mount /dev/console"},
		"another spec's label": {func(_ *testing.T, s *scene) {
			s.declared.Spec.Process.ApparmorProfile = "caisson"
			s.live["read attr/current"] = "unconfined\n"
		}, "label"},
		"complaining profile": {func(_ *testing.T, s *scene) {
			s.declared.Spec.Process.ApparmorProfile = "caisson"
			s.live["read attr/current"] = "caisson (complain)\n"
		}, "label"},
		"selinux label": {func(_ *testing.T, s *scene) {
			s.declared.Spec.Process.SelinuxLabel = "u:r:container_t:s0:c1,c2"
			s.live["read attr/current"] = "u:r:container_t:s0:c1,c3\x00"
		}, "label"},
	} {
		t.Run(name, func(t *testing.T) {
			s := loadScene(t)
			tc.change(t, s)
			results, err := s.compare()
			if err == nil || !slices.ContainsFunc(results, func(r Result) bool { return r.Name == tc.want && !r.OK }) {
				t.Errorf("result %q does not tell; error: %v", tc.want, err)
			}
		})
	}
}

func sharedNamespace(link string) func(*testing.T, *scene) {
	return func(_ *testing.T, s *scene) { s.live["readlink ns/"+link] = s.own["readlink ns/"+link] }
}

func limit(old, changed string) func(*testing.T, *scene) {
	return func(t *testing.T, s *scene) { s.swap(t, s.live, "read limits", old, changed) }
}

func secondSocket(_ *testing.T, s *scene) {
	s.addFD("socket:[4711]", "10")
	s.live["read net/unix"] += "0000000000000000: 00000003 00000000 00000000 0005 03 4711\n"
}

func (s *scene) eachStatus(t *testing.T, old, changed string) {
	for _, tid := range strings.Fields(s.live["names task"]) {
		s.swap(t, s.live, "read task/"+tid+"/status", old, changed)
	}
}

// flip puts the topmost of two mounts on point below the other.
func (s *scene) flip(point string) {
	var lines, on []string
	for line := range strings.Lines(s.live["read mountinfo"]) {
		if strings.Contains(line, " "+point+" ") {
			on = append(on, line)
			continue
		}
		lines = append(lines, line)
	}
	slices.Reverse(on)
	s.live["read mountinfo"] = strings.Join(append(lines, on...), "")
}

// TestEveryMountCounts: taking away any mount, any protection of one, or any
// privacy is detected, whichever mount it is.
func TestEveryMountCounts(t *testing.T) {
	lines := strings.SplitAfter(strings.TrimSuffix(loadScene(t).live["read mountinfo"], "\n"), "\n")
	for i, line := range lines {
		m, err := parseMount(strings.TrimSuffix(line, "\n"))
		must(t, err)
		changes := map[string]string{
			"gone":   "",
			"twice":  line + "\n" + line,
			"shared": strings.Replace(line, " - ", " shared:1 - ", 1),
			"moved":  strings.Replace(line, " "+m.point+" ", " "+strings.TrimSuffix(m.point, "/")+"/x ", 1),
			"other":  strings.Replace(line, " "+m.device+" ", " 9:9 ", 1),
		}
		if m.fstype == "tmpfs" || m.fstype == "mqueue" || m.fstype == "devpts" || m.fstype == "proc" {
			delete(changes, "other") // any number that the host does not have is right
		}
		for name, changed := range changes {
			s := loadScene(t)
			s.live["read mountinfo"] = strings.Join(slices.Concat(lines[:i], []string{changed}, lines[i+1:]), "")
			if _, err := s.compare(); err == nil {
				t.Errorf("mount on %s %s is not detected", m.point, name)
			}
		}
	}
}

// TestUnreadableIsAnError: what cannot be read is not taken for good.
func TestUnreadableIsAnError(t *testing.T) {
	for key := range loadScene(t).live {
		// A thread and a descriptor may go away meanwhile; their names stay.
		if strings.Contains(key, " task/") || strings.Contains(key, " fd/") || strings.Contains(key, " fdinfo/") {
			continue
		}
		s := loadScene(t)
		delete(s.live, key)
		if _, err := s.compare(); err == nil {
			t.Errorf("nobody misses %q", key)
		}
		s.live[key] = "\x00garbage"
		if _, err := s.compare(); err == nil {
			t.Errorf("nobody minds garbage in %q", key)
		}
	}
	for key := range loadScene(t).own {
		s := loadScene(t)
		s.own[key] = "\x00garbage"
		if _, err := s.compare(); err == nil {
			t.Errorf("nobody minds garbage in the daemon's own %q", key)
		}
	}
}

func TestEndedProcess(t *testing.T) {
	s := loadScene(t)
	s.eachStatus(t, "State:\t", "State:\tZ ")
	if _, err := s.compare(); err == nil || codeOf(err) != sbxerr.Init {
		t.Errorf("error %v", err)
	}
}

func TestThreadThatEndsIsLeftOut(t *testing.T) {
	s := loadScene(t)
	delete(s.live, s.lastThread())
	if _, err := s.compare(); err != nil {
		t.Error(err)
	}
}

// TestAllowed: what may differ, may.
func TestAllowed(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *scene){
		"more protection": func(t *testing.T, s *scene) {
			s.replaceMount(t, "/workspace", inMount("rw,nosuid,nodev", "ro,nosuid,nodev,noexec"))
		},
		"daemon's group on v2 of a hybrid": func(t *testing.T, s *scene) {
			s.live["read cgroup"] = keepLines(s.live["read cgroup"], func(l string) bool { return !strings.HasPrefix(l, "0::") }) + "0::/\n"
		},
		"named hierarchy": func(_ *testing.T, s *scene) { s.live["read cgroup"] += "12:name=openrc:/\n" },
		"image has a path of sysfs": func(_ *testing.T, s *scene) {
			s.live["read mountinfo"] += "300 84 0:53 / /sys/firmware ro,relatime - tmpfs tmpfs ro,size=4k,nr_inodes=1\n"
		},
		"no connection": func(t *testing.T, s *scene) { s.swap(t, s.live, "names fd", " 3", "") },
		"apparmor": func(_ *testing.T, s *scene) {
			s.declared.Spec.Process.ApparmorProfile = "caisson"
			s.live["read attr/current"] = "caisson (enforce)\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := loadScene(t)
			change(t, s)
			if _, err := s.compare(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnifiedOnly: without v1 controllers the one line has to be right.
func TestUnifiedOnly(t *testing.T) {
	s := loadScene(t)
	s.live["read cgroup"] = "0::/\n"
	if _, err := s.compare(); err == nil {
		t.Error("the daemon's own group passes")
	}
	s.live["read cgroup"] = "0::" + s.declared.Spec.Linux.CgroupsPath + "\n"
	if _, err := s.compare(); err != nil {
		t.Error(err)
	}
}

// TestCommand: a command's own descriptors, environment and directory are free,
// all that confines it is not.
func TestCommand(t *testing.T) {
	s := loadScene(t)
	s.declared.Command = true
	s.addFD("pipe:[1]", "14")
	s.live["read environ"] = "A=B\x00"
	s.live["readlink cwd"] = "/tmp"
	s.live["readlink exe"] = "/bin/busybox"
	s.swap(t, s.live, "read limits", "4095                 4096", "100                  200 ")
	if _, err := s.compare(); err != nil {
		t.Error(err)
	}
	s.swap(t, s.live, "read limits", "100                  200 ", "100                  9999")
	if _, err := s.compare(); err == nil {
		t.Error("a raised limit passes")
	}
}

// TestSecretsAreNotShown: a difference of the environment names, never quotes.
func TestSecretsAreNotShown(t *testing.T) {
	s := loadScene(t)
	s.live["read environ"] += "TOKEN=s3cret\x00"
	results, err := s.compare()
	if text := fmt.Sprint(results, err); strings.Contains(text, "s3cret") || !strings.Contains(text, "TOKEN") {
		t.Errorf("shown: %s", text)
	}
}

func TestUndeclaredCapabilitiesObject(t *testing.T) {
	s := loadScene(t)
	s.declared.Spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN"}}
	if _, err := s.compare(); err == nil {
		t.Error("a declared capability that is not there passes")
	}
}
