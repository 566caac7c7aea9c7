package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
)

// repository is a workspace with a directory .git, which has the file config.
func repository(t *testing.T) string {
	t.Helper()
	dir := workspace(t, 4321, 4321)
	for _, sub := range []string{".git", "build"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("kept\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".git", "build", ".git/config"} {
		if err := os.Chown(filepath.Join(dir, name), 4321, 4321); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestMountBelowWorkspace: a read-only bind protects a directory of a writable workspace,
// also in a sandbox from the pool and after a restart of the daemon.
//
//caisson:kernel
func TestMountBelowWorkspace(t *testing.T) {
	d := harness.Start(t)
	dir := repository(t)
	git := "type=bind,src=" + dir + "/.git,dst=/workspace/.git,ro"
	if out := d.Run(t, "run", "--workspace", dir, "--", "sh", "-c", "echo x >> .git/config && echo written").Stdout; out != "written\n" {
		t.Fatalf("without the mount: %q", out)
	}
	const attack = `cat .git/config; touch made
touch .git/x; mv .git away; rm -rf .git; ln -s /tmp .git; umount .git; mount -o remount,rw .git; echo y > .git/config; mkdir .git/hooks; true`
	for _, point := range []string{"/workspace", dir} {
		out := d.Run(t, "run", "--workspace", dir+":"+point, "--mount", strings.Replace(git, "/workspace", point, 1), "--", "sh", "-c", attack).Stdout
		if out != "kept\nx\n" {
			t.Errorf("%s: %q", point, out)
		}
	}
	d.Run(t, "create", "--name", "box", "--workspace", dir, "--mount", git, "--mount", "type=tmpfs,dst=/workspace/build,size=1M")
	d.Kill(t)
	d.Launch(t)
	out := d.Run(t, "exec", "box", "--", "sh", "-c", "touch .git/x || echo refused; head -c 2000000 /dev/zero > build/big || echo full; stat -c %u:%a build").Stdout
	if out != "refused\nfull\n0:1777\n" {
		t.Errorf("after a restart: %q", out)
	}
	for name, want := range map[string]bool{"made": true, ".git/config": true, ".git/x": false, ".git/hooks": false, "away": false, "build/big": false} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMountTypes: binds beside the workspace have its rights, and a tmpfs has its size.
//
//caisson:kernel
func TestMountTypes(t *testing.T) {
	d := harness.Start(t)
	dir, other := workspace(t, 4321, 4321), workspace(t, 77, 77)
	script := `echo hi > /data/out; echo hi > /look/out || echo refused; head -c 3000000 /dev/zero > /scratch/big || echo full
grep -E ' /(data|look|scratch) ' /proc/self/mountinfo | grep -c nosuid,nodev; rm /scratch/big; cp /bin/busybox /scratch/busybox && /scratch/busybox pwd`
	out := d.Run(t, "run", "--mount", "type=bind,source="+dir+",target=/data", "--mount", "type=bind,src="+other+",destination=/look,readonly",
		"--mount", "type=tmpfs,dst=/scratch,tmpfs-size=2m", "--", "sh", "-c", script).Stdout
	if out != "refused\nfull\n3\n/\n" {
		t.Errorf("%q", out)
	}
	want := `"mounts":[{"type":"bind","source":"` + dir + `","target":"/data"},{"type":"bind","source":"` + other + `","target":"/look","read_only":true},` +
		`{"type":"tmpfs","target":"/scratch","size_bytes":2097152}]`
	if audit := d.Run(t, "audit", "query", "--type", "sandbox.created", "-o", "json").Stdout; !strings.Contains(strings.Join(strings.Fields(audit), ""), want) {
		t.Errorf("the audit log has %s, want %s", audit, want)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out")); string(b) != "hi\n" {
		t.Errorf("on the host: %q, %v", b, err)
	}
}

// TestMountRefused: what a mount cannot be is refused, and nothing stays.
func TestMountRefused(t *testing.T) {
	d := harness.Start(t)
	dir := repository(t)
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string][2]string{
		"type=bind,src=" + dir + ",dst=/workspace/none":               {"SBX-104", "no such directory"},
		"type=bind,src=" + dir + ",dst=/workspace/link":               {"SBX-104", "no such directory"},
		"type=bind,src=" + dir + ",dst=/workspace/link/ssl":           {"SBX-104", "no such directory"},
		"type=bind,src=" + dir + ",dst=/workspace/.git/config":        {"SBX-104", "no such directory"},
		"type=bind,src=" + dir + "/.git/absent,dst=/data":             {"SBX-104", "no such file"},
		"type=bind,src=/etc,dst=/data":                                {"SBX-104", "the host's /etc"},
		"type=bind,src=" + dir + ",dst=/proc":                         {"SBX-104", "/proc"},
		"type=volume,src=../v,dst=/data":                              {"SBX-101", "letters, digits"},
		"type=volume,dst=/data":                                       {"SBX-801", "source is missing"},
		"src=" + dir + ",dst=/data":                                   {"SBX-801", "type is missing"},
		"type=bind,src=" + dir + ",dst=/data,bind-propagation=shared": {"SBX-801", "cannot be set"},
	} {
		f := d.Refused(t, want[0], "create", "--workspace", dir, "--mount", value, "--json")
		if !strings.Contains(f.Error.Message, want[1]) {
			t.Errorf("%s: %s", value, f.Error.Message)
		}
	}
	if out := d.Run(t, "ls", "-q").Stdout; out != "" {
		t.Errorf("left behind: %q", out)
	}
}

// TestMountIsNotLedElsewhere: while another sandbox swaps the target for a link, a mount
// lands on the target, or no command runs. Where the target is moved after the mount was
// made, the check of the live sandbox sees it (SBX-605).
//
//caisson:kernel
func TestMountIsNotLedElsewhere(t *testing.T) {
	d := harness.Start(t)
	dir, other := repository(t), workspace(t, 77, 77)
	d.Run(t, "create", "--name", "attacker", "--workspace", dir)
	d.Run(t, "exec", "-d", "attacker", "--", "sh", "-c", "while :; do mv build was; ln -s /tmp build; rm build; mv was build; sleep 0.01; done")
	landed, tries := 0, 0
	for begin := time.Now(); tries < 40 && time.Since(begin) < 15*time.Second; tries++ {
		r := d.Try("run", "--json", "--workspace", dir, "--mount", "type=bind,src="+other+",dst=/workspace/build,ro", "--",
			"sh", "-c", "grep -F "+filepath.Base(other)+" /proc/self/mountinfo | cut -d ' ' -f 5")
		switch {
		case r.Code == 0 && !strings.Contains(r.Stdout, `"/workspace/`):
			t.Fatalf("led elsewhere: %s", r.Stdout)
		case r.Code == 0:
			landed++
		case !strings.Contains(r.Stdout, `"SBX-104"`) && !strings.Contains(r.Stdout, `"SBX-605"`) && !strings.Contains(r.Stdout, `"SBX-206"`):
			t.Errorf("code %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
	if landed == 0 || landed == tries {
		t.Logf("%d of %d landed: the race was not met", landed, tries)
	}
	d.Run(t, "rm", "--force", "attacker")
	d.AwaitNoSandbox(t)
}

// TestFilesOfOthersInAWorkspace: files that do not belong to the workspace's owner are
// readable as their modes say, and stay what they are.
func TestFilesOfOthersInAWorkspace(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"read": 0o644, "closed": 0o600, "open": 0o666} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, 4242, 4343); err != nil {
		t.Fatal(err)
	}
	const script = `stat -c %u read; for f in read closed open; do cat $f 2> /dev/null || echo no; done
echo x 2> /dev/null >> open || echo no; rm read 2> /dev/null || echo no; mv open o 2>&1 | grep -c "too large"; echo new > new; stat -c %u new`
	if out := daemon.Run(t, "run", "--workspace", dir, "--", "sh", "-c", script).Stdout; out != "65534\nread\nno\nopen\nno\nno\n1\n1000\n" {
		t.Errorf("%q", out)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "new"), &st); err != nil || st.Uid != 4242 || st.Gid != 4343 {
		t.Errorf("what the sandbox made belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// TestDirectoriesOfTheHost: by default root's own call gets no directory in which the host
// keeps what it runs, and the refusal names the setting that allows one. A link does not
// help.
func TestDirectoriesOfTheHost(t *testing.T) {
	own, err := os.MkdirTemp("/root", "caisson-test-") // where root alone can write: other links are refused anyway
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(own); err != nil {
			t.Error(err)
		}
	})
	link := filepath.Join(own, "link")
	if err := os.Symlink("/var/log", link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/var/log", "/var/spool", "/var/cache", "/var/backups", link} {
		for _, args := range [][]string{{"--workspace", dir}, {"--mount", "type=bind,src=" + dir + ",dst=/data"}} {
			f := daemon.Refused(t, "SBX-104", append(append([]string{"run", "--json"}, args...), "--", "true")...)
			if !strings.Contains(f.Error.Remedy, "workspaces.allowed_roots") {
				t.Errorf("%s: %+v", dir, f.Error)
			}
		}
	}
	allowed := harness.StartWith(t, "workspaces: {allowed_roots: [/var/log]}\n")
	allowed.Run(t, "run", "--workspace", "/var/log:ro", "--", "ls", "/workspace")
	allowed.Refused(t, "SBX-104", "run", "--json", "--workspace", "/tmp/x", "--", "true")
}
