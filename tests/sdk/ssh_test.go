package sdk

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

// startSSHD starts OpenSSH's server for root, and returns a PATH whose ssh trusts and is trusted by
// it. What logs in finds caisson, and the socket of d.
func startSSHD(t *testing.T, d *harness.Daemon) (path, port string) {
	t.Helper()
	need.Tools(t, "ssh", "ssh-keygen")
	const program = "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		need.Missing(t, "openssh-server")
	}
	switch err := os.Mkdir("/run/sshd", 0o755); { // where it separates privileges, whatever its configuration
	case err == nil:
		t.Cleanup(func() { _ = os.Remove("/run/sshd") })
	case !os.IsExist(err):
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"host", "login"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file(name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	_, port, err := net.SplitHostPort(harness.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	bin := os.Getenv("CAISSON_BIN_DIR")
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%s\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nSetEnv PATH=%s:%s CAISSON_SOCKET=%s\n",
		port, file("host"), file("login.pub"), bin, os.Getenv("PATH"), d.Socket)
	wrapper := fmt.Sprintf("#!/bin/sh\nexec /usr/bin/ssh -F none -i %s -o UserKnownHostsFile=%s -o StrictHostKeyChecking=accept-new -o LogLevel=ERROR \"$@\"\n", file("login"), file("known"))
	if err := os.WriteFile(file("sshd.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("ssh"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	sshd := exec.Command(program, "-D", "-e", "-f", file("sshd.conf"))
	sshd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := &strings.Builder{}
	sshd.Stderr = log
	if err := sshd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sshd.Process.Signal(syscall.SIGTERM)
		_ = sshd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", log)
		}
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("sshd does not listen: %v", err)
		}
	}
	return dir + ":" + os.Getenv("PATH"), port
}

const sshPython = `
import asyncio, os
from caisson import AsyncClient, AsyncSandbox, Client, Sandbox
host = os.environ["CAISSON_HOST"]
with Client() as client:
    with Sandbox.create(client=client) as box:
        print(box.run("cat", input="to and fro").stdout)
        box.files.write("/tmp/file", b"x" * 3000000)
        print(len(box.files.read("/tmp/file")))
async def main():
    async with AsyncClient(host=host) as client:
        async with await AsyncSandbox.create(client=client) as box:
            print((await box.run("echo async")).stdout.strip())
asyncio.run(main())
`

const sshTypeScript = `
import { Client, Sandbox } from '@caisson-run/caisson'
const client = new Client({ host: process.env.CAISSON_HOST })
const box = await Sandbox.create({ client })
console.log((await box.run('cat', { input: 'to and fro' })).stdout)
await box.files.write('/tmp/file', 'x'.repeat(3000000))
console.log((await box.files.read('/tmp/file')).length)
await box.remove()
`

// ssh:// works with OpenSSH's own client and server, for the command line and both SDKs. Nothing
// of ssh is left when they end.
func TestSSH(t *testing.T) {
	need.Tools(t, "python3", "node", "npm")
	d := harness.StartWith(t, "")
	path, port := startSSHD(t, d)
	home := t.TempDir()
	host := "ssh://root@127.0.0.1:" + port
	env := []string{"HOME=" + home, "PATH=" + path, "CAISSON_HOST=" + host, "PYTHONDONTWRITEBYTECODE=1"}
	run := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson"), args...)
		cmd.Stdin, cmd.Env = strings.NewReader(stdin), env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := run("to and fro", "run", "-i", "--", "cat"); out != "to and fro" {
		t.Errorf("caisson: %q", out)
	}
	big := strings.Repeat("x", 20<<20)
	if out := run(big, "run", "-i", "--", "cat"); out != big {
		t.Errorf("%d of %d bytes came back", len(out), len(big))
	}
	cmd := exec.Command(filepath.Join(os.Getenv("CAISSON_BIN_DIR"), "caisson"), "run", "--json", "--", "true")
	cmd.Env = []string{"HOME=" + home, "PATH=" + path, "CAISSON_HOST=ssh://nobody@127.0.0.1:" + port}
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "SBX-802") || !strings.Contains(string(out), "Permission denied") {
		t.Errorf("a login that is refused: %s", out)
	}
	if out := runProgram(t, sourceDir, env, "python3", "-W", "error", "-c", sshPython); out != "to and fro\n3000000\nasync\n" {
		t.Errorf("Python: %s", out)
	}
	if out := runProgram(t, installTypeScript(t), env, "node", "--input-type=module", "-e", sshTypeScript); out != "to and fro\n3000000\n" {
		t.Errorf("TypeScript: %s", out)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left, _ := exec.Command("pgrep", "-af", "-- -l root -p "+port).Output() // status 1: none
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %s", left)
		}
	}
}
