import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { APIBrokenError, Client, DaemonOffError } from '../dist/esm/index.js'
import { Process } from '../dist/esm/process.js'
import { Sandbox } from '../dist/esm/sandbox.js'
import { bodyOf, Daemon } from './daemon.mjs'

const started = { started: { sandbox_id: 'box', exec: { id: '1', args: ['x'] } } }
const boxOf = (client) => new Sandbox(client.transport, { id: 'box', name: 'box' })
const textOf = async (events) => {
  let text = ''
  for await (const event of events) text += event.text ?? ''
  return text
}

test('a stream goes on at its offsets, wherever it breaks', async (t) => {
  const daemon = await Daemon.make(t, ({ request, response, line, count }) => {
    if (count === 1) {
      line(started)
      line({ stdout: { offset: '0', text: 'aü' } })
      line({ stderr: { offset: '0', text: 'e' } })
      response.write('{"stdout":{"offset":"3","te', () => response.destroy()) // in the middle of a line
    } else if (count === 2) {
      line(started)
      line({ stdout: { offset: '3', data: Buffer.from([0xe2]).toString('base64') } })
      response.end() // in order, but without an exit
    } else if (count === 3) {
      line({ error: { code: 'SBX-002', message: 'the daemon ends' } })
      response.end()
    } else {
      line({ stdout: { offset: '4', data: Buffer.from([0x82, 0xac]).toString('base64') } })
      line({ exit: { exit_code: 5 } })
      response.end()
    }
    request.resume()
  })
  await daemon.start()
  const result = await boxOf(new Client({ socket: daemon.socket })).run('x')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['aü€', 'e', 5])
  assert.deepEqual(daemon.requests, [
    'POST /v1/sandboxes/box/execs',
    'POST /v1/sandboxes/box/execs/1/attach?stdout_offset=3&stderr_offset=1',
    'POST /v1/sandboxes/box/execs/1/attach?stdout_offset=4&stderr_offset=1',
    'POST /v1/sandboxes/box/execs/1/attach?stdout_offset=4&stderr_offset=1',
  ])
})

test('a start that breaks is not made again, and an error ends a stream', async (t) => {
  const daemon = await Daemon.make(t, ({ response, line, count }) => {
    if (count === 1) return response.destroy()
    line(started)
    line({ error: { code: 'SBX-107', message: 'gone' } })
    response.end()
  })
  await daemon.start()
  const box = boxOf(new Client({ socket: daemon.socket }))
  await assert.rejects(box.run('x'), APIBrokenError)
  assert.equal(daemon.requests.length, 1)
  await assert.rejects(box.run('x'), { code: 'SBX-107' })
})

test('a daemon that was there is waited for, another is not', async (t) => {
  const daemon = await Daemon.make(t, ({ response }) => response.end('{"version":"v"}'))
  const never = new Client({ socket: daemon.socket })
  await assert.rejects(never.version(), DaemonOffError)
  await daemon.start()
  const client = new Client({ socket: daemon.socket })
  await client.version()
  await daemon.stop()
  const waiting = client.version()
  await daemon.start()
  assert.equal((await waiting).version, 'v')
  const impatient = new Client({ socket: daemon.socket, reconnect: 0 })
  await impatient.version()
  await daemon.stop()
  await assert.rejects(impatient.version(), DaemonOffError)
})

test('a refused connection carried nothing, so a start waits too', async (t) => {
  const daemon = await Daemon.make(t, ({ request, response, line }) => {
    if (request.method === 'GET') return response.end('{}')
    line(started)
    line({ exit: {} })
    response.end()
  })
  await daemon.start()
  const client = new Client({ socket: daemon.socket })
  await client.version()
  await daemon.stop()
  const running = boxOf(client).run('x')
  await daemon.start()
  assert.equal((await running).exitCode, 0)
})

test('input is sent again from its offset', async (t) => {
  let taken = ''
  const offsets = []
  const daemon = await Daemon.make(t, async ({ request, response, count }) => {
    const message = JSON.parse(await bodyOf(request))
    offsets.push(message.offset)
    taken += Buffer.from(message.data, 'base64').toString().slice(taken.length - Number(message.offset ?? taken.length))
    if (count === 2) return response.destroy() // it was taken, and nobody was told
    response.end(JSON.stringify({ offset: String(taken.length) }))
  })
  await daemon.start()
  const { transport } = new Client({ socket: daemon.socket })
  const own = new Process(transport, 'box', { id: '1' }, true)
  await Promise.all([own.send('one '), own.send('two '), own.send('three')])
  assert.equal(taken, 'one two three')
  assert.deepEqual(offsets, [0, 4, 4, 8])

  daemon.requests.length = 1 // the next request is the second
  const shared = new Process(transport, 'box', { id: '1' }, false)
  await assert.rejects(shared.send('x'), APIBrokenError)
  assert.deepEqual(offsets.slice(4), [undefined])
})

test('a consumer that does not read holds the daemon back', async (t) => {
  const total = 64 << 20
  const piece = JSON.stringify('x'.repeat(1 << 16))
  let written = 0
  let stalled
  const full = new Promise((resolve) => (stalled = resolve))
  const daemon = await Daemon.make(t, async ({ response, line }) => {
    line(started)
    while (written < total) {
      const room = response.write(`{"stdout":{"offset":"${written}","text":${piece}}}\n`)
      written += 1 << 16
      if (!room) {
        // The socket takes no more for as long as the consumer waits.
        const drained = once(response, 'drain').then(() => true)
        const waited = new Promise((resolve) => setTimeout(resolve, 500, false))
        if (!(await Promise.race([drained, waited]))) {
          stalled()
          await drained
        }
      }
    }
    line({ exit: {} })
    response.end()
  })
  await daemon.start()
  let first = true
  const result = await boxOf(new Client({ socket: daemon.socket })).run('x', {
    onStdout: async () => {
      if (!first) return
      first = false
      await full
      assert(written < 8 << 20, `${written} bytes were taken ahead of the consumer`)
    },
  })
  assert.equal(first, false)
  assert.equal(result.stdoutSkipped, total - (10 << 20))
})

test('an upload that is refused has the answer of its refusal', async (t) => {
  const daemon = await Daemon.make(t, ({ response }) => {
    response.writeHead(413, { Connection: 'close' })
    response.end('{"error":{"code":"SBX-216","message":"full"}}')
  })
  await daemon.start()
  const files = boxOf(new Client({ socket: daemon.socket })).files
  let parts = 0
  async function* endless() {
    for (;;) {
      parts++
      yield Buffer.alloc(1 << 16)
    }
  }
  await assert.rejects(files.write('/x', endless()), { code: 'SBX-216' })
  assert(parts < 1000)
  async function* broken() {
    yield Buffer.alloc(1 << 16)
    throw new Error('mine')
  }
  daemon.answer = async ({ request, response }) => {
    await bodyOf(request).catch(() => {})
    response.end('{}')
  }
  await assert.rejects(files.write('/x', broken()), /^Error: mine$/)
})

test('an abort ends a call that waits for the daemon', async (t) => {
  const daemon = await Daemon.make(t, ({ response }) => response.end('{}'))
  await daemon.start()
  const client = new Client({ socket: daemon.socket })
  await client.version()
  await daemon.stop()
  const stop = new AbortController()
  const running = boxOf(client).run('x', { signal: stop.signal })
  stop.abort(new Error('enough'))
  await assert.rejects(running, /^Error: enough$/)
})
