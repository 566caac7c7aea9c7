package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

const fillDisk = "dd if=/dev/zero of=big bs=1M; rm big; i=0; while touch $i; do i=$((i+1)); [ $i -lt 2000 ] || exit 9; done"

// TestDisk: a sandbox writes to its own disk, as far as that goes, and finds it again after
// the daemon was killed. Nothing stays of it.
func TestDisk(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "profiles: {own: {disk: 32M, disk_inodes: 1000}}\npeers: [{uids: [54321], limits: {disk: 64M}, profiles: [own]}]\n")
	d.Run(t, "create", "--name", "b", "--profile", "own")
	r := d.Try("exec", "b", "--", "sh", "-c", "pwd; echo kept > f; "+fillDisk)
	if r.Stdout != "/workspace\n" || strings.Count(r.Stderr, "No space left on device") != 2 {
		t.Errorf("code %d, %q%q", r.Code, r.Stdout, r.Stderr)
	}
	wantFull(t, d)
	d.Kill(t)
	d.Launch(t)
	if got := d.Run(t, "exec", "b", "--", "sh", "-c", "cat f; rm 0; touch new").Stdout; got != "kept\n" {
		t.Errorf("after a restart: %q", got)
	}
	if got := d.Run(t, "run", "--disk", "16M", "--workspace", t.TempDir(), "--", "sh", "-c", "grep -c ^/dev/loop /proc/mounts; pwd"); got.Stdout != "0\n/workspace\n" {
		t.Errorf("with a workspace: %q", got.Stdout)
	}
	for _, bad := range [][]string{{"--disk", "1M"}, {"--disk", "2T"}, {"--disk-inodes", "300"}, {"--disk", "16M", "--disk-inodes", "5000"}, {"--disk", "16M", "--disk-inodes", "9"}} {
		d.Refused(t, "SBX-102", append(append([]string{"run", "-o", "json"}, bad...), "--", "true")...)
	}
	d.Refused(t, "SBX-234", "run", "-o", "json", "--disk", "1T", "--", "true")
	d.Refused(t, "SBX-101", "run", "-o", "json", "--disk", "16M", "--mount", "type=tmpfs,target=/workspace/x", "--", "true")
	user := d.User(t, ann)
	user.Run(t, "run", "--disk", "64M", "--", "true")
	user.Refused(t, "SBX-805", "run", "-o", "json", "--disk", "65M", "--", "true")
	d.Run(t, "rm", "--force", "b")
	wantNoDisks(t, d)
}

// wantFull checks what is told of a command that failed since the disk is full, and that one
// which fails for another reason is not told so.
func wantFull(t *testing.T, d *harness.Daemon) {
	t.Helper()
	r := d.Try("exec", "b", "--", "touch", "more")
	if r.Code != 1 || !strings.Contains(r.Stderr, "the sandbox's disk was full") {
		t.Errorf("in a full disk: %d, %s", r.Code, r.Stderr)
	}
	if got := d.Try("exec", "--json", "b", "--", "touch", "more").Stdout; !strings.Contains(got, `"disk"`) {
		t.Errorf("the result: %s", got)
	}
	if got := d.Run(t, "events", "--since", "1h", "--filter", "type=limit.hit", "-o", "json").Stdout; !strings.Contains(got, `"disk"`) {
		t.Errorf("events: %s", got)
	}
	if r := d.Try("run", "--disk", "16M", "--", "false"); strings.Contains(r.Stderr, "full") {
		t.Errorf("in an empty one: %s", r.Stderr)
	}
}

// wantNoDisks looks for what disks leave on the host. Those of ready sandboxes go with the
// daemon.
func wantNoDisks(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Run(t, "cleanup")
	d.Stop(t)
	if left, err := os.ReadDir(filepath.Join(d.Root, "disks")); err != nil || len(left) > 0 {
		t.Errorf("disks are left: %v, %v", left, err)
	}
	for end := time.Now().Add(10 * time.Second); loopsOf(t, d.Root) != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("loop devices are left: %s", loopsOf(t, d.Root))
		}
	}
}

func loopsOf(t *testing.T, root string) (found string) {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), root) {
			found += string(text)
		}
	}
	return found
}

// TestDiskOfAReadySandbox: a pool with a disk serves requests with the same one alone.
func TestDiskOfAReadySandbox(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "profiles: {strict: {disk: 32M}}\npools: [{size: 1}]\n")
	awaitReady(t, d, 1)
	hits := poolOf(t, d).Hits
	const look = "df -k /workspace | awk 'NR > 1 {print ($2 > 20000)}'; touch /workspace/x && echo written"
	if got := d.Run(t, "run", "--", "sh", "-c", look).Stdout; got != "1\nwritten\n" || poolOf(t, d).Hits != hits+1 {
		t.Errorf("%q, hits %d of %d", got, poolOf(t, d).Hits, hits)
	}
	awaitReady(t, d, 1)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	d.Run(t, "run", "--disk", "16M", "--", "touch", "/workspace/x")
	if poolOf(t, d).Hits != hits+1 {
		t.Error("a request for another disk was served from the pool")
	}
	d.Run(t, "run", "--workspace", dir, "--", "touch", "/workspace/x") // it covers the directory on the disk
	if _, err := os.Stat(filepath.Join(dir, "x")); err != nil || poolOf(t, d).Hits != hits+2 {
		t.Errorf("with a workspace of the host: %v, %d hits of %d", err, poolOf(t, d).Hits, hits)
	}
	wantNoDisks(t, d)
}

// TestWritableRoot: what is written to the root is there after the daemon was killed, for root
// inside with its seven capabilities. A profile without root_user grants no root, and without
// --rootfs rw nothing can be written.
func TestWritableRoot(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "sandboxes: {disk: 64M}\nprofiles: {dev: {seccomp: compat, rootfs: rw, root_user: setup}, plain: {root_user: plain}}\n")
	d.Run(t, "create", "--name", "b", "--profile", "dev", "--user", "root")
	const change = "mkdir /usr/new && mv /bin /bin2 && /bin2/busybox cp /bin2/busybox /x && /bin2/busybox chown 1000:1000 /x && /bin2/busybox chmod 4755 /x"
	d.Run(t, "exec", "b", "--", "/bin/sh", "-c", change)
	d.Kill(t)
	d.Launch(t)
	if got := d.Run(t, "exec", "b", "--", "/bin2/busybox", "sh", "-c", "/bin2/busybox id -u; /bin2/busybox grep CapBnd /proc/self/status; /bin2/busybox mknod /n c 1 3 || echo none").Stdout; got != "0\nCapBnd:\t00000000000000fb\nnone\n" {
		t.Errorf("after a restart: %q", got)
	}
	if r := d.Try("run", "--profile", "plain", "--user", "root", "--", "sh", "-c", "id -u; grep -c ^Cap...:.*[1-9a-f] /proc/self/status; touch /x"); r.Stdout != "0\n0\n" || !strings.Contains(r.Stderr, "Read-only") {
		t.Errorf("root without capabilities: %q%q", r.Stdout, r.Stderr)
	}
	if got := d.Run(t, "run", "--rootfs", "rw", "--", "sh", "-c", "touch $HOME/x && rmdir /usr || echo $HOME").Stdout; got != "/home/caisson\n" {
		t.Errorf("of an unprivileged user: %q", got)
	}
	d.Refused(t, "SBX-205", "run", "-o", "json", "--rootfs", "rw", "--user", "root", "--", "true")
	d.Refused(t, "SBX-101", "run", "-o", "json", "--rootfs", "rx", "--", "true")
	d.Run(t, "rm", "--force", "b")
	wantNoDisks(t, d)
}

// TestProfileDev: the built-in profile has root inside, whose HOME is /root, and whose packages
// can be anywhere.
func TestProfileDev(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "peers: [{uids: [54321]}]\n")
	const install = "whoami; echo $HOME; echo x >/usr/local/bin/tool && chown 1:1 /usr/local/bin/tool && stat -c %u /usr/local/bin/tool; pwd; touch new && echo written"
	if got := d.Run(t, "run", "--profile", "dev", "--", "sh", "-c", install).Stdout; got != "root\n/root\n1\n/workspace\nwritten\n" {
		t.Errorf("inside: %q", got)
	}
	d.User(t, ann).Refused(t, "SBX-805", "run", "-o", "json", "--profile", "dev", "--", "true")
	wantNoDisks(t, d)
}

// TestFullRootAndWorkspace: root inside fills root and workspace at once, with bytes and with
// files. Both are told as full, and what is removed in one is room in the other.
func TestFullRootAndWorkspace(t *testing.T) {
	need.Tools(t, "mkfs.ext4")
	t.Parallel()
	d := harness.StartWith(t, "")
	d.Run(t, "create", "--name", "b", "--profile", "dev", "--disk", "32M", "--disk-inodes", "1000")
	sh := func(script string) harness.Result { return d.Try("exec", "b", "--", "sh", "-c", script) }
	const files = "i=0; while touch $i; do i=$((i+1)); [ $i -lt 2000 ] || exit 9; done"
	for what, fill := range map[string]string{"bytes": "dd if=/dev/zero of=big bs=64k", "files": files} {
		r := sh("mkdir -p /root/d /workspace/d; for at in /root/d /workspace/d; do (cd $at; " + fill + ") & done; wait; exit 3")
		if r.Code != 3 || strings.Count(r.Stderr, "No space left on device") != 2 || !strings.Contains(r.Stderr, "disk was full") {
			t.Errorf("%s: code %d, %s", what, r.Code, r.Stderr)
		}
		if r := sh("head -c 200000 /dev/zero > /etc/more"); r.Code == 0 {
			t.Errorf("%s: the root has room: %s", what, r.Stderr)
		}
		if r := sh("rm -r /workspace/d; echo more > /etc/more && rm -r /etc/more /root/d /etc/profile && echo room"); r.Stdout != "room\n" {
			t.Errorf("%s, with room again: %d, %q%s", what, r.Code, r.Stdout, r.Stderr)
		}
		sh("touch /etc/profile")
	}
	d.Run(t, "rm", "--force", "b")
	wantNoDisks(t, d)
}
