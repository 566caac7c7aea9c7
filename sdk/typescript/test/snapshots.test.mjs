import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CaissonError, Client, LimitsError, Sandbox, SnapshotNotFoundError } from '../dist/esm/index.js'
import { bodyOf, Daemon } from './daemon.mjs'

// Answers with the message of each request, which are noted with their bodies.
async function serve(t, answers) {
  const bodies = []
  const daemon = await Daemon.make(t, async ({ request, response, count }) => {
    bodies.push(JSON.parse((await bodyOf(request)) || '{}'))
    const message = answers[count - 1]
    response.statusCode = message.error ? 404 : 200
    response.end(JSON.stringify(message))
  })
  await daemon.start()
  const client = new Client({ socket: daemon.socket, reconnect: 0 })
  return { client, bodies, daemon, box: new Sandbox(client.transport, { id: 'box', name: 'box' }) }
}

test('snapshots', async (t) => {
  const one = { name: 'one', created_at: '2026-01-02T03:04:05Z', rootfs: 'rw', disk_bytes: '64', used_bytes: '8' }
  const absent = { code: 'SBX-235', class: 'invalid_input', message: 'no', remedy: 'list snapshots: caisson snapshot ls' }
  const { client, bodies, daemon, box } = await serve(t, [one, { ...one, name: 'made-up' }, { snapshots: [one], next: 'a+b' }, { snapshots: [one] }, {}, { error: absent }])
  const made = await box.snapshot('one')
  assert.deepEqual([made.name, made.rootfs, made.diskBytes, made.usedBytes], ['one', 'rw', 64, 8])
  assert.equal((await box.snapshot()).name, 'made-up')
  assert.deepEqual(bodies, [{ ref: 'box', name: 'one' }, { ref: 'box' }])
  assert.deepEqual(await client.snapshots.list(), [made, made])
  assert.equal(daemon.requests.at(-1), 'GET /v1/snapshots?next=a%2Bb')
  await client.snapshots.remove('one/x')
  assert.equal(daemon.requests.at(-1), 'DELETE /v1/snapshots/one%2Fx')
  await assert.rejects(client.snapshots.get('two'), (error) => {
    return error instanceof SnapshotNotFoundError && error.remedy === 'list snapshots: Client.snapshots.list()'
  })
  await assert.rejects(client.snapshots.get(''), TypeError)
})

test('changes between snapshots', async (t) => {
  const changes = [{ kind: 'added', path: 'a', new: { type: 'file', mode: 420, size_bytes: '4' } }]
  const { client, daemon } = await serve(t, [{ changes, truncated: true }, {}])
  const found = await client.snapshots.diff('one/x', 'two', ['a b', '/c'])
  assert.deepEqual([found.truncated, found.changes.map((c) => [c.kind, c.path, c.new?.sizeBytes])], [true, [['added', 'a', 4]]])
  assert.equal(daemon.requests.at(-1), 'GET /v1/snapshots/one%2Fx/diff?to=two&paths=a+b&paths=%2Fc')
  assert.deepEqual((await client.snapshots.diff('one', 'two')).changes, [])
  assert.equal(daemon.requests.at(-1), 'GET /v1/snapshots/one/diff?to=two')
  await assert.rejects(client.snapshots.diff('', 'two'), TypeError)
})

test('a fork that fails loses no other', async (t) => {
  const forks = [{ sandbox: { id: 'a' } }, { error: { code: 'SBX-102', class: 'invalid_input', message: 'too much' } }, { sandbox: { id: 'b', name: 'named' } }]
  const { bodies, box } = await serve(t, [{ forks }])
  const [first, failed, last] = await box.fork(3)
  assert(first instanceof Sandbox && last instanceof Sandbox && failed instanceof CaissonError && failed instanceof LimitsError)
  assert.deepEqual([first.id, failed.message, last.name], ['a', 'too much [SBX-102]', 'named'])
  assert.deepEqual(bodies, [{ count: 3 }])
})

test('changes of a workspace', async (t) => {
  const changes = [
    { kind: 'modified', path: 'run.sh', old: { type: 'file', mode: 420, size_bytes: '4' }, new: { type: 'file', mode: 493, size_bytes: '8' } },
    { kind: 'deleted', path: 'gone', old: { type: 'directory', mode: 493 } },
  ]
  const { daemon, box } = await serve(t, [{ changes, truncated: true }, {}])
  const found = await box.diff()
  assert.deepEqual(found.changes.map((c) => [c.kind, c.path, c.old?.sizeBytes, c.new?.mode]), [['modified', 'run.sh', 4, 0o755], ['deleted', 'gone', 0, undefined]])
  assert.equal(found.truncated, true)
  assert.equal(daemon.requests.at(-1), 'GET /v1/sandboxes/box/diff')
  assert.deepEqual(await box.diff(), { changes: [], left: [], patch: new Uint8Array(0), truncated: false })
})

test('a patch of a workspace', async (t) => {
  const patch = Buffer.from('diff --git a/x b/x\n').toString('base64')
  const { daemon, box } = await serve(t, [{ patch, left: [{ path: 'big', reason: 'too large to show' }] }])
  const found = await box.diff({ patch: true, includeControl: true })
  assert.deepEqual([Buffer.from(found.patch).toString(), found.left[0].path], ['diff --git a/x b/x\n', 'big'])
  assert.equal(daemon.requests.at(-1), 'GET /v1/sandboxes/box/diff?patch=true&include_control=true')
})

test('changes of a workspace are applied', async (t) => {
  const { daemon, box } = await serve(t, [{ changes: [{ kind: 'added', path: 'new' }], conflicts: [{ path: 'both', reason: 'why' }] }])
  const done = await box.apply({ paths: ['new', 'both'], conflicts: 'ours', dryRun: true })
  assert.deepEqual([done.changes[0].path, done.conflicts[0].reason, done.left], ['new', 'why', []])
  assert.equal(daemon.requests.at(-1), 'POST /v1/sandboxes/box/apply')
})
