import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Client, Sandbox } from '../dist/esm/index.js'
import { Process } from '../dist/esm/process.js'
import { Daemon } from './daemon.mjs'

const document = new URL('../../../api/openapi/openapi.json', import.meta.url)
const { paths } = JSON.parse(readFileSync(document, 'utf8'))

// Calls that a method does by another call.
const otherwise = {
  SandboxLogsByGetOutput: 'logs uses SandboxLogs',
  SandboxLogsByGetStdout: 'events uses ExecAttach: it goes on after a break',
  SandboxLogsByGetStderr: 'events uses ExecAttach',
  ExecStreamInput: 'send uses ExecSendInput: it can be sent again',
  ExecWait: 'wait uses ExecAttach: the result has the output',
}

const next = (iterator) => iterator.next()

// One call of each method that makes a request.
function calls(client, dir) {
  const { images, snapshots, volumes, transport } = client
  const box = new Sandbox(transport, { id: 'box', name: 'box' })
  const job = new Process(transport, 'box', { id: 'job' }, true)
  const { files, policy } = box
  return [
    () => client.run('x'), () => client.spec('x'), () => client.list(), () => next(client.stats()), () => next(client.events()),
    () => client.get('box'), () => client.version(), () => client.doctor(), () => client.usage(), () => client.info(), () => client.ping(),
    () => client.capabilities(), () => client.cleanup(), () => client.reloadConfig(), () => Sandbox.create({ client }),
    () => images.list(), () => images.get('a'), () => images.load('', 'a'), () => images.load(''), () => images.pull('a'),
    () => images.build('a', 'FROM b'), () => images.fromHost('a', { packages: ['b'] }), () => images.tag('a', 'b'),
    () => next(images.save('a')), () => images.prune({ unused: true }), () => images.du(), () => images.remove('a'),
    () => volumes.list(), () => volumes.create('v'), () => volumes.get('v'), () => volumes.remove('v'), () => volumes.prune(),
    () => client.secrets.list(), () => client.secrets.set('s', 'file:/k'), () => client.secrets.remove('s'),
    () => snapshots.list(), () => snapshots.get('s'), () => snapshots.diff('s', 't'), () => snapshots.remove('s'), () => next(snapshots.save('s')), () => snapshots.load('', 's'), () => snapshots.load(''), () => box.snapshot(), () => box.fork(), () => box.forward(80), () => box.diff(), () => box.apply(),
    () => client.templates.list(), () => client.templates.get('t'), () => client.templates.build('t'), () => client.templates.remove('t'),
    () => client.changesets.list(), () => client.changesets.diff('c'), () => client.changesets.apply('c'), () => client.changesets.discard('c'),
    () => box.run('x'), () => box.start('x'), () => box.processes(), () => next(box.logs()), () => box.update({}), () => box.attachWorkspace('.'), () => box.attachSnapshot('s'),
    () => box.pause(), () => box.resume(), () => box.stop(), () => box.clean(), () => box.rewind('one'), () => box.restart(), () => box.wait(),
    () => box.inspect(), () => box.stats(), () => box.history(), () => box.remove(),
    () => next(job.events()), () => job.wait(), () => job.send('x'), () => job.signal('INT'), () => job.resize(1, 2),
    () => files.read('/f'), () => files.write('/f', ''), () => files.list('/d'), () => files.stat('/f'), () => files.mkdir('/d'),
    () => files.move('/f', '/g'), () => files.remove('/f'), () => files.watch('/d'), () => files.copyIn(dir, '/d'),
    () => files.copyOut('/d', dir), () => policy.check('a'), () => policy.explain(), () => policy.learned(), () => next(policy.traffic()),
  ]
}

test('no call of the API lacks a method', async (t) => {
  const error = { code: 'SBX-101', class: 'invalid_input', message: 'no' }
  const daemon = await Daemon.make(t, ({ request, response }) => {
    // copyIn makes the directory first
    response.statusCode = request.method === 'PUT' && request.url.includes('/dirs/') ? 200 : 400
    response.end(JSON.stringify(response.statusCode === 200 ? {} : { error }))
  })
  await daemon.start()
  const dir = mkdtempSync(join(tmpdir(), 'caisson-calls-'))
  t.after(() => rmSync(dir, { recursive: true }))
  for (const call of calls(new Client({ socket: daemon.socket, reconnect: 0 }), dir)) {
    const before = daemon.requests.length
    await call().catch((failure) => assert.equal(failure.code, 'SBX-101', failure))
    assert(daemon.requests.length > before, String(call))
  }
  const made = daemon.requests.map((line) => line.split('?')[0])
  const lacking = Object.entries(paths).flatMap(([path, verbs]) => {
    const rest = /\{(path|name)\}$/.test(path) ? '.+' : '[^/]+'
    const pattern = new RegExp(`^${path.replaceAll(/\{\w+\}/g, rest)}$`)
    return Object.entries(verbs)
      .filter(([verb]) => !made.some((line) => line.startsWith(`${verb.toUpperCase()} `) && pattern.test(line.split(' ')[1])))
      .map(([, operation]) => operation.operationId)
  })
  assert.deepEqual(lacking.sort(), Object.keys(otherwise).sort())
})

test('a wait ends after its timeout, and the command runs on', async (t) => {
  let ended = false
  const daemon = await Daemon.make(t, ({ request, response, line }) => {
    if (request.url.endsWith('/wait')) return response.flushHeaders()
    line(ended ? { exit: { exit_code: 3 } } : { started: { sandbox_id: 'id', exec: { id: '4' } } })
    if (ended) response.end()
  })
  await daemon.start()
  const { transport } = new Client({ socket: daemon.socket, reconnect: 0 })
  const job = new Process(transport, 'id', { id: '4' }, true)
  for (const timeout of ['50ms', 0.05]) {
    await assert.rejects(job.wait({ timeout, signal: AbortSignal.timeout(60_000) }), { name: 'TimeoutError', message: 'the command has not ended after 0.05 s' })
  }
  ended = true
  assert.equal((await job.wait({ timeout: '1000h' })).exitCode, 3)
  await assert.rejects(job.wait({ timeout: 'soon' }), { name: 'TypeError', message: /"soon" is no duration/ })
  const box = new Sandbox(transport, { id: 'box', name: 'box' })
  await assert.rejects(box.wait({ timeout: '50ms' }), { name: 'TimeoutError', message: 'the sandbox has not ended after 0.05 s' })
})
