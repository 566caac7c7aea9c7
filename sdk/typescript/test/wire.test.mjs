import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CaissonError, NotFoundError } from '../dist/esm/index.js'
import { decode, errorOf, filePath, sandboxPath, target } from '../dist/esm/wire.js'

test('a message is decoded by its fields', () => {
  const box = decode('Sandbox', {
    id: 'x', pid: '12', created_at: '2026-01-02T03:04:05.5Z', idle_timeout: '1.5s', labels: { a_b: 'c' },
    ports: [{ host_port: 80 }], result: { exit_code: 3, usage: { peak_memory_bytes: '9' } }, later: 'unknown',
  })
  assert.equal(box.pid, 12)
  assert.deepEqual(box.createdAt, new Date('2026-01-02T03:04:05.500Z'))
  assert.equal(box.idleTimeout, 1.5)
  assert.deepEqual(box.labels, { a_b: 'c' })
  assert.deepEqual(box.ports, [{ address: '', hostPort: 80, port: 0, clients: [] }])
  assert.equal(box.result.exitCode, 3)
  assert.equal(box.result.usage.peakMemoryBytes, 9)
  assert.equal('later' in box, false)
})

test('an absent value is zero, and an absent message undefined, but not the parts of a result', () => {
  const box = decode('Sandbox', { result: null })
  assert.deepEqual([box.id, box.pid, box.labels, box.ports, box.idleTimeout], ['', 0, {}, [], 0])
  assert.deepEqual([box.createdAt, box.result], [undefined, undefined])
  const { usage, sandbox } = decode('Result', {})
  assert.deepEqual([usage.cpu, usage.peakMemoryBytes, sandbox.id, sandbox.egress], [0, undefined, '', undefined])
  assert.equal(decode('Limits', undefined).memoryBytes, 0)
})

test('paths are quoted', () => {
  assert.equal(filePath('a/b', 'files', '/x y/ü?#%'), '/v1/sandboxes/a%2Fb/files/x%20y/%C3%BC%3F%23%25')
  assert.throws(() => filePath('a', 'files', 'x'), TypeError)
  assert.throws(() => sandboxPath(''), TypeError)
  assert.equal(target('/x', { states: ['a', 'b'], labels: { k: 'v' } }), '/x?states=a&states=b&labels=k%3Dv')
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
