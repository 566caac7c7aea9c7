// A session over two kills of the daemon: one command with output and input in the
// foreground, one in the background. Then watches, traffic, events and copies. It asks on its output, and gets answers on its input.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { APIBrokenError, DaemonOffError, EventsGoneError, Client, Sandbox } from '@caisson-run/caisson'

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

await terminal()
await watches()
await traffic()
await observed()
await copies()

await box.remove()
process.stdin.destroy()
console.log('ok')

// Returns the first that a test takes, and leaves the iterator open.
async function first(iterator, takes) {
  for (;;) {
    const { value, done } = await iterator.next()
    assert(!done)
    if (takes(value)) return value
  }
}

async function terminal() {
  const size = 1 << 20
  const data = Buffer.alloc(size, Buffer.from(Array.from({ length: 251 }, (_, i) => i)))
  const process = await box.start(`stty raw -echo; echo ready; head -c ${size} | sha256sum`, { tty: true })
  await first(process.events(), (event) => event.text === 'ready\n')
  for (let at = 0; at < size; at += size / 4) {
    const sent = process.send(data.subarray(at, at + size / 4))
    await restart()
    await sent
  }
  const sum = createHash('sha256').update(data).digest('hex')
  assert.equal((await process.wait()).stdout, `ready\n${sum}  -\n`)
}

async function watches() {
  await box.files.mkdir('/tmp/w')
  const watch = await box.files.watch('/tmp/w')
  const changes = watch[Symbol.asyncIterator]()
  await box.files.write('/tmp/w/before', '')
  await first(changes, (change) => change.path === '/tmp/w/before')
  await restart()
  // It watches again, and says that changes may be missing.
  assert.equal((await first(changes, (change) => change.type === 'overflow')).path, '/tmp/w')
  await box.files.write('/tmp/w/after', '')
  await first(changes, (change) => change.path === '/tmp/w/after')
  watch.close()
  assert.equal((await changes.next()).done, true)
}

async function traffic() {
  const box = await Sandbox.create({ client, allow: ['example.com'] })
  const ask = (name) => box.run(`for n in 1 2 3; do wget -q -O- http://${name}$n.example/; done`)
  await ask('before')
  const got = []
  const attempts = box.policy.traffic({ follow: true })
  const until = (name) => first(attempts, (attempt) => got.push(attempt) && attempt.name === name)
  await until('before2.example') // in the middle of those that there are
  await restart()
  await ask('after')
  await until('after3.example')
  await attempts.return()
  const all = async (options) => {
    const list = []
    for await (const attempt of box.policy.traffic(options)) list.push(attempt)
    return list
  }
  const kept = await all()
  assert.equal(got.filter((attempt) => attempt.kind === 'gap').length, 1)
  assert.deepEqual(got.filter((attempt) => attempt.kind !== 'gap'), kept.slice(0, got.length - 1))
  assert.deepEqual(await all({ since: kept[0].cursor }), kept.slice(1))
  await box.remove()
}

async function observed() {
  await box.run('true')
  const follow = client.events({ filter: [`sandbox=${box.id}`], follow: true })
  const stats = client.stats({ name: box.name })
  const before = (await stats.next()).value
  await first(follow, (event) => event.type === 'run.caisson.exec.ended' && event.data.exitCode === 0)
  await restart()
  const after = (await stats.next()).value
  assert(after.time > before.time)
  assert.deepEqual(after.sandboxes.map((one) => one.sandboxId), [box.id])
  await stats.return()
  const lost = await first(follow, (event) => event.type === 'run.caisson.events.lost')
  assert.equal(lost.id, '')
  await box.run('exit 3')
  const ended = await first(follow, (event) => event.type === 'run.caisson.exec.ended')
  assert.equal(ended.data.exitCode, 3)
  await follow.return()
  // An ID of the daemon that was killed is refused, if the caller brings it.
  await restart()
  await assert.rejects(client.events({ since: ended.id }).next(), EventsGoneError)
}

async function copies() {
  const dir = await mkdtemp(join(tmpdir(), 'caisson-kill-'))
  const box = await Sandbox.create({ client, memory: '1G', tmpfs: '700M' })
  const probe = await new Client({ reconnect: 0 }).get(box.id)
  const large = Buffer.alloc(256 << 20, 'large ')
  try {
    await mkdir(join(dir, 'in'))
    await writeFile(join(dir, 'in/large'), large)
    for (const copy of [(box) => box.files.copyIn(join(dir, 'in'), '/tmp/in'), (box) => box.files.copyOut('/tmp/in', join(dir, 'out'))]) {
      const { entries } = await copy(box)
      // Without reconnecting it fails: the kill does come in the middle.
      const broken = await restarted(copy(probe).catch((error) => error))
      assert(broken instanceof APIBrokenError || broken instanceof DaemonOffError, String(broken))
      assert.equal((await restarted(copy(box))).entries, entries)
    }
    assert((await readFile(join(dir, 'out/large'))).equals(large))
  } finally {
    await rm(dir, { recursive: true })
    await box.remove()
  }
}

async function restarted(copied) {
  await setTimeout(50)
  await restart()
  return copied
}
