import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Place } from '../dist/esm/events.js'
import { Collector, Keep } from '../dist/esm/collect.js'

const line = (message) => JSON.stringify(message)
const text = (offset, text) => line({ stdout: { offset: String(offset), text } })
const data = (offset, bytes) => line({ stdout: { offset: String(offset), data: Buffer.from(bytes).toString('base64') } })
const readAll = (place, lines) => lines.flatMap((each) => place.read(each))

test('a character that messages share is read whole', () => {
  const place = new Place('box', '1')
  const events = readAll(place, [text(0, 'aü'), data(3, [0xe2]), data(4, [0x82]), data(5, [0xac]), text(6, '€b'), line({ exit: {} })])
  assert.equal(events.map((event) => event.text ?? '').join(''), 'aü€€b')
  assert.equal(Buffer.concat(events.map((event) => event.data ?? Buffer.alloc(0))).toString(), 'aü€€b')
  assert.deepEqual(place.request().query, { stdout_offset: 10, stderr_offset: 0 })
})

test('a character that the end or a gap cuts becomes U+FFFD', () => {
  const gap = line({ stdout: { offset: '2', skipped: '100' } })
  const events = readAll(new Place('box', '1'), [text(0, 'a'), data(1, [0xe2]), gap, text(102, 'b'), data(103, [0xc3]), line({ exit: {} })])
  assert.equal(events.map((event) => event.text ?? '').join(''), 'a\ufffdb\ufffd')
  assert.deepEqual(events.map((event) => event.skipped ?? 0).filter(Boolean), [100])
  assert.equal(events.at(-1).type, 'exit')
})

test('a stream that goes on elsewhere is an error', () => {
  for (const offset of [0, 2]) {
    const place = new Place('box', '1')
    place.read(text(0, 'a'))
    assert.throws(() => place.read(text(offset, 'b')), { code: 'SBX-803' })
  }
})

test('a stream may begin later, and its parts have times', () => {
  const place = new Place('box', '', 0, 0, true)
  const timed = line({ stdout: { offset: '7', text: 'a', time: '2026-01-02T15:04:05.123456789Z' } })
  const events = readAll(place, [timed, line({ stderr: { text: 'b' } })])
  assert.deepEqual(events.map((event) => [event.offset, event.time]), [[7, new Date('2026-01-02T15:04:05.123Z')], [0, undefined]])
  assert.throws(() => place.read(text(10, 'b')), { code: 'SBX-803' })
})

test('the start is told once, and names the command', () => {
  const place = new Place('box')
  const started = line({ started: { sandbox_id: 's', exec: { id: '7' } } })
  assert.equal(place.read(started).length, 1)
  assert.equal(place.read(started).length, 0)
  assert.equal(place.request().path, '/v1/sandboxes/s/execs/7/attach')
  assert.throws(() => place.read(line({ error: { code: 'SBX-107' } })), { code: 'SBX-107' })
  assert.throws(() => place.read('no JSON'), { code: 'SBX-803' })
})

test('a stream is kept within its limit, in parts of any size', () => {
  const all = Buffer.from(Array.from({ length: 1000 }, (_, i) => i % 251))
  for (const limit of [2, 3, 7, 100, 999, 1000, 5000]) {
    for (const part of [1, 2, 3, 50, 333, 1000]) {
      const keep = new Keep(limit)
      for (let at = 0; at < all.length; at += part) keep.add(all.subarray(at, at + part), 0)
      const { data, skipped } = keep.kept()
      const half = Math.floor(limit / 2)
      const want = limit >= all.length ? all : Buffer.concat([all.subarray(0, limit - half), all.subarray(all.length - half)])
      assert.deepEqual(data, want, `limit ${limit}, parts of ${part}`)
      assert.equal(skipped, all.length - want.length)
    }
  }
  assert.throws(() => new Keep(1), RangeError)
  assert.throws(() => new Keep(NaN), RangeError)
})

test('a gap is in front of the last bytes', () => {
  const keep = new Keep(10)
  keep.add(Buffer.from('abc'), 0)
  keep.add(Buffer.alloc(0), 100)
  keep.add(Buffer.from('defghijk'), 0)
  assert.deepEqual([keep.kept().data.toString(), keep.kept().skipped], ['abcghijk', 103])
})

test('kept output does not grow', () => {
  const keep = new Keep(1 << 16)
  global.gc?.()
  const before = process.memoryUsage().arrayBuffers
  for (let i = 0; i < 100_000; i++) keep.add(Buffer.from('0123456789'), 0)
  assert(process.memoryUsage().arrayBuffers - before < 16 << 20)
  assert.equal(keep.kept().data.length, 1 << 16)
})

test('a callback is waited for', async () => {
  const seen = []
  const collector = new Collector({
    onStdout: async (part) => {
      await new Promise(setImmediate)
      seen.push(part)
    },
  })
  const events = readAll(new Place('box', '1'), [text(0, 'a'), text(1, 'b')])
  for (const event of events) await collector.add(event)
  assert.deepEqual(seen, ['a', 'b'])
})

test('text in parts of any size reads as the whole does', () => {
  const all = Buffer.concat([Buffer.from('aü€😀'), Buffer.from([0xff, 0xe2, 0x82, 0x41, 0xf0, 0x9f, 0xc3, 0xed, 0xa0, 0x80, 0xf5, 0x80, 0xe0, 0x80]), Buffer.from('z😀'), Buffer.from([0xf0, 0x9f])])
  for (const size of [1, 2, 3, 4, 5, 7, 100]) {
    const place = new Place('box', '1')
    const lines = []
    for (let at = 0; at < all.length; at += size) lines.push(data(at, all.subarray(at, at + size)))
    const events = readAll(place, [...lines, line({ exit: {} })])
    assert.equal(events.map((event) => event.text ?? '').join(''), all.toString(), `parts of ${size}`)
    assert.deepEqual(Buffer.concat(events.map((event) => event.data ?? Buffer.alloc(0))), all)
  }
})
