package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/tests/harness"
)

// ownedFile writes a file with the rights of the workspace that it lies in.
func ownedFile(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMountFiles: a single file of the host is mounted anywhere that a directory can be, also below
// /etc, /run and /usr, on what the image has there or not. What is written reaches the host as its
// owner's; a read-only one cannot be changed or taken off.
//
//caisson:kernel
func TestMountFiles(t *testing.T) {
	d := harness.Start(t)
	dir := workspace(t, 4321, 4321)
	conf, data := ownedFile(t, dir, "conf", "conf\n", 0o600), ownedFile(t, dir, "data", "data\n", 0o600)
	ownedFile(t, dir, ".env", "secret\n", 0o600)
	const script = `cat /etc/app.conf /etc/motd /run/app/conf /var/run/x /usr/local/etc/x /data/out /home/me/.conf /workspace/.env
for f in /etc/app.conf /etc/motd /workspace/.env; do echo bad > $f; rm -f $f; mv $f $f.away; umount $f; mount -o remount,rw $f; done
echo more >> /data/out; stat -c '%u %a' /data/out; cat /etc/passwd /etc/os-release > /dev/null && grep -c ' /etc/app.conf .*ro,nosuid,nodev' /proc/self/mountinfo`
	args := []string{"--workspace", dir}
	for _, m := range []string{"/etc/app.conf,ro", "/etc/motd,ro", "/run/app/conf,ro", "/var/run/x,ro", "/usr/local/etc/x,ro", "/home/me/.conf,ro", "/workspace/.env,ro"} {
		args = append(args, "--mount", "type=bind,src="+conf+",dst="+m)
	}
	args = append(args, "--mount", "type=bind,src="+data+",dst=/data/out")
	want := "conf\nconf\nconf\nconf\nconf\ndata\nconf\nconf\n1000 600\n1\n"
	if out := d.Run(t, append(append([]string{"run"}, args...), "--", "sh", "-c", script)...).Stdout; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	for path, want := range map[string]string{conf: "conf\n", data: "data\nmore\n", dir + "/.env": "secret\n"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s on the host: %q, %v", path, text, err)
		}
	}
	d.Run(t, append([]string{"create", "--name", "box"}, args...)...)
	d.Kill(t)
	d.Launch(t)
	d.Run(t, "restart", "box")
	if out := d.Run(t, "exec", "box", "--", "cat", "/etc/app.conf", "/data/out", "/workspace/.env").Stdout; out != "conf\ndata\nmore\nconf\n" {
		t.Errorf("after restarts of both: %q", out)
	}
	d.Run(t, "rm", "--force", "box")
}

// TestMountFilesRefused: a file that its caller may not read, what is no file, and mounts of a file
// on a directory and the reverse.
func TestMountFilesRefused(t *testing.T) {
	d := harness.Start(t)
	dir := workspace(t, 4321, 4321)
	file := ownedFile(t, dir, "file", "text\n", 0o600)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for mount, want := range map[string]string{
		"src=" + dir + "/socket,dst=/data":               "neither a directory nor a regular file",
		"src=" + dir + "/absent,dst=/data":               "no such file",
		"src=" + file + ",dst=/etc/hosts":                "the sandbox's own",
		"src=" + file + ",dst=/run/caisson/caisson-init": "part of the sandbox's own /run/caisson",
		"src=" + file + ",dst=/usr/bin/x":                "the image's /usr/bin is a symbolic link",
		"src=/etc/passwd,dst=/etc/app.conf":              "part of the host's /etc",
		"src=" + dir + ",dst=/workspace/file":            "no such directory, or no file for a file",
		"src=" + file + ",dst=/workspace/sub":            "no such directory, or no file for a file",
	} {
		r := d.Try("run", "--workspace", dir, "--mount", "type=bind,"+mount, "--", "true")
		if r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: exit %d, %s", mount, r.Code, r.Stderr)
		}
	}
	if out := d.Run(t, "ls", "-a", "-q").Stdout; out != "" {
		t.Errorf("left %q", out)
	}
}
