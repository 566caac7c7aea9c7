import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CaissonError, NotFoundError, Sandbox } from '../dist/esm/index.js'
import { check } from '../dist/esm/options.js'
import { duration, execSpec, sandboxSpec, size, updateRequest } from '../dist/esm/spec.js'
import { decode, errorOf, filePath, sandboxPath, target } from '../dist/esm/wire.js'

test('a message is decoded by its fields', () => {
  const box = decode('Sandbox', {
    id: 'x', pid: '12', created_at: '2026-01-02T03:04:05.5Z', idle_timeout: '1.5s', labels: { a_b: 'c' },
    ports: [{ host_port: 80 }], result: { exit_code: 3, peak_memory_bytes: '9' }, later: 'unknown',
  })
  assert.equal(box.pid, 12)
  assert.deepEqual(box.createdAt, new Date('2026-01-02T03:04:05.500Z'))
  assert.equal(box.idleTimeout, 1.5)
  assert.deepEqual(box.labels, { a_b: 'c' })
  assert.deepEqual(box.ports, [{ address: '', hostPort: 80, port: 0 }])
  assert.equal(box.result.exitCode, 3)
  assert.equal(box.result.peakMemoryBytes, 9)
  assert.equal('later' in box, false)
})

test('an absent value is zero, and an absent message undefined', () => {
  const box = decode('Sandbox', { result: null })
  assert.deepEqual([box.id, box.pid, box.labels, box.ports, box.idleTimeout], ['', 0, {}, [], 0])
  assert.deepEqual([box.createdAt, box.result], [undefined, undefined])
  assert.equal(decode('Result', {}).peakMemoryBytes, undefined)
  assert.equal(decode('Limits', undefined).memoryBytes, 0)
})

test('sizes and times', () => {
  assert.deepEqual(['512M', '1.5k', 7, '2G'].map(size), ['536870912', '1536', '7', '2147483648'])
  assert.deepEqual([90, '90s', '1h30m', '500ms', 0.25, 0, 1200, 1e-9].map(duration),
    ['90s', '90s', '5400s', '0.5s', '0.25s', '0s', '1200s', '0.000000001s'])
  for (const wrong of ['', '5X', 'M', '-1', 'NaN']) assert.throws(() => size(wrong), TypeError)
  for (const wrong of [NaN, Infinity, 1.5]) assert.throws(() => size(wrong), TypeError)
  for (const wrong of ['', '5', '1d', 's', NaN]) assert.throws(() => duration(wrong), TypeError)
})

test('what is not given is absent in a request', () => {
  assert.deepEqual(sandboxSpec({}), { limits: {} })
  assert.deepEqual(execSpec(['a'], {}), { args: ['a'], output_limit_bytes: '10485760' })
  assert.deepEqual(execSpec('a', { tty: true, cpus: 1.5 }), {
    shell: 'a', stdin: true, tty: { rows: 24, cols: 80 }, output_limit_bytes: '10485760', limits: { milli_cpu: '1500' },
  })
  assert.deepEqual(updateRequest({ allow: [], ttl: 0 }), { ttl: '0s', allow: { rules: [] } })
  assert.deepEqual(sandboxSpec({ ioReadBps: '2M' }), { limits: { io_read_bps: '2097152' } })
  assert.deepEqual(updateRequest({ ioReadBps: 65536, ioWriteBps: '1M' }), { io_read_bps: '65536', io_write_bps: '1048576' })
  assert.deepEqual(sandboxSpec({ workspace: '/a/b:ro' }).workspace, { dir: '/a/b', mode: 'ro' })
  assert.equal(target('/x', { states: ['a', 'b'], labels: { k: 'v' } }), '/x?states=a&states=b&labels=k%3Dv')
  assert.deepEqual(sandboxSpec({ workspace: '/a:b' }).workspace, { dir: '/a:b', mode: '' })
  assert.deepEqual(sandboxSpec({ workspace: '/a:/b/c:ro' }).workspace, { dir: '/a', mode: 'ro', path: '/b/c' })
})

test('paths are quoted', () => {
  assert.equal(filePath('a/b', 'files', '/x y/ü?#%'), '/v1/sandboxes/a%2Fb/files/x%20y/%C3%BC%3F%23%25')
  assert.throws(() => filePath('a', 'files', 'x'), TypeError)
  assert.throws(() => sandboxPath(''), TypeError)
  assert.equal(target('/p', { a: 0, b: false, c: undefined, d: { k: 'v w' }, e: true }), '/p?a=0&d=k%3Dv+w&e=true')
})

test('an error has the class of its code and all its fields', () => {
  const fields = { code: 'SBX-107', class: 'sandbox_down', message: 'no sandbox', cause: 'why', remedy: 'do', retryable: false, request_id: 'r' }
  const error = errorOf({ error: fields }, 404)
  assert(error instanceof NotFoundError && error instanceof CaissonError && error instanceof Error)
  assert.deepEqual(
    [error.name, error.code, error.class, error.summary, error.cause, error.remedy, error.retryable, error.requestId, error.status],
    ['NotFoundError', 'SBX-107', 'sandbox_down', 'no sandbox', 'why', 'do', false, 'r', 404])
  assert.equal(error.message, 'no sandbox: why [SBX-107] (do)')
  const later = errorOf({ error: { ...fields, code: 'SBX-999' } })
  assert.equal(later.constructor, CaissonError)
  assert.equal(later.code, 'SBX-999')
  assert.equal(errorOf({}, 502).code, 'SBX-803')
})

test('an option that there is not is refused', async () => {
  const wrong = { name: 'TypeError', message: /there is no option "memroy"; there are: .*memory/ }
  await assert.rejects(Sandbox.create({ memroy: '5M' }), wrong)
  for (const call of ['run', 'start', 'update', 'runAlone']) assert.throws(() => check(call, { memory: '5M', memroy: '5M' }), wrong)
  assert.throws(() => check('run', { constructor: 1 }), TypeError)
  check('create', { memory: '5M', memroy: undefined })
  check('runAlone', { image: 'base', input: '', onStdout() {}, ioReadBps: 1 })
})
