package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/tests/harness"
)

// ioFile is a file of 8 MiB in a workspace, and the disk that holds it.
type ioFile struct {
	dir, disk string
	v2        bool
}

func newIOFile(t *testing.T) ioFile {
	t.Helper()
	f := ioFile{dir: workspace(t, 1000, 1000)}
	file, err := os.Create(filepath.Join(f.dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(bytes.Repeat([]byte{7}, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	dev, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dev, "partition")); err == nil {
		dev = filepath.Dir(dev)
	}
	number, err := os.ReadFile(filepath.Join(dev, "dev"))
	if err != nil {
		t.Fatal(err)
	}
	f.disk = strings.TrimSpace(string(number))
	_, err = os.Stat("/sys/fs/cgroup/cgroup.controllers")
	f.v2 = err == nil
	return f
}

// read has the sandbox read the file from the disk, and returns how long that takes.
func (f ioFile) read(t *testing.T, d *harness.Daemon, ref string, flags ...string) time.Duration {
	t.Helper()
	file, err := os.Open(filepath.Join(f.dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	return timed(t, d, ref, flags, "wc -c < data", "8388608\n")
}

func timed(t *testing.T, d *harness.Daemon, ref string, flags []string, script, want string) time.Duration {
	t.Helper()
	began := time.Now()
	args := append(append([]string{"exec"}, flags...), ref, "--", "sh", "-c", script)
	if got := d.Run(t, args...).Stdout; got != want {
		t.Fatalf("%s: %q", script, got)
	}
	return time.Since(began)
}

// rate returns the rates of the disk in the kernel. 0 is unbounded.
func (f ioFile) rate(t *testing.T, d *harness.Daemon, ref string) (read, write int64) {
	t.Helper()
	group := inspect(t, d, ref).Cgroup
	file := filepath.Join("/sys/fs/cgroup/blkio", group, "blkio.throttle.read_bps_device")
	if f.v2 {
		file = filepath.Join("/sys/fs/cgroup", group, "io.max")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		values, ok := strings.CutPrefix(line, f.disk+" ")
		switch {
		case !ok:
			continue
		case f.v2: // an absent bound is "max", which is no number
			for field := range strings.FieldsSeq(values) {
				_, _ = fmt.Sscanf(field, "rbps=%d", &read)
				_, _ = fmt.Sscanf(field, "wbps=%d", &write)
			}
		default:
			if _, err := fmt.Sscan(values, &read); err != nil {
				t.Fatal(err)
			}
		}
	}
	return read, write
}

func (f ioFile) wantRead(t *testing.T, d *harness.Daemon, ref string, want int64) {
	t.Helper()
	if read, write := f.rate(t, d, ref); read != want || write != 0 {
		t.Errorf("%s: the kernel has rates of %d and %d, want %d and none", ref, read, write, want)
	}
}

// 8 MiB at 2 MiB a second take 4 seconds, of which the kernel lets some pass at once.
const (
	slowRead = 3 * time.Second
	fastRead = 2 * time.Second
)

// A rate of reads holds for a workspace, for commands with limits of their own, after a change
// and a restart, and for sandboxes that the sandbox makes.
//
//caisson:kernel
func TestIORates(t *testing.T) {
	t.Parallel()
	f := newIOFile(t)
	d := harness.StartWith(t, "profiles: {slow: {io_read_bps: 3M}}\npools: [{size: 1}]\n")
	box(t, d, "free", "--workspace", f.dir)
	f.wantRead(t, d, "free", 0)
	if took := f.read(t, d, "free"); took > fastRead {
		t.Fatalf("without a rate the file takes %s: nothing can be told here", took)
	}
	awaitReady(t, d, 1)
	hits := poolOf(t, d).Hits
	box(t, d, "box", "--workspace", f.dir, "--io-read-bps", "2M")
	if poolOf(t, d).Hits != hits+1 {
		t.Error("it was not from the pool")
	}
	f.wantRead(t, d, "box", 2<<20)
	if took := f.read(t, d, "box"); took < slowRead {
		t.Errorf("with 2M a second the file takes %s", took)
	}
	if took := f.read(t, d, "box", "-m", "64M"); took < slowRead {
		t.Errorf("a command with limits of its own: the file takes %s", took)
	}
	d.Run(t, "update", "--io-read-bps", "64M", "box")
	f.wantRead(t, d, "box", 64<<20)
	if took := f.read(t, d, "box"); took > fastRead {
		t.Errorf("with 64M a second the file takes %s", took)
	}
	d.Run(t, "update", "--io-read-bps", "2M", "box")
	d.Run(t, "update", "--io-read-bps", "unbounded", "box")
	f.wantRead(t, d, "box", 0)
	if took := f.read(t, d, "box"); took > fastRead {
		t.Errorf("without the rate that it had the file takes %s", took)
	}
	if got := d.Run(t, "inspect", "box", "-o", "json").Stdout; strings.Contains(got, "io_read_bps") {
		t.Errorf("inspect without a rate: %s", got)
	}
	box(t, d, "slow", "--profile", "slow")
	f.wantRead(t, d, "slow", 3<<20)
	box(t, d, "cold", "--hostname", "cold", "--io-read-bps", "5M")
	f.wantRead(t, d, "cold", 5<<20)
	in := nestedBox(t, d, "outer", "--io-read-bps", "2M")
	in.run(t, smallBox("child")...)
	f.wantRead(t, d, "child", 2<<20)
	in.refused(t, "SBX-805", smallBox("fast", "--io-read-bps", "4M")...)
	in.refused(t, "SBX-805", "update", "-o", "json", "--io-read-bps", "unbounded", "child")

	d.Kill(t)
	d.Launch(t)
	for ref, want := range map[string]int64{"free": 0, "box": 0, "slow": 3 << 20, "cold": 5 << 20} {
		f.wantRead(t, d, ref, want)
	}
	d.Run(t, "update", "--io-read-bps", "2M", "free")
	f.wantRead(t, d, "free", 2<<20)
	if took := f.read(t, d, "free"); took < slowRead {
		t.Errorf("with a rate that it got later the file takes %s", took)
	}
	if got := d.Run(t, "inspect", "free", "-o", "json").Stdout; !strings.Contains(got, `"io_read_bps":2097152`) || strings.Contains(got, "io_write_bps") {
		t.Errorf("inspect: %s", got)
	}
}

// Rates that cannot be enforced are refused. Writes are bounded on cgroup v2.
//
//caisson:kernel
func TestIORatesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newIOFile(t)
	box(t, daemon, "rates", "--workspace", f.dir)
	for _, flag := range []string{"--io-read-bps", "--io-write-bps"} {
		for _, bad := range []string{"0", "1K", "2T", "x"} {
			daemon.Refused(t, "SBX-102", "run", "-o", "json", flag, bad, "--", "true")
			daemon.Refused(t, "SBX-102", "update", "-o", "json", flag, bad, "rates")
		}
	}
	spec := daemon.Run(t, "spec", "--workspace", f.dir, "--io-read-bps", "2M", "--", "true").Stdout
	if !strings.Contains(spec, "throttleReadBpsDevice") || !strings.Contains(spec, f.disk+" ") {
		t.Errorf("the spec has no rate for disk %s:\n%s", f.disk, spec)
	}
	if !f.v2 {
		for _, args := range [][]string{
			{"run", "-o", "json", "--io-write-bps", "2M", "--", "true"},
			{"update", "-o", "json", "--io-write-bps", "2M", "rates"},
		} {
			if got := daemon.Refused(t, "SBX-502", args...); !strings.Contains(got.Error.Remedy, "cgroup v2") {
				t.Errorf("%q: %+v", args, got)
			}
		}
		f.wantRead(t, daemon, "rates", 0)
		return
	}
	const write = "dd if=/dev/zero of=new bs=1M count=8 conv=fsync 2>/dev/null"
	if took := timed(t, daemon, "rates", nil, write, ""); took > fastRead {
		t.Fatalf("without a rate the writes take %s: nothing can be told here", took)
	}
	daemon.Run(t, "update", "--io-write-bps", "2M", "rates")
	if read, wrote := f.rate(t, daemon, "rates"); read != 0 || wrote != 2<<20 {
		t.Errorf("the kernel has rates of %d and %d", read, wrote)
	}
	if took := timed(t, daemon, "rates", nil, write, ""); took < slowRead {
		t.Errorf("with 2M a second the writes take %s", took)
	}
	daemon.Run(t, "update", "--io-write-bps", "unbounded", "rates")
	if read, wrote := f.rate(t, daemon, "rates"); read != 0 || wrote != 0 {
		t.Errorf("taken away, the kernel has rates of %d and %d", read, wrote)
	}
}

// What is killed while it waits for a disk at its rate ends at once, and not when it has all:
// a command, one with limits of its own, what clean ends, and a sandbox.
//
//caisson:kernel
func TestKilledWhileItReads(t *testing.T) {
	t.Parallel()
	f := newIOFile(t)
	const rate, soon = 64 << 10, 20 * time.Second // the file takes 128 seconds
	box(t, daemon, "stuck", "--workspace", f.dir, "--io-read-bps", "64K")
	read := []string{"stuck", "--", "dd", "if=data", "of=/dev/null", "bs=8M", "iflag=direct"}
	within := func(what string, code int, args ...string) {
		t.Helper()
		began := time.Now()
		if r := daemon.Try(args...); r.Code != code || time.Since(began) > soon {
			t.Errorf("%s: code %d after %s\n%s%s", what, r.Code, time.Since(began), r.Stdout, r.Stderr)
		}
	}
	within("a timeout", 124, append([]string{"exec", "--timeout", "1s"}, read...)...)
	f.wantRead(t, daemon, "stuck", rate)
	within("a timeout of a command with limits", 124, append([]string{"exec", "--timeout", "1s", "-m", "64M"}, read...)...)
	f.wantRead(t, daemon, "stuck", rate)
	daemon.Run(t, append([]string{"exec", "-d"}, read...)...)
	awaitRead(t, "stuck")
	within("clean", 0, "clean", "stuck")
	f.wantRead(t, daemon, "stuck", rate)
	daemon.Run(t, append([]string{"exec", "-d"}, read...)...)
	awaitRead(t, "stuck")
	within("removal", 0, "rm", "--force", "stuck")
}

// awaitRead returns when a process of the sandbox waits for a disk (state D of proc_pid_stat(5)).
// It looks from outside: a program that starts inside may have to wait for the disk, too.
func awaitRead(t *testing.T, name string) {
	t.Helper()
	var box struct {
		PID int `json:"pid"`
	}
	if daemon.Run(t, "inspect", name).JSONIn(t, "sandbox", &box); box.PID == 0 {
		t.Fatalf("%s has no PID", name)
	}
	await(t, "a read that waits", func() bool { return slices.Contains(statesBelow(t, box.PID), "D") })
}

// statesBelow are the states of the processes that a process and its descendants started.
func statesBelow(t *testing.T, pid int) (states []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if parent, _ := strconv.Atoi(fields[1]); parent == pid {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			states = append(append(states, fields[0]), statesBelow(t, child)...)
		}
	}
	return states
}
