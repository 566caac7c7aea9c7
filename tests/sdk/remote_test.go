package sdk

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/tests/harness"
	"github.com/caisson-run/caisson/tests/need"
)

const remotePython = `
import asyncio, os, threading
from caisson import AsyncClient, AsyncSandbox, CaissonError, Client, Sandbox
host = {"host": os.environ["HOST"], "key": os.environ["KEY"], "ca": os.environ["CA"]}
with Client(**host) as client:
    with Sandbox.create(client=client) as box:
        print(box.run("cat; echo late >&2", input="to and fro").stdout)
        box.files.write("/tmp/file", b"x" * 3000000)
        print(len(box.files.read("/tmp/file")))
        server = box.start("nc -l -p 4000 -e cat")
        forward = None
        for _ in range(100):
            try:
                forward = box.forward(4000)
                break
            except CaissonError:
                threading.Event().wait(0.05)
        with forward as stream:  # one thread sends while another receives
            data = os.urandom(1 << 20)
            sender = threading.Thread(target=lambda: stream.send(data))
            sender.start()
            got = b""
            while len(got) < len(data):
                got += stream.receive()
            sender.join()
            print(got == data)
for wrong in ({**host, "key": "wrong"}, {**host, "ca": None}, {**host, "host": "ssh://-x"}, {"key": "x"}, {"socket": "/s", "host": "tcp://x:1"}):
    try:
        Client(**wrong).list()
    except CaissonError as e:
        print(e.code, bool(e.remedy))

async def main():
    async with AsyncClient(**host) as client:
        async with await AsyncSandbox.create(client=client) as box:
            print((await box.run("echo async")).stdout.strip())
asyncio.run(main())
`

const remoteTypeScript = `
import { Client, Sandbox } from '@caisson-run/caisson'
const host = { host: process.env.HOST, key: process.env.KEY, ca: process.env.CA }
const client = new Client(host)
const box = await Sandbox.create({ client })
console.log((await box.run('cat; echo late >&2', { input: 'to and fro' })).stdout)
await box.files.write('/tmp/file', 'x'.repeat(3000000))
console.log((await box.files.read('/tmp/file')).length)
await box.remove()
for (const wrong of [{ ...host, key: 'wrong' }, { ...host, ca: undefined }, { ...host, host: 'ssh://-x' }, { key: 'x' }, { socket: '/s', host: 'tcp://x:1' }]) {
  try {
    await new Client(wrong).list()
  } catch (error) {
    console.log(error.code, error.remedy !== '')
  }
}
`

// The SDKs take the same hosts and keys.
func TestRemoteSDKs(t *testing.T) {
	t.Parallel()
	need.Tools(t, "python3", "node", "npm")
	e := harness.StartRemote(t, "")
	key := e.MakeKey(t, "ann", "--as", "54321")
	env := []string{"HOME=" + e.Dir, "PATH=" + os.Getenv("PATH"), "HOST=tcp://" + e.Address, "KEY=" + key, "CA=" + e.CA.File, "PYTHONDONTWRITEBYTECODE=1"}
	refused := "SBX-810 %\nSBX-814 %\nSBX-801 %\nSBX-801 %\nSBX-801 %\n"
	want := "to and fro\n3000000\nTrue\n" + strings.ReplaceAll(refused, "%", "True") + "async\n"
	if out := runProgram(t, sourceDir, env, "python3", "-W", "error", "-c", remotePython); out != want {
		t.Errorf("Python: %s", out)
	}
	want = "to and fro\n3000000\n" + strings.ReplaceAll(refused, "%", "true")
	if out := runProgram(t, installTypeScript(t), env, "node", "--input-type=module", "-e", remoteTypeScript); out != want {
		t.Errorf("TypeScript: %s", out)
	}
}

// runProgram returns what a program prints that has to succeed.
func runProgram(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}
