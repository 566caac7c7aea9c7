// What a session promises beside the README.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { CommandFailed, ExecNotFoundError, FileAbsentError, ImageNotFoundError, NotFoundError, Sandbox, Client, SnapshotDiskError, SnapshotNotFoundError, VolumeInUseError, VolumeNotFoundError } from '@caisson-run/caisson'

const dir = await mkdtemp(join(tmpdir(), 'caisson-session-'))
const box = await Sandbox.create({ env: { KEY: 'value' }, allow: ['example.com'], publish: ['0:8080'], memory: '256M' })
try {
  await commands()
  await output()
  await ends()
  await background()
  await files()
  await trees()
  await calls()
  await volumes()
  await snapshots()
} finally {
  await box.remove()
  await rm(dir, { recursive: true })
}
await assert.rejects(box.inspect(), NotFoundError)
await box[Symbol.asyncDispose]()
console.log('ok')

async function commands() {
  const r = await box.run('echo "$KEY $MORE"; pwd; id -u', { env: { MORE: 'more' }, workdir: '/tmp' })
  assert.equal(r.stdout, 'value more\n/tmp\n1000\n')
  await assert.rejects(box.run('echo why >&2; exit 4', { check: true }), (error) => {
    return error instanceof CommandFailed && error.result.exitCode === 4 && /why$/.test(error.message)
  })
  const late = await box.run('sleep 600', { timeout: 0.2 })
  assert.deepEqual([late.exitCode, late.timedOut], [124, true])
  async function* parts() {
    for (let i = 0; i < 100; i++) yield Buffer.alloc(50_000, 'x')
  }
  assert.equal((await box.run(['wc', '-c'], { input: parts() })).stdout.trim(), '5000000')
  assert.equal((await box.run(['head', '-c', '5'], { input: parts() })).stdout, 'xxxxx')
  assert.equal((await box.run(['cat'], { input: '' })).stdout, '')
}

async function volumes() {
  const { volumes } = new Client()
  const made = await volumes.create('ts-deps')
  assert.deepEqual([made.name, made.usedBy], ['ts-deps', []])
  const mounts = [{ type: 'volume', source: 'ts-deps', target: '/deps' }]
  const user = await Sandbox.create({ name: 'ts-user', mounts, cpuShares: 512 })
  try {
    await user.run('echo kept > /deps/file', { check: true })
    assert.deepEqual((await volumes.get('ts-deps')).usedBy, ['ts-user'])
    await assert.rejects(volumes.remove('ts-deps'), VolumeInUseError)
    assert.deepEqual(await volumes.prune(), [])
    await user.update({ cpuShares: 256 })
    assert.equal((await user.inspect()).limits.cpuShares, 256)
  } finally {
    await user.remove()
  }
  assert.deepEqual((await volumes.prune({ dryRun: true })).map((v) => v.name), ['ts-deps'])
  assert((await volumes.list()).some((v) => v.name === 'ts-deps'))
  await volumes.remove('ts-deps')
  await assert.rejects(volumes.get('ts-deps'), VolumeNotFoundError)
}

async function snapshots() {
  const client = new Client()
  await assert.rejects(box.snapshot(), SnapshotDiskError)
  const first = await Sandbox.create({ name: 'ts-first', rootfs: 'rw', disk: '64M' })
  let forks = []
  try {
    await first.run('echo kept > ~/file', { check: true })
    const made = await first.snapshot('ts-one')
    assert.deepEqual([made.name, made.sandboxName, made.rootfs, made.diskBytes], ['ts-one', 'ts-first', 'rw', 64 << 20])
    assert.deepEqual(await client.snapshots.get('ts-one'), made)
    await first.run('echo base > ~/file', { check: true })
    forks = await first.fork(2)
    const sleeper = await first.start('sleep 1000')
    assert.deepEqual((await first.rewind('ts-one')).execs, [sleeper.id])
    assert.equal((await first.run('cat ~/file')).stdout, 'kept\n')
  } finally {
    await first.remove()
  }
  for (const [number, fork] of forks.entries()) {
    assert.equal((await fork.run(`echo ${number} >> ~/file; cat ~/file`)).stdout, `base\n${number}\n`)
    await fork.remove()
  }
  assert.equal((await client.run('cat ~/file', { from: 'ts-one' })).stdout, 'kept\n')
  assert((await client.snapshots.list()).some((one) => one.name === 'ts-one'))
  await client.snapshots.remove('ts-one')
  await assert.rejects(client.snapshots.get('ts-one'), SnapshotNotFoundError)
}

async function output() {
  let text = ''
  const odd = await box.run("printf 'a\\303'; sleep 0.1; printf '\\274b\\377c'; sleep 0.1; printf '\\342\\202'", {
    onStdout: (part) => void (text += part),
  })
  assert.equal(text, 'aüb\ufffdc\ufffd')
  assert.equal(odd.stdout, text)
  assert.equal(odd.stdoutData.toString('latin1'), Buffer.from('a\xc3\xbcb\xffc\xe2\x82', 'latin1').toString('latin1'))
  const parts = []
  const bytes = await box.run('head -c 3000000 /dev/urandom | tee /tmp/r; sha256sum < /tmp/r >&2', {
    onStdoutData: (data) => void parts.push(data),
  })
  assert.equal(createHash('sha256').update(Buffer.concat(parts)).digest('hex'), bytes.stderr.slice(0, 64))
  const much = await box.run('i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done', { outputLimit: 100 })
  assert.equal(much.stdoutData.length, 100)
  assert.equal(much.stdoutSkipped, much.stdoutBytes - 100)
  assert(much.stdout.startsWith('line 1\nline 2\n') && much.stdout.endsWith('line 20000\n'))
}

async function ends() {
  await assert.rejects(box.run('sleep 600', { signal: AbortSignal.timeout(200) }), { name: 'TimeoutError' })
  await assert.rejects(box.run('sleep 600', { signal: AbortSignal.abort() }), { name: 'AbortError' })
  const failing = { onStdout: () => Promise.reject(new Error('mine')) }
  await assert.rejects(box.run('echo; sleep 600', failing), /^Error: mine$/)
  async function* source() {
    yield 'x'
    throw new Error('no input')
  }
  await assert.rejects(box.run('cat; sleep 600', { input: source() }), /^Error: no input$/)
  // They were killed, not ended for want of a caller.
  for (const { id, args } of await box.processes()) {
    const { reason } = await (await box.connect(id)).wait()
    assert.notEqual(reason, 'canceled', args.join(' '))
  }
}

async function background() {
  const process = await box.start('trap "echo int; exit 9" INT; echo ready; while :; do sleep 0.05; done')
  for await (const event of process.events()) if (event.type === 'stdout') break
  await process.signal('INT')
  const [once, twice] = await Promise.all([process.wait(), process.wait()])
  assert.deepEqual([once.exitCode, once.stdout, twice.stdout], [9, 'ready\nint\n', 'ready\nint\n'])
  await process.kill()
  // The size is told to the terminal after the answer.
  const wait = 'read x; while [ "$(stty size)" != "40 100" ]; do sleep 0.01; done; echo "is $x"'
  const terminal = await box.start(wait, { tty: true, timeout: '1m' })
  await terminal.resize(40, 100)
  await terminal.send('larger\n')
  assert.match((await terminal.wait()).stdout, /is larger/)
  const shared = await box.connect((await box.start(['cat'], { stdin: true })).id)
  await shared.send('a')
  await shared.send('b')
  await shared.closeInput()
  assert.equal((await shared.wait()).stdout, 'ab')
  await assert.rejects(shared.send('c'), { code: 'EPIPE' })
  await assert.rejects(box.connect('999'), ExecNotFoundError)
  const events = []
  for await (const event of box.logs(shared.id)) events.push(event.type)
  assert(events.includes('stdout'))
  const spoken = await box.start('echo one; sleep 0.5; echo two')
  await spoken.wait()
  const timed = []
  for await (const event of box.logs(spoken.id, { timestamps: true })) timed.push(event)
  assert.deepEqual(timed.map((event) => event.text), ['one\n', 'two\n'])
  assert(timed[0].time < timed[1].time)
  const later = []
  for await (const event of box.logs(spoken.id, { since: timed[1].time })) later.push(event.text)
  assert.deepEqual(later, ['two\n'])
  for await (const event of box.logs(spoken.id, { until: new Date((Number(timed[0].time) + Number(timed[1].time)) / 2) })) later.push(event.text)
  assert.deepEqual(later, ['two\n', 'one\n'])
  assert.throws(() => box.logs(spoken.id, { tail: 1 }), /there is no option "tail"/)
}

async function files() {
  async function* large() {
    for (let i = 0; i < 64; i++) yield Buffer.alloc(1 << 17, i)
  }
  assert.equal((await box.files.write('/tmp/large', large(), { mode: 0o600 })).sizeBytes, 64 << 17)
  assert.deepEqual([...(await box.files.read('/tmp/large', { offset: (1 << 17) - 1, length: 2 }))], [0, 1])
  let size = 0
  for await (const part of box.files.stream('/tmp/large')) size += part.length
  assert.equal(size, 64 << 17)
  await assert.rejects(box.files.write('/absent/large', large()), FileAbsentError)
  await box.files.mkdir('/tmp/d/e')
  await box.files.move('/tmp/large', '/tmp/d/e/Größe 1%?#')
  assert.equal((await box.files.stat('/tmp/d/e/Größe 1%?#')).mode, 0o600)
  assert.deepEqual((await box.files.list('/tmp/d', { depth: 2 })).map((file) => file.path), ['e', 'e/Größe 1%?#'])
  const watch = await box.files.watch('/tmp/d')
  await box.files.remove('/tmp/d/e', { recursive: true })
  for await (const event of watch) {
    assert.deepEqual([event.type, event.path], ['remove', '/tmp/d/e'])
    break
  }
  assert.equal(await box.files.exists('/tmp/d/e'), false)
}

async function trees() {
  const long = 'n'.repeat(120)
  await mkdir(join(dir, 'in', long), { recursive: true })
  await writeFile(join(dir, 'in', long, 'ü'), 'deep', { mode: 0o755 })
  await symlink(`${long}/ü`, join(dir, 'in', 'link'))
  assert.equal((await box.files.copyIn(join(dir, 'in'), '/tmp/tree')).entries, 3)
  await box.run('ln -s /etc/passwd out; ln -s ../../etc/passwd up; mkfifo pipe; chmod 500 .', { workdir: '/tmp/tree' })
  const copied = await box.files.copyOut('/tmp/tree', join(dir, 'out'))
  assert.deepEqual([copied.entries, copied.leftOut], [3, 3])
  assert.equal(await readFile(join(dir, 'out', 'link'), 'utf8'), 'deep')
  assert.equal(await readlink(join(dir, 'out', 'link')), `${long}/ü`)
  assert.equal((await stat(join(dir, 'out', long, 'ü'))).mode & 0o777, 0o755)
  await assert.rejects(box.files.copyOut('/tmp/absent', join(dir, 'out')), FileAbsentError)
}

async function calls() {
  const client = new Client()
  assert.equal((await box.policy.check('https://example.com')).allowed, true)
  assert.equal((await box.policy.check('https://example.org')).needs, 'example.org:443')
  await box.update({ allow: ['example.org'], labels: { sdk: 'typescript' }, ttl: '1h' })
  assert.equal((await box.policy.check('https://example.org')).allowed, true)
  assert((await box.policy.explain()).length > 0)
  await box.run(['wget', '-q', '-O-', 'http://elsewhere.example/'])
  const attempts = []
  for await (const attempt of box.policy.traffic()) attempts.push(attempt.verdict)
  assert(attempts.includes('refused'))
  assert.equal(box.ports[0].port, 8080)
  assert(box.info.expiresAt > new Date())
  assert.deepEqual((await client.list({ labels: { sdk: 'typescript' } })).map((one) => one.id), [box.id])
  assert.equal((await box.pause()).state, 'paused')
  assert.equal((await box.resume()).state, 'running')
  const once = await client.run('cat; echo $KEY', { input: 'in ', env: { KEY: 'k' }, memory: '64M' })
  assert.equal(once.stdout, 'in k\n')
  await assert.rejects(client.run('sleep 600', { signal: AbortSignal.timeout(500) }), { name: 'TimeoutError' })
  await assert.rejects(client.run('true', { image: 'absent' }), ImageNotFoundError)
  assert((await client.images.list()).some((image) => image.name === 'base'))
  assert.equal((await client.images.get('base')).source, 'embedded')
  const steps = []
  const dockerfile = 'FROM base\nARG WHO\nCOPY greet /opt/greet\nUSER root\nRUN echo made for $WHO; cp /opt/greet/text /greeting\n'
  const built = await client.images.build('ts-built', dockerfile, {
    files: { 'greet/text': 'hello\n', 'greet/more': new Uint8Array(1) }, args: { WHO: 'us' }, onProgress: (step) => steps.push(step),
  })
  assert.equal(built.name, 'ts-built')
  assert.deepEqual(steps.filter((step) => step.instruction).map((step) => step.instruction.split(' ')[0]), ['FROM', 'COPY', 'RUN'])
  assert(steps.some((step) => Buffer.from(step.stdout).toString() === 'made for us\n'))
  assert.equal((await client.run('cat /greeting; wc -c < /opt/greet/more', { image: 'ts-built' })).stdout, 'hello\n1\n')
  await client.images.remove('ts-built')
  for (const files of [{}, { a: 'b' }]) {
    await assert.rejects(client.images.build('ts-refused', 'FROM base\nNONSENSE x\n', { files }), /line 2/)
  }
  assert(!(await client.images.list()).some((image) => /ts-refused|build-context/.test(image.name)))
  await assert.rejects(client.images.pull('registry.invalid/tools:1'), { code: 'SBX-224' })
  assert((await client.info()).sandboxes.running >= 1)
  await assert.rejects(box.forward(7000), { code: 'SBX-407' })
  const server = await box.start('nc -l -p 7000 -e cat')
  let stream
  for (let n = 0; n < 200 && !stream; n++) stream = await box.forward(7000).catch(() => new Promise((go) => setTimeout(go, 50)))
  stream.end('there and back')
  assert.equal((await stream.toArray()).join(''), 'there and back')
  await server.wait()
  const stats = await box.stats()
  assert.equal(stats.sandboxId, box.id)
  assert(stats.memoryBytes > 0 && stats.memoryLimitBytes === 256 << 20 && typeof stats.cpuPercent === 'number')
  const history = await box.history()
  assert(history.memoryLimitBytes === 256 << 20 && history.samples.every((sample) => sample.time instanceof Date))
  const dozing = await Sandbox.create({ idleTimeout: 1, onIdle: 'pause' })
  for (let n = 0; n < 200 && (await dozing.inspect()).sandbox.pausedBy !== 'idle'; n++) await new Promise((go) => setTimeout(go, 100))
  assert.equal((await dozing.inspect()).sandbox.state, 'paused')
  assert.equal((await dozing.run('echo awake')).stdout, 'awake\n')
  await dozing.remove()
  const types = []
  for await (const event of client.events({ filter: [`sandbox=${box.id}`] })) types.push(event.type)
  assert.equal(types[0], 'run.caisson.sandbox.created')
  assert(types.includes('run.caisson.sandbox.paused'))
}
