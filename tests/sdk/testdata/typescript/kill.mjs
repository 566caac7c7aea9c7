// A session over two kills of the daemon: one command with output and input in the
// foreground, one in the background. It asks on its output, and gets answers on its input.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'
import { DaemonOffError, Client, Sandbox } from '@caisson-run/caisson'

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const ask = async (what) => {
  console.log(what)
  assert.equal((await answers.next()).value, 'done')
}
const restart = async () => {
  await ask('kill')
  await ask('launch')
}

const client = new Client({ reconnect: '60s' })
const box = await Sandbox.create({ client })

// Without reconnecting, the probe fails: the kill does break the stream.
const impatient = await new Client({ reconnect: 0 }).get(box.id)
let broken
const doomed = impatient.run('echo begun; sleep 600', { onStdout: () => ask('kill') }).catch((error) => (broken = error))
await doomed
assert.equal(broken?.code, 'SBX-803', String(broken))
const off = await impatient.inspect().catch((error) => error)
assert(off instanceof DaemonOffError, String(off))
await ask('launch')

// The reader holds the stream back in the middle of two million lines.
const lines = 2_000_000
const expected = createHash('sha256')
for (let i = 1; i <= lines; i++) expected.update(`${i} ü\n`)
const got = createHash('sha256')
let seen = 0
const long = await box.run(`seq 1 ${lines} | sed 's/$/ ü/'`, {
  onStdout: async (text) => {
    got.update(text)
    const before = seen
    seen += text.length
    if (before < 4e6 && seen >= 4e6) await restart()
  },
})
assert.equal(long.exitCode, 0)
assert.equal(got.digest('hex'), expected.digest('hex'))

// Input that is sent while nobody listens comes once.
const echo = await box.start('while read line; do echo "got $line"; done', { stdin: true })
const events = echo.events()
let text = ''
const until = async (end) => {
  while (!text.endsWith(end)) {
    const { value, done } = await events.next()
    if (done) break
    text += value.text ?? ''
  }
}
await echo.send('one\n')
await until('one\n')
await ask('kill')
const sent = echo.send('two\n')
await ask('launch')
await sent
await until('two\n')
await restart()
await echo.send('three\n')
await echo.closeInput()
await until('three\n')
assert.equal(text, 'got one\ngot two\ngot three\n')
const result = await echo.wait()
assert.equal(result.exitCode, 0)
assert.equal(result.stdout, text)

await box.remove()
process.stdin.destroy()
console.log('ok')
