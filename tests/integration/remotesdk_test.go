package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
for wrong in ({**host, "key": "wrong"}, {**host, "ca": None}, {**host, "host": "ssh://x"}, {"key": "x"}, {"socket": "/s", "host": "tcp://x:1"}):
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
import { Client, Sandbox } from './dist/esm/index.js'
const host = { host: process.env.HOST, key: process.env.KEY, ca: process.env.CA }
const client = new Client(host)
const box = await Sandbox.create({ client })
console.log((await box.run('cat; echo late >&2', { input: 'to and fro' })).stdout)
await box.files.write('/tmp/file', 'x'.repeat(3000000))
console.log((await box.files.read('/tmp/file')).length)
await box.remove()
for (const wrong of [{ ...host, key: 'wrong' }, { ...host, ca: undefined }, { ...host, host: 'ssh://x' }, { key: 'x' }, { socket: '/s', host: 'tcp://x:1' }]) {
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
	e := startElsewhere(t, "")
	key := e.makeKey(t, "ann", "--as", "54321")
	sdk := func(dir, program string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = filepath.Join("../../sdk", dir)
		cmd.Env = []string{"HOME=" + e.dir, "PATH=" + os.Getenv("PATH"), "HOST=tcp://" + e.address, "KEY=" + key, "CA=" + e.ca.File, "PYTHONDONTWRITEBYTECODE=1"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
		return string(out)
	}
	refused := "SBX-810 %\nSBX-814 %\nSBX-801 %\nSBX-801 %\nSBX-801 %\n"
	want := "to and fro\n3000000\nTrue\n" + strings.ReplaceAll(refused, "%", "True") + "async\n"
	if out := sdk("python", "python3", "-W", "error", "-c", remotePython); out != want {
		t.Errorf("Python: %s", out)
	}
	if _, err := os.Stat("../../sdk/typescript/node_modules/typescript"); err != nil {
		t.Skip("sdk/typescript has no node_modules: make setup")
	}
	sdk("typescript", "npm", "run", "-s", "build")
	want = "to and fro\n3000000\n" + strings.ReplaceAll(refused, "%", "true")
	if out := sdk("typescript", "node", "--input-type=module", "-e", remoteTypeScript); out != want {
		t.Errorf("TypeScript: %s", out)
	}
}
