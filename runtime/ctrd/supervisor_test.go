package ctrd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// daemonEnv makes this test binary play a daemon that is about to be killed.
const daemonEnv = "CTRD_TEST_DAEMON"

func TestMain(m *testing.M) {
	if dirs := os.Getenv(daemonEnv); dirs != "" {
		playDaemon(dirs)
	}
	os.Exit(m.Run())
}

// playDaemon supervises a server, says so, and waits to be killed.
func playDaemon(dirs string) {
	f := strings.Split(dirs, ",")
	s, err := Supervise(context.Background(), ServerConfig{Paths: Paths{Root: f[0], State: f[1]}, BinDir: f[2]})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Status().PID)
	select {}
}

// The server of a daemon that is killed ends too; the sandbox lives on, and the
// next daemon finds it.
func TestDaemonKilled(t *testing.T) {
	p, bin := scratch(t), binDir(t)
	daemon := exec.Command(os.Args[0])
	daemon.Env = append(os.Environ(), daemonEnv+"="+strings.Join([]string{p.Root, p.State, bin}, ","))
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var server int
	if _, scanErr := fmt.Sscan(line, &server); scanErr != nil {
		t.Fatalf("the daemon said %q: %v", line, err)
	}
	e, err := openEngine(t.Context(), EngineConfig{Address: p.Socket(), Namespace: "ctrdtest",
		Shim: filepath.Join(bin, ShimProgram), Runc: filepath.Join(bin, "runc"), RuncRoot: p.RuncRoot()})
	if err != nil {
		t.Fatal(err)
	}
	pid := start(t, e, sandbox(t, "orphan"))

	kill(t, daemon.Process.Pid)
	daemon.Wait() // killed by us: no error of interest
	await(t, "the end of the server", func() bool { return !alive(server) })
	if !alive(pid) {
		t.Fatal("the sandbox died with the daemon")
	}

	s, err := Supervise(t.Context(), ServerConfig{Paths: p, BinDir: bin})
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, e, "orphan", StatusRunning)
	if err := errors.Join(e.Delete(t.Context(), "orphan"), e.Close()); err != nil {
		t.Error(err)
	}
	s.Stop()
	s.Stop()
	if _, held := socketHolder(p.Socket()); held || s.Status().PID != 0 {
		t.Error("the server runs after Stop")
	}
}

// A server that outlived its daemon all the same is ended, not worked around.
func TestTakeover(t *testing.T) {
	p, bin := scratch(t), binDir(t)
	if err := writeLayout(p); err != nil {
		t.Fatal(err)
	}
	old := exec.Command(filepath.Join(bin, "containerd"), "--config", p.config())
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- old.Wait() }()
	// Also one that does not serve yet, and so holds no socket: as soon as it has its
	// arguments, which execve(2) gives it after it closed the files that tell of it.
	await(t, "its arguments", func() bool { return isServer(old.Process.Pid, p.config()) })
	s, err := Supervise(t.Context(), ServerConfig{Paths: p, BinDir: bin})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Errorf("the old server %d still runs", old.Process.Pid)
		old.Process.Kill()
	}
}

func TestForeignListener(t *testing.T) {
	p, bin := scratch(t), binDir(t)
	if err := writeLayout(p); err != nil {
		t.Fatal(err)
	}
	listen(t, p.Socket())
	_, err := Supervise(t.Context(), ServerConfig{Paths: p, BinDir: bin})
	if !errors.Is(err, sbxerr.Locked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("supervise: %v, want %s that names process %d", err, sbxerr.Locked, os.Getpid())
	}
}

// A server that cannot start is reported with its own words.
func TestServerBroken(t *testing.T) {
	bin := binDir(t)
	cfg := ServerConfig{Paths: scratch(t), BinDir: t.TempDir()}
	for _, name := range append(EnginePrograms(), "runc") {
		text := "#!/bin/sh\necho the disk is on fire >&2\nexit 3\n"
		if err := os.WriteFile(filepath.Join(cfg.BinDir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Supervise(t.Context(), cfg)
	if !errors.Is(err, sbxerr.EngineDown) || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("supervise: %v", err)
	}
	cfg.BinDir = filepath.Join(bin, "none")
	_, err = Supervise(t.Context(), cfg)
	if !errors.Is(err, sbxerr.Binary) || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("supervise without binaries: %v, want four lines", err)
	}
}

// What we disable is off, and what is left is what we know of: a new containerd
// must not bring something along unnoticed.
func TestPlugins(t *testing.T) {
	e := connect(t, supervise(t))
	r, err := e.client.IntrospectionService().Plugins(namespaces.WithNamespace(t.Context(), "ctrdtest"))
	if err != nil {
		t.Fatal(err)
	}
	var loaded []string
	for _, p := range r.Plugins {
		name := p.Type + "." + p.ID
		if p.InitErr != nil {
			t.Errorf("plugin %s: %s", name, p.InitErr.Message)
		}
		loaded = append(loaded, name)
	}
	for _, name := range disabledPlugins {
		if slices.Contains(loaded, name) {
			t.Errorf("plugin %s is on", name)
		}
	}
	slices.Sort(loaded)
	golden(t, "plugins.txt", strings.Join(loaded, "\n")+"\n")
}

func TestServerConfig(t *testing.T) {
	golden(t, "config.toml", serverConfig(Paths{Root: "/var/lib/caisson", State: "/run/caisson"}))
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update writes it):\n%s", path, got)
	}
}

func TestPaths(t *testing.T) {
	long := "/" + strings.Repeat("a", maxState)
	for _, tt := range []struct {
		root, state string
		reasons     int
	}{
		{"/var/lib/caisson", "/run/caisson", 0},
		{"/r", long[:maxState], 0},
		{"/r", long, 1},
		{"", "", 2},
		{"/", "relative", 2},
		{"/a/../b", "/a/", 2},
		{"/a:b", "/a,b", 2},
		{"/a\nb", `/a"b`, 2},
		{`/a\b`, "/a'b", 2},
	} {
		err := Paths{tt.root, tt.state}.Check()
		if got := count(err); got != tt.reasons {
			t.Errorf("%q, %q: %d reasons, want %d: %v", tt.root, tt.state, got, tt.reasons, err)
		}
		if err != nil && !errors.Is(err, sbxerr.DaemonConf) {
			t.Errorf("%v is not %s", err, sbxerr.DaemonConf)
		}
	}
}

func count(err error) int {
	if err == nil {
		return 0
	}
	return strings.Count(err.Error(), "\n") + 1
}

func TestBoundedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		fmt.Fprintf(l, "line %02d, which is 25 bytes\n", i)
	}
	var total int64
	for _, p := range []string{path, path + ".1"} {
		st, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > 100 {
			t.Errorf("%s has %d bytes", p, st.Size())
		}
		total += st.Size()
	}
	if total < 100 {
		t.Errorf("only %d bytes are kept", total)
	}
	if last, err := os.ReadFile(path); err != nil || !strings.Contains(string(last), "line 99") || !strings.Contains(l.Tail(), "line 99") {
		t.Errorf("the end is not kept: %q, %v", last, err)
	}
	if len(l.Tail()) > tailSize {
		t.Errorf("the tail has %d bytes", len(l.Tail()))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n, err := io.WriteString(l, "after"); n != 5 || err != nil {
		t.Errorf("write after close: %d, %v; it must not fail", n, err)
	}
}

// A log that cannot be written to must not stop the server's output.
func TestBoundedLogWithoutRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := openLog(filepath.Join(dir, "log"), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if n, err := io.WriteString(l, "0123456789"); n != 10 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		io.WriteString(l, "0123456789")
	}
	if data, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || len(data) == 0 {
		t.Errorf("it did not come back: %q, %v", data, err)
	}
}

func TestCgroupProcs(t *testing.T) {
	hybrid := "24 1 0:21 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n" +
		"25 24 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
		"26 24 0:23 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"27 24 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
		"28 24 0:25 /part /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	for _, tt := range []struct {
		what, mounts, cgroup string
		want                 []string
	}{
		{"v2", "25 24 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n", "0::/system.slice/x.service\n",
			[]string{"/sys/fs/cgroup/system.slice/x.service/cgroup.procs"}},
		{"hybrid", hybrid, "4:pids:/p\n3:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/u\n", []string{
			"/sys/fs/cgroup/unified/u/cgroup.procs",
			"/sys/fs/cgroup/cpu,cpuacct/c/cgroup.procs",
			"/sys/fs/cgroup/systemd/s/cgroup.procs"}},
		{"nothing", "", "0::/\n", nil},
		{"garbage", "a b c\n", ":::\nx\n", nil},
	} {
		if got := cgroupProcs([]byte(tt.mounts), []byte(tt.cgroup)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}
