// The settings of sandboxes and commands, and the calls about the host.
import assert from 'node:assert/strict'
import { Client, NotFoundError, Sandbox } from '@caisson-run/caisson'

const client = new Client()
await sandbox()
await command()
await host()
await cleanAndRestart()
await waits()
await images()
await remedies()
console.log('ok')

async function sandbox() {
  const settings = { session: 'ts-session', task: 'ts-task', hostname: 'inside', shmSize: '1M', nested: { sandboxes: 1 }, image: 'base' }
  const box = await Sandbox.create({ client, ttl: '1h', language: 'go', languageReason: 'go.mod', ...settings })
  try {
    assert.deepEqual([box.info.session, box.info.task, box.info.image], ['ts-session', 'ts-task', 'base'])
    assert.deepEqual((await client.list({ session: 'ts-session', olderThan: 0 })).map((one) => one.id), [box.id])
    assert.deepEqual(await client.list({ session: 'ts-session', olderThan: '1h' }), [])
    const said = await box.run("hostname; df -k /dev/shm | tail -1 | awk '{print $2}'; test -S $CAISSON_SOCKET; echo $?")
    assert.equal(said.stdout, 'inside\n1024\n0\n')
  } finally {
    await box.remove()
  }
}

async function command() {
  const box = await Sandbox.create({ client })
  try {
    const said = await box.run('cat /dev/shm/caisson-input/token; ulimit -n', { inputs: { token: 'secret\n' }, rlimits: { nofile: 64 } })
    assert.equal(said.stdout, 'secret\n64\n')
    assert((await box.run('sleep 60', { timeout: '200ms' })).timedOut)
    assert.equal((await box.run('head -c 9 /dev/zero', { outputLimit: 4 })).stdoutSkipped, 5)
  } finally {
    await box.remove()
  }
  const own = await client.run('hostname; cat /dev/shm/caisson-input/token; echo $A; pwd', {
    hostname: 'own', inputs: { token: Buffer.from('t\n') }, env: { A: 'b' }, workdir: '/tmp', cpuShares: 512, openFiles: 100, tmpfs: '8M',
    task: 'ts-own', ttl: 60, timeout: '1m',
  })
  assert.equal(own.stdout, 'own\nt\nb\n/tmp\n')
}

async function host() {
  const spec = await client.spec('true', { hostname: 'planned', memory: '64M', seccompPfc: true, allow: ['example.com'] })
  assert.equal(JSON.parse(Buffer.from(spec.ociSpecJson)).hostname, 'planned')
  assert(Object.values(spec.cgroupValues).includes(String(64 << 20)))
  assert(spec.seccompRules[0].syscalls.length > 0 && spec.seccompPfc && spec.networkRules.length > 0)
  assert.deepEqual(await client.ping(), { ready: true, reason: '' })
  const memory = (await client.capabilities()).find((one) => one.field === 'limits.memory_bytes')
  assert.equal(memory?.support, 'enforced')
  assert(Array.isArray(await client.cleanup({ dryRun: true })))
  assert((await client.reloadConfig()).digest)
}

async function cleanAndRestart() {
  const box = await Sandbox.create({ client, name: 'ts-again' })
  try {
    await box.run('touch /tmp/file')
    const job = await box.start('sleep 600')
    const cleaned = await box.clean()
    assert(cleaned.processes >= 1)
    assert.deepEqual([cleaned.files, (await job.wait({ timeout: '60s' })).signal, await box.files.exists('/tmp/file')], [1, 9, false])
    const before = box.id
    await box.restart()
    assert.notEqual(box.id, before)
    assert.deepEqual([box.name, (await box.run('echo again')).stdout], ['ts-again', 'again\n'])
    await box.files.write('/tmp/x', 'x')
  } finally {
    await box.remove()
  }
}

async function waits() {
  const box = await Sandbox.create({ client })
  try {
    const job = await box.start('read x; exit 3', { stdin: true })
    await assert.rejects(job.wait({ timeout: '300ms' }), { name: 'TimeoutError', message: 'the command has not ended after 0.3 s' })
    await assert.rejects(box.wait({ timeout: 0.3 }), { name: 'TimeoutError', message: 'the sandbox has not ended after 0.3 s' })
    await job.send('go\n')
    assert.equal((await job.wait({ timeout: 60 })).exitCode, 3)
  } finally {
    await box.remove()
  }
}

async function images() {
  const { images } = client
  const tagged = await images.tag('base', 'ts-tagged')
  assert.deepEqual([tagged.name, tagged.digest], ['ts-tagged', (await images.get('base')).digest])
  const parts = []
  for await (const part of images.save('ts-tagged')) parts.push(part)
  assert((await images.prune({ unused: true, dryRun: true })).images.some((image) => image.name === 'ts-tagged'))
  assert.deepEqual((await images.prune({ until: '1h' })).images, [])
  const usage = await images.du()
  assert(usage.storedBytes > 0 && usage.images.some((one) => one.image?.name === 'ts-tagged' && one.sharedBytes > 0))
  await images.remove('ts-tagged')
  assert.equal((await images.load(Buffer.concat(parts), 'ts-loaded')).name, 'ts-loaded')
  await images.remove('ts-loaded')
}

async function remedies() {
  await assert.rejects(client.get('absent'), (error) => error instanceof NotFoundError && error.remedy === 'list sandboxes: Client.list(); that of a run goes with it, unless keep: true is given')
  const box = await Sandbox.create({ client })
  try {
    const { remedy } = await box.policy.check('https://example.com')
    assert.equal(remedy, "start the sandbox with network: 'allow', allow: ['example.com:443']")
  } finally {
    await box.remove()
  }
}
