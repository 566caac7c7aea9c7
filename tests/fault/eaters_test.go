package fault

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// eaten is how much of the kernel's memory may be past what the cgroup of a sandbox is
// charged. Other tests, and the kernel's own caches of free objects, take a few MiB.
const eaten = 32 << 20

// eaters are those of the prober, with how many pieces each of 8 processes takes.
var eaters = map[string]int{
	"pipes": 2000, "unix stream": 2000, "unix dgram": 2000, "unix packet": 2000, "descriptors": 400, "udp": 400, "udp6": 400, "tcp": 200,
	"other sockets": 4000, "socket filters": 4000, "flock": 4000, "leases": 4000, "keys": 4000,
	"timers": 10_000, "timerfds": 4000, "eventfds": 4000, "epolls": 4000, "inotify": 10_000, "memfds": 4000,
	"mqueue": 1000, "sysv shm": 1000, "sysv msg": 4000, "sysv sem": 100, "ptys": 4000, "vmas": 60_000, "page tables": 10_000,
	"inodes": 20_000, "absent names": 100_000, "bpf": 1000, "tun": 1000,
}

// Whatever kernel memory a sandbox takes, it pays for it by its own limit, or does not
// get it. Each eater first shows on the host that it gets something there.
func TestKernelMemoryIsCharged(t *testing.T) {
	dir := proberDir(t)
	namespace := harness.NewNamespace(t)
	for _, name := range need.Turn(t, slices.Sorted(maps.Keys(eaters))) {
		pieces := eaters[name]
		t.Run(name, func(t *testing.T) {
			control := append(namespace.Enter(), "unshare", "--ipc", "--mount", "sh", "-c", `mount -t tmpfs eater /tmp; exec "$@"`, "sh", filepath.Join(dir, "prober"), "eat", name, "2", "1")
			if n, said := ate(t, exec.CommandContext(t.Context(), control[0], control[1:]...), nil); n == 0 {
				harness.Except(t, fmt.Sprintf("the host's root gets none of it: %s", said), true)
			}
			checkCharged(t, dir, name, pieces)
		})
	}
	for _, name := range []string{"udp", "tcp"} { // on cgroup v1 each group has sockets charged, or not
		t.Run(name+" of a command with limits of its own", func(t *testing.T) {
			checkCharged(t, dir, name, eaters[name], "-m", "48M")
			checkCharged(t, dir, name, eaters[name], "--cpus", "1")
		})
	}
}

func checkCharged(t *testing.T, dir, name string, pieces int, flags ...string) {
	t.Helper()
	least := int64(math.MaxInt64)
	for range 6 { // others use the host's memory at the same time
		if least = min(least, pastCharge(t, dir, name, pieces, flags...)); least <= eaten {
			return
		}
	}
	t.Errorf("%d MiB of the kernel's memory were charged to nobody", least>>20)
}

// pastCharge is how much more of the kernel's memory there is while an eater has what it
// gets in a sandbox of 64 MiB than the sandbox is charged.
func pastCharge(t *testing.T, dir, name string, pieces int, flags ...string) int64 {
	t.Helper()
	id := strings.TrimSpace(daemon.Run(t, "create", "-m", "64M", "--workspace", dir+":ro").Stdout)
	defer daemon.Run(t, "rm", "--force", id)
	before, most := kernelMemory(t), int64(0)
	n, said := ate(t, daemon.Command(t.Context(), slices.Concat([]string{"exec", "-i"}, flags, []string{id, "--", "/workspace/prober", "eat", name, fmt.Sprint(pieces), "8"})...), func() {
		most = max(most, kernelMemory(t)-before-charged(t, id))
	})
	t.Logf("%d pieces, stopped by %s: %d KiB of the kernel's memory past the charge", n, said, most>>10)
	return most
}

// proberDir is a directory with the prober of the escape tests.
func proberDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "caisson-prober-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "prober")
	if built := os.Getenv("CAISSON_PROBER"); built != "" {
		data, err := os.ReadFile(built)
		must(t, err)
		must(t, os.WriteFile(path, data, 0o755))
		return dir
	}
	build := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/caisson-run/caisson/tests/escape/prober")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the prober: %v\n%s", err, out)
	}
	return dir
}

// ate runs an eater until it has said what it has, or was ended. Meanwhile and at the end
// look may look at the memory.
func ate(t *testing.T, cmd *exec.Cmd, look func()) (n int, said string) {
	t.Helper()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	must(t, cmd.Start())
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, out)
	}()
	for line := ""; line == ""; {
		select {
		case line = <-lines:
			if line == "" {
				line = "0 ended"
			}
			if _, err := fmt.Sscan(line, &n, &said); err != nil {
				t.Errorf("the eater said %q", line)
			}
		case <-time.After(50 * time.Millisecond): // samples
		}
		if look != nil && said != "ended" { // then the charge is gone, and the memory is about to
			look()
		}
	}
	_ = in.Close()
	_ = cmd.Wait() // the sandbox may have ended it
	return n, strings.TrimSpace(said + " " + complaint.String())
}

// kernelMemory is what of the host's memory is neither free, in the kernel's lists of each
// CPU too, nor a page that holds data of processes or files, nor slabs that the kernel gives
// back by itself.
func kernelMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	must(t, err)
	v := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		var key string
		var kib int64
		if _, err := fmt.Sscan(line, &key, &kib); err == nil {
			v[strings.TrimSuffix(key, ":")] = kib << 10
		}
	}
	return v["MemTotal"] - v["MemFree"] - freeOfCPUs(t) - v["Buffers"] - v["Cached"] - v["AnonPages"] - v["SReclaimable"]
}

// freeOfCPUs returns the free pages in the lists of the CPUs, in bytes. MemFree does not
// count them. Since Linux 6.7 they are up to an eighth of the memory.
func freeOfCPUs(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/zoneinfo")
	must(t, err)
	sum := int64(0)
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "count: %d", &n); err == nil {
			sum += n * int64(os.Getpagesize())
		}
	}
	return sum
}

// charged is what the cgroup of a sandbox is charged within its limits, 0 when it is gone.
func charged(t *testing.T, id string) int64 {
	t.Helper()
	name := filepath.Join(daemon.Instance(), id)
	sum := int64(0)
	for path, limit := range map[string]int64{"memory/" + name + "/memory.usage_in_bytes": 64 << 20, "memory/" + name + "/memory.kmem.tcp.usage_in_bytes": 16 << 20, name + "/memory.current": 64 << 20} {
		var n int64
		if text, err := os.ReadFile("/sys/fs/cgroup/" + path); err == nil {
			_, err = fmt.Sscan(string(text), &n)
			must(t, err)
			sum += min(n, limit) // the kernel charges sockets past their limit
		}
	}
	return sum
}
