package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// worker is the user of the host as whom commands without isolation run. No account has it.
const worker = 43210

const unisolated = `peers: [{uids: [54321]}]
profiles:
  host: {isolation: none, timeout: 20s, memory: 64M}
  brief: {isolation: none, timeout: 1s}
unisolated: {profiles: [host, brief], user: "43210"}
`

const unisolatedWarning = "isolation none: "

// as runs a program of the host as uid, without a sandbox.
func as(t *testing.T, uid uint32, argv ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	return string(out), err
}

// greeter accepts connections on loopback and greets.
func greeter(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // no connection is left
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello\n") // the client tells
			_ = c.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// A command without isolation reaches the host's files and network, which a strict one does
// not, and has no more rights there than its user.
func TestUnisolatedIsAUserOfTheHost(t *testing.T) {
	t.Parallel()
	need.Tools(t, "bash", "id", "sleep", "cp")
	d := harness.StartWith(t, strings.Replace(unisolated, "[54321]", "[54321, 43210]", 1))
	dir := workspace(t, worker, worker)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	secret, root := filepath.Join(dir, "secret"), filepath.Join(dir, "root")
	must(os.Chmod(dir, 0o755))
	must(os.WriteFile(filepath.Join(dir, "open"), []byte("of the host\n"), 0o644))
	must(os.WriteFile(secret, []byte("of root\n"), 0o600))
	must(os.WriteFile(root, []byte("of root\n"), 0o644))
	port := greeter(t)
	connect := "exec 3<>/dev/tcp/127.0.0.1/" + port + "; cat <&3"
	for name, script := range map[string]string{"file": "cat " + filepath.Join(dir, "open"), "network": connect} {
		if r := d.RunJSON(t, "--profile", "host", "--", "bash", "-c", script); r.ExitCode != 0 || r.Stdout == "" || r.Sandbox.Network != "host" {
			t.Errorf("%s without isolation: %+v", name, r)
		}
	}
	for name, argv := range map[string][]string{"file": {"cat", filepath.Join(dir, "open")}, "network": {"nc", "-w", "2", "127.0.0.1", port}} {
		if r := d.RunJSON(t, append([]string{"--"}, argv...)...); r.ExitCode == 0 || r.ExitCode >= 126 || r.Stdout != "" {
			t.Errorf("%s in strict: %+v", name, r)
		}
	}

	raised := filepath.Join(dir, "id")
	must(exec.Command("cp", "/usr/bin/id", raised).Run())
	must(os.Chmod(raised, os.ModeSetuid|0o755))
	if out, err := as(t, worker, raised, "-u"); err != nil || out != "0\n" {
		t.Fatalf("the set-id program, without a sandbox: %q, %v", out, err)
	}
	client := filepath.Join(dir, "caisson")
	must(exec.Command("cp", harness.Bin(t, "caisson"), client).Run())
	call := "CAISSON_SOCKET=" + d.Socket + " " + client + " ls"
	if out, err := as(t, worker, "bash", "-c", call); err != nil || !strings.HasPrefix(out, "ID ") {
		t.Fatalf("a call of the user, without a sandbox: %q, %v", out, err)
	}
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: worker + 1, Gid: worker + 1}, Pdeathsig: syscall.SIGKILL}
	must(other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill() // it may have ended
		_ = other.Wait()
	})
	pid := strconv.Itoa(other.Process.Pid)
	if _, err := as(t, worker+1, "bash", "-c", "kill -0 "+pid); err != nil {
		t.Fatalf("a signal of the same user, without a sandbox: %v", err)
	}
	for _, probe := range []struct{ script, want string }{
		{"cat " + secret + " || echo refused", "refused\n"},
		{"echo x > " + root + " || echo refused", "refused\n"},
		{"rm -f /etc/hostname || echo refused", "refused\n"},
		{raised + " -u; " + raised + " -G", "43210\n43210\n"},
		{"kill -0 " + pid + " || echo refused", "refused\n"},
		{call + " 2>/dev/null || echo refused", "refused\n"},
		{"hostname", hostname(t) + "\n"},
		{"cat " + d.State + "/sandboxes/*/record.json " + d.Socket + " || echo refused", "refused\n"},
		{"ls /sys /proc/fs | wc -w; echo $$ > /proc/sys/kernel/ns_last_pid || echo refused", "2\nrefused\n"},
		{"mknod x b 8 0 || mount -t tmpfs x /mnt || unshare -U true || chown 0 $HOME || echo refused", "refused\n"},
		{"grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t\\n'",
			"CapInh:" + noCapability + "CapPrm:" + noCapability + "CapEff:" + noCapability + "CapBnd:" + noCapability + "CapAmb:" + noCapability + "NoNewPrivs:1Seccomp:2"},
	} {
		if r := d.RunJSON(t, "--profile", "host", "--", "bash", "-c", probe.script); r.Stdout != probe.want {
			t.Errorf("%s: %q, want %q; %s", probe.script, r.Stdout, probe.want, r.Stderr)
		}
	}
	if b, err := os.ReadFile(root); string(b) != "of root\n" {
		t.Errorf("root's file: %q, %v", b, err)
	}
}

const noCapability = "0000000000000000"

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Limits, the timeout and the end of a sandbox hold without isolation, too.
func TestUnisolatedEnds(t *testing.T) {
	t.Parallel()
	need.Tools(t, "bash", "sleep", "setsid", "head", "tail")
	d := harness.StartWith(t, unisolated)
	if r := d.RunJSON(t, "--profile", "brief", "--", "sleep", "47110"); !r.TimedOut || r.ExitCode != 124 || r.Duration.Milliseconds() > 15000 {
		t.Errorf("the profile's timeout: %+v", r)
	}
	d.Refused(t, "SBX-102", "run", "--json", "--profile", "brief", "--timeout", "2s", "--", "true")
	if r := d.RunJSON(t, "--profile", "host", "--timeout", "300ms", "--", "bash", "-c", "setsid sleep 47111 & sleep 47112"); !r.TimedOut {
		t.Errorf("a request's timeout: %+v", r)
	}
	if r := d.RunJSON(t, "--profile", "host", "--", "bash", "-c", "head -c 200M /dev/zero | tail"); !r.OOMKilled {
		t.Errorf("the memory limit: %+v", r)
	}
	if r := d.RunJSON(t, "--profile", "host", "--pids", "32", "--", "bash", "-c", "for i in {1..50}; do sleep 47113 & done"); !r.PIDsLimitHit {
		t.Errorf("the limit of processes: %+v", r)
	}
	// Two at once are one user of the host, and none takes the other's processes.
	for _, name := range []string{"a", "b"} {
		d.Run(t, "run", "-d", "--name", name, "--profile", "host", "--pids", "40", "--", "bash", "-c", "for i in {1..20}; do setsid sleep 47114 & done; echo up; sleep 15")
		await(t, "the processes of "+name, func() bool { return d.Run(t, "logs", name).Stdout == "up\n" })
	}
	await(t, "40 processes", func() bool { return len(sleepers(t, "47114")) == 40 })
	d.Run(t, "kill", "a", "1")
	d.Run(t, "stop", "--grace", "1s", "b")
	d.Run(t, "rm", "--force", "a", "b") // a may still be stopping: kill awaits nothing
	for _, of := range []string{"47110", "47111", "47112", "47113", "47114"} {
		await(t, "the end of sleep "+of, func() bool { return len(sleepers(t, of)) == 0 })
	}
}

// sleepers lists the processes of the host with an argument.
func sleepers(t *testing.T, argument string) (pids []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lines {
		if line, _ := os.ReadFile(file); string(line) == "sleep\x00"+argument+"\x00" { // it may have ended
			pids = append(pids, file)
		}
	}
	return pids
}

// A session without isolation survives a killed daemon, and everything tells of it.
//
//caisson:kernel
func TestUnisolatedSession(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, unisolated)
	dir := workspace(t, worker, worker)
	other := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.Mkdir(other, 0o755), syscall.Mount("tmpfs", other, "tmpfs", 0, "size=1m")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(other, syscall.MNT_DETACH) }) // it is gone unless the test failed
	made := d.Run(t, "create", "--profile", "host", "--name", "s", "--workspace", dir, "-e", "A=b", "-l", "x=y")
	if !strings.Contains(made.Stderr, "caisson: warning: "+unisolatedWarning) {
		t.Errorf("create says %q", made.Stderr)
	}
	if _, err := api.Dial(d.Socket).Forward(t.Context(), "s", 80); !errors.Is(err, sbxerr.Unisolated) {
		t.Errorf("a stream to a port of the host: %v", err)
	}
	// Whoever removes the daemon's directory must not remove the host's files: none are there.
	var added []string
	for _, m := range mountTable(t) {
		if strings.Contains(m, d.State+"/sandboxes/") {
			added = append(added, m)
		}
	}
	if len(added) != 2 || !strings.HasSuffix(strings.Split(added[0], ",size=")[0], "tmpfs caisson rw") || !strings.HasSuffix(strings.Split(added[1], ",size=")[0], "tmpfs caisson rw") {
		t.Errorf("mounts of the sandbox on the host: %q", added)
	}
	if out := d.Run(t, "exec", "s", "--", "cat", "/proc/self/mountinfo").Stdout; !strings.Contains(out, " "+other+" ") {
		t.Errorf("a file system of the host is not there: %s", out)
	}
	if r := d.Run(t, "exec", "s", "--", "sh", "-c", "pwd; echo $A; echo written > file; cat /proc/sys/kernel/hostname"); r.Stdout != dir+"\nb\n"+hostname(t)+"\n" || !strings.Contains(r.Stderr, unisolatedWarning) {
		t.Errorf("exec: %+v", r)
	}
	for line := range strings.Lines(d.Run(t, "exec", "s", "--", "cat", "/proc/self/mountinfo").Stdout) {
		f := strings.Fields(line)
		fstype := f[slices.Index(f, "-")+1]
		own := strings.HasPrefix(f[4], "/proc") || strings.HasPrefix(f[4], "/dev")
		if !own && !(strings.Contains(f[5], "nosuid") && strings.Contains(f[5], "nodev")) || strings.HasPrefix(fstype, "cgroup") || fstype == "sysfs" || strings.Contains(line, "sandboxes") || strings.Contains(line, "shared:") {
			t.Errorf("it has the mount %s", line)
		}
	}
	// A file system that is taken off the host is no difference to the declaration, and the
	// sandbox keeps nobody from removing its directory.
	if err := errors.Join(syscall.Unmount(other, 0), os.Remove(other)); err != nil {
		t.Error(err)
	}
	number := start(t, d, "s", "sh", "-c", "while [ ! -e end ]; do sleep 0.05; done; echo ended; exit 9")
	d.Kill(t)
	d.Launch(t)
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := d.Try("wait", "s", number); r.Code != 9 {
		t.Errorf("wait: %+v", r)
	}
	if out := d.Run(t, "logs", "--exec", number, "s").Stdout; out != "ended\n" {
		t.Errorf("logs: %q", out)
	}
	local := filepath.Join(t.TempDir(), "copy")
	d.Run(t, "cp", "s:"+filepath.Join(dir, "file"), local)
	d.Run(t, "cp", local, "s:"+filepath.Join(dir, "back"))
	if st, err := os.Stat(filepath.Join(dir, "back")); err != nil || st.Sys().(*syscall.Stat_t).Uid != worker {
		t.Errorf("a copy into it: %+v, %v", st, err)
	}
	if out := d.Run(t, "ls", "-o", "wide").Stdout; !strings.Contains(out, "ISOLATION") || !strings.HasSuffix(strings.TrimSpace(out), "none") {
		t.Errorf("ls: %s", out)
	}
	var seen struct {
		Isolation, Network string
		Warnings           []string
		Posture            []struct{ Name, Declared, Live string }
		HostIDSize         int `json:"host_id_size"`
	}
	d.Run(t, "inspect", "--all", "s").JSONIn(t, "sandbox", &seen)
	if seen.Isolation != "none" || seen.Network != "host" || seen.HostIDSize != 0 || len(seen.Posture) < 20 || !strings.HasPrefix(strings.Join(seen.Warnings, ""), unisolatedWarning) {
		t.Errorf("inspect: %+v", seen)
	}
	d.Run(t, "update", "s", "--memory", "80M")
	d.Run(t, "pause", "s")
	d.Run(t, "resume", "s")
	for _, event := range []string{"sandbox.created", "sandbox.adopted", "exec.started"} {
		if log := d.Run(t, "audit", "query", "--json", "--type", event).Stdout; !strings.Contains(log, `"isolation":"none"`) {
			t.Errorf("the audit record of %s: %s", event, log)
		}
	}
	if !strings.Contains(d.Log(), "profiles=\"[brief host]\"") {
		t.Errorf("the log names no profiles:\n%s", d.Log())
	}
	if out := d.Try("doctor", "--json").Stdout; !strings.Contains(out, "brief, host run as 43210") {
		t.Errorf("doctor: %s", out)
	}
	d.Run(t, "rm", "--force", "s")
	if b, err := os.ReadFile(filepath.Join(dir, "file")); string(b) != "written\n" {
		t.Errorf("after its end: %q, %v", b, err)
	}
	if r := d.RunJSON(t, "--", "true"); len(r.Warnings) > 0 {
		t.Errorf("strict warns: %q", r.Warnings)
	}
}

func mountTable(t *testing.T) (lines []string) {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}

// Settings that would not be enforced are refused, and nobody gets such a profile who may not
// have it.
func TestUnisolatedRefuses(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, unisolated)
	dir, closed := workspace(t, worker, worker), workspace(t, 0, 0)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{
		{"--image", "base"}, {"--user", "0"}, {"--network", "none"}, {"--network", "open"}, {"--allow", "a.example"}, {"--deny", "a.example"},
		{"--publish", "0:8080"}, {"--expose", "8080"}, {"--mount", "type=tmpfs,dst=/x"}, {"--tmpfs", "1M"}, {"--shm-size", "1M"}, {"--io-read-bps", "1M"}, {"--hostname", "box"}, {"--dns", "192.0.2.53"}, {"--mount", "type=volume,src=v,dst=/v"},
		{"--workspace", dir + ":ro"},
	} {
		d.Refused(t, "SBX-119", append(append([]string{"run", "--json", "--profile", "host"}, flags...), "--", "true")...)
	}
	d.Refused(t, "SBX-119", "create", "--json", "--profile", "host", "--nested")
	d.Refused(t, "SBX-119", "policy", "learn", "--json", "--profile", "host", "--", "true")
	d.Refused(t, "SBX-104", "run", "--json", "--profile", "host", "--workspace", closed, "--", "true")
	d.Refused(t, "SBX-104", "run", "--json", "--profile", "host", "--workspace", "/etc", "--", "true")
	d.Run(t, "create", "--profile", "host", "--name", "s")
	d.Refused(t, "SBX-119", "exec", "--json", "--user", "0", "s", "--", "true")
	d.Refused(t, "SBX-119", "clean", "--json", "s")
	d.Refused(t, "SBX-101", "exec", "--json", "--input", "/etc/hostname:/tmp/x", "s", "--", "true")
	d.Refused(t, "SBX-119", "update", "--json", "s", "--allow", "a.example")
	d.Refused(t, "SBX-119", "update", "--json", "s", "--io-read-bps", "1M")
	d.Refused(t, "SBX-119", "policy", "check", "--json", "--sandbox", "s", "a.example")
	d.Refused(t, "SBX-119", "policy", "check", "--json", "--profile", "host", "a.example")
	d.Run(t, "rm", "--force", "s")
	peer := d.User(t, ann)
	peer.Run(t, "run", "--", "true")
	peer.Refused(t, "SBX-805", "run", "--json", "--profile", "host", "--", "true")
	own := workspace(t, ann, ann)
	if err := os.Chmod(own, 0o755); err != nil {
		t.Fatal(err)
	}
	d.Configure(t, strings.Replace(unisolated, "[54321]", "[54321], profiles: [host]", 1))
	d.Run(t, "config", "reload")
	if out := peer.Run(t, "run", "--profile", "host", "--workspace", own, "--", "sh", "-c", "id -u; pwd").Stdout; out != fmt.Sprintf("%d\n%s\n", worker, own) {
		t.Errorf("a peer's: %q", out)
	}
	peer.Refused(t, "SBX-805", "run", "--json", "--profile", "host", "--workspace", dir, "--", "true")

	for config, reason := range map[string]string{
		"profiles: {h: {isolation: none, timeout: 1s}}\n":                                                     "unisolated.profiles",
		"profiles: {h: {isolation: none}}\nunisolated: {profiles: [h], user: ann1}\n":                         "timeout: isolation none needs one",
		"profiles: {h: {isolation: none, timeout: 1s}}\nunisolated: {profiles: [h]}\n":                        "name the user",
		"profiles: {h: {isolation: none, timeout: 1s}}\nunisolated: {profiles: [h], user: root}\n":            "root is not possible",
		"profiles: {h: {isolation: none, timeout: 1s}}\nunisolated: {profiles: [h], user: nobody}\n":          "nobody's",
		"profiles: {h: {isolation: none, timeout: 1s}}\nunisolated: {profiles: [h], user: no-such-user}\n":    "no user",
		"profiles: {h: {isolation: none, timeout: 1s}}\nunisolated: {profiles: [h], user: 1879048191}\n":      "one of the daemon's processes'",
		"profiles: {strict: {isolation: none, timeout: 1s}}\nunisolated: {profiles: [strict], user: 43210}\n": "built-in profile keeps its isolation",
		"profiles: {h: {}}\nunisolated: {profiles: [h], user: 43210}\n":                                       "no profile with isolation: none",
		"unisolated: {user: 43210}\n": "no profile is named",
		"profiles: {h: {isolation: none, timeout: 1s, image: base, network: {mode: open}}}\nunisolated: {profiles: [h], user: 43210}\n": "cannot be enforced",
		"profiles: {h: {isolation: full}}\n": "is none of",
	} {
		d.Configure(t, config)
		if r := d.Try("config", "reload", "-o", "json"); r.Code != 125 || !strings.Contains(r.Stdout, reason) || !strings.Contains(r.Stdout, "SBX-105") {
			t.Errorf("%q: code %d, %s", config, r.Code, r.Stdout)
		}
	}
	var strict struct {
		Base int `json:"host_id_base"`
	}
	box(t, d, "strict")
	d.Run(t, "inspect", "strict").JSONIn(t, "sandbox", &strict)
	d.Configure(t, strings.Replace(unisolated, "43210", strconv.Itoa(strict.Base+1000), 1))
	d.Run(t, "config", "reload")
	d.Refused(t, "SBX-105", "run", "--json", "--profile", "host", "--", "true")
	d.Configure(t, unisolated)
}

// Many at once share nothing but their user.
func TestUnisolatedAtOnce(t *testing.T) {
	t.Parallel()
	d := harness.StartWith(t, unisolated)
	began := time.Now()
	done := make(chan string, 20)
	for i := range cap(done) {
		go func() {
			r := d.Try("run", "--profile", "host", "--pids", "32", "--", "sh", "-c", fmt.Sprintf("sleep 0.2; echo %d", i))
			done <- fmt.Sprintf("%d %s%s", r.Code, r.Stdout, strings.ReplaceAll(r.Stderr, "caisson: warning: "+unisolatedWarning+"commands run as a user of the host, with the host's files and network\n", ""))
		}()
	}
	seen := map[string]bool{}
	for range cap(done) {
		seen[<-done] = true
	}
	for i := range cap(done) {
		if !seen[fmt.Sprintf("0 %d\n", i)] {
			t.Errorf("%d is missing in %v", i, seen)
		}
	}
	t.Logf("%d in %s", cap(done), time.Since(began))
}
