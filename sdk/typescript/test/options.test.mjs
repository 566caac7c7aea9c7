import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Client, Sandbox } from '../dist/esm/index.js'
import { duration, request, seconds, size } from '../dist/esm/forms.js'
import * as made from '../dist/esm/generated/options.js'
import { aloneSpec, createRequest, runSpec, startSpec } from '../dist/esm/spec.js'

const document = new URL('../../../api/openapi/openapi.json', import.meta.url)
const { schemas } = JSON.parse(readFileSync(document, 'utf8')).components

const mounts = [
  { type: 'bind', source: '/s', target: '/d', readOnly: true },
  { type: 'tmpfs', target: '/t', size: 4 },
  { type: 'volume', source: 'v', target: '/c', cow: true },
]
// A value of each form with all that it can say.
const samples = {
  text: 't', flag: true, count: 1, size: '1K', cpus: 1.5, time: '1s', texts: ['a'], counts: [1], map: { a: 'b' },
  secrets: { a: 'b' }, rules: ['a'], workspace: '/w:/in:ro', mounts, nested: { sandboxes: 1, memory: 1, cpus: 1 },
  inputs: [{ path: 'p', data: 'd', mode: 0o400 }], rlimits: { core: 1 }, terminal: true,
}
const everyOption = (table) => Object.fromEntries(Object.entries(table).map(([name, [, form]]) => [name, samples[form]]))

// The paths of all fields of a message.
function fieldsOf(schema, path = '') {
  if (schema.$ref) return fieldsOf(schemas[schema.$ref.split('/').at(-1)], path)
  if (schema.type === 'array') return fieldsOf(schema.items, path)
  if (!schema.properties) return [path]
  return Object.entries(schema.properties).flatMap(([name, field]) => fieldsOf(field, `${path}.${name}`))
}

// The paths of all values of a request.
function pathsOf(value, path = '') {
  if (Array.isArray(value)) return value.flatMap((item) => pathsOf(item, path))
  if (typeof value !== 'object' || /\.(env|labels|args|secrets)$/.test(path)) return [path]
  return Object.entries(value).flatMap(([name, field]) => pathsOf(field, `${path}.${name}`))
}

// Fails if a field of the message is in no request, but for those that other code makes.
function walk(message, body, madeHere) {
  const all = fieldsOf(schemas[message])
  const want = all.filter((path) => !madeHere.some((other) => path === other || path.startsWith(`${other}.`)))
  const have = pathsOf(body)
  assert(want.length > 4)
  assert.deepEqual(want.filter((path) => !have.includes(path)), [], `no option of the SDK sets these fields of ${message}`)
  assert.deepEqual(have.filter((path) => !all.includes(path)), [], `not fields of ${message}`)
}

test('every field of create, run and update has an option', () => {
  walk('CreateRequest', createRequest(everyOption(made.createTable)), ['.idempotency_key'])
  const own = ['.detach', '.stdin', '.exec.args', '.exec.tty', '.exec.env', '.exec.user', '.exec.limits'] // the last three: the sandbox's
  walk('RunRequest', aloneSpec('x', { ...everyOption(made.aloneTable), input: 'x' }), own)
  walk('ExecSpec', startSpec('x', everyOption(made.startTable)), ['.args'])
  walk('UpdateRequest', request(made.updateTable, everyOption(made.updateTable)), ['.ref'])
  assert.deepEqual(runSpec(['x'], {}), { args: ['x'], output_limit_bytes: 10485760 })
})

test('run of a client has the options of create and of run', () => {
  const names = Object.keys({ ...made.sandboxTable, ...made.execTable })
  assert.deepEqual(names.filter((name) => !(name in made.aloneTable)), [])
})

test('durations are seconds or text with units', () => {
  assert.deepEqual([90, '1s', '90s', '1h30m', '500ms', '1.5s', '.5s', 0.25, 0, 1200, 1e-9, '2us'].map(duration),
    ['90s', '1s', '90s', '5400s', '0.5s', '1.5s', '0.5s', '0.25s', '0s', '1200s', '0.000000001s', '0.000002s'])
  for (const wrong of ['', '5', '1d', 's', '-1s', '1 s', '1s ', '1.2.3s', '1h-1m', -1, NaN, Infinity, true, null, [1], {}]) {
    const shown = typeof wrong === 'number' ? String(wrong) : JSON.stringify(wrong)
    const message = `${shown} is no duration: give seconds, or text such as "90s", "1.5s" or "1h30m"`
    assert.throws(() => seconds(wrong), { name: 'TypeError', message })
    if (wrong !== null) assert.throws(() => runSpec('x', { timeout: wrong }), { name: 'TypeError', message: `timeout: ${message}` })
  }
  assert.throws(() => new Client({ reconnect: 'soon' }), /"soon" is no duration/)
})

test('sizes are bytes or text', () => {
  assert.deepEqual(['512M', '1.5k', 7, '2G'].map(size), [536870912, 1536, 7, 2147483648])
  for (const wrong of ['', '5X', 'M', '-1', 'NaN', NaN, Infinity, 1.5, {}]) assert.throws(() => size(wrong), TypeError)
})

test('wrong values name their option', () => {
  for (const [option, value, message] of [
    ['allow', 'github.com', 'allow: "github.com" is no list'],
    ['pids', '4', 'pids: "4" is no whole number'],
    ['allowEch', 1, 'allowEch: 1 is neither true nor false'],
    ['image', 3, 'image: 3 is no text'],
    ['cpus', '2', 'cpus: "2" is no number of CPUs'],
    ['mounts', [{ type: 'tmpfs', target: '/x', sise: 1 }], 'mounts: there is no option "sise"; there are: cow, readOnly, size, source, target, type'],
  ]) assert.throws(() => createRequest({ [option]: value }), { name: 'TypeError', message })
})

test('what is not given is absent in a request', () => {
  assert.deepEqual(createRequest({}), {})
  assert.deepEqual(createRequest({ memory: undefined, nested: false }), {})
  assert.deepEqual(startSpec('a', { tty: true, cpus: 1.5 }), {
    shell: 'a', stdin: true, tty: { rows: 24, cols: 80 }, output_limit_bytes: 10485760, limits: { milli_cpu: 1500 },
  })
  assert.deepEqual(request(made.updateTable, { allow: [], ttl: 0 }), { ttl: '0s', allow: { rules: [] } })
  assert.deepEqual(request(made.updateTable, { ioReadBps: 65536, ioWriteBps: '1M' }), { io_read_bps: 65536, io_write_bps: 1048576 })
  assert.deepEqual(createRequest({ nested: true }), { nested: {} })
  const spec = (options) => request(made.sandboxTable, options)
  assert.deepEqual(spec({ workspace: '/a/b:ro' }).workspace, { dir: '/a/b', mode: 'ro' })
  assert.deepEqual(spec({ workspace: '/a:b' }).workspace, { dir: '/a:b', mode: '' })
  assert.deepEqual(spec({ workspace: '/a/b:cow' }).workspace, { dir: '/a/b', mode: 'cow' })
  assert.deepEqual(spec({ workspace: '/a:/b/c:ro' }).workspace, { dir: '/a', mode: 'ro', path: '/b/c' })
  assert.deepEqual(spec({ mounts: [...mounts, { type: 'volume', source: 'deps', target: '/v' }] }).mounts, [
    { type: 'bind', source: '/s', target: '/d', read_only: true },
    { type: 'tmpfs', target: '/t', size_bytes: 4 },
    { type: 'volume', source: 'v', target: '/c', cow: true },
    { type: 'volume', source: 'deps', target: '/v' },
  ])
  const exec = request(made.execTable, { inputs: { token: 's' }, rlimits: { core: [0, 'unlimited'] } })
  assert.deepEqual(exec.inputs, [{ path: 'token', data: 'cw==' }])
  assert.deepEqual(exec.rlimits, [{ name: 'core', soft: 0, hard: '18446744073709551615' }])
})

test('an option that there is not is refused', async () => {
  const wrong = { name: 'TypeError', message: /there is no option "memroy"; there are: .*memory/ }
  const client = new Client({ socket: '/nowhere' })
  await assert.rejects(Sandbox.create({ memroy: '5M' }), wrong)
  for (const call of ['run', 'spec']) await assert.rejects(client[call]('x', { memory: '5M', memroy: '5M' }), wrong)
  for (const make of [runSpec, startSpec]) assert.throws(() => make('x', { memroy: 1 }), wrong)
  assert.throws(() => runSpec('x', { constructor: 1 }), TypeError)
  createRequest({ memory: '5M', memroy: undefined, client })
  aloneSpec('x', { image: 'base', input: '', onStdout() {}, ioReadBps: 1 })
})
