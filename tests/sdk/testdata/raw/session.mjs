// The same session with fetch, of undici: node session.mjs SOCKET
import { Agent, fetch } from 'undici'
import { createInterface } from 'node:readline/promises'
import assert from 'node:assert/strict'

const dispatcher = new Agent({ connect: { socketPath: process.argv[2] }, bodyTimeout: 0, headersTimeout: 0 })
const call = (method, path, body) =>
  Buffer.isBuffer(body) || !body
    ? fetch('http://caisson/v1' + path, { method, dispatcher, body })
    : fetch('http://caisson/v1' + path, { method, dispatcher, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } })
async function ask(...args) {
  const answer = await call(...args)
  const value = await answer.json()
  assert(answer.ok, JSON.stringify(value))
  return value
}
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
async function say(word) {
  console.log(word)
  await answers.next()
}
async function* events(answer) {
  let rest = ''
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split('\n')
    rest = lines.pop()
    for (const line of lines) yield JSON.parse(line)
  }
}
const data = (e) => ('text' in e ? Buffer.from(e.text) : Buffer.from(e.data, 'base64'))

await ask('POST', '/sandboxes', { name: 'raw-js' })
const shell = 'read a; read b; echo $a $b; for i in $(seq 2000); do echo line $i; done; sleep 1; echo end >&2; exit 3'
const { value } = await events(await call('POST', '/sandboxes/raw-js/execs', { exec: { shell, stdin: true } })).next()
const path = '/sandboxes/raw-js/execs/' + value.started.exec.id
await ask('POST', path + '/input', { offset: '0', data: btoa('one\n') })
await ask('POST', path + '/input', { offset: '0', data: btoa('one\ntwo\n'), close: true })
let got = Buffer.alloc(0)
let stderr = ''
let result
let killed = false
while (!result) {
  const answer = await call('POST', `${path}/attach?stdout_offset=${got.length}&stderr_offset=${stderr.length}`)
  try {
    for await (const event of events(answer)) {
      if (event.stdout) {
        assert.equal(Number(event.stdout.offset ?? 0), got.length)
        got = Buffer.concat([got, data(event.stdout)])
      }
      if (event.stderr) stderr += data(event.stderr)
      result ??= event.exit
      if (got.length > 5000 && !killed) {
        killed = true
        await say('kill')
        await say('launch')
      }
    }
  } catch (error) {
    if (!killed || error instanceof assert.AssertionError) throw error // else the daemon was killed
  }
}
assert.equal(got.toString(), 'one two\n' + Array.from({ length: 2000 }, (_, i) => `line ${i + 1}\n`).join(''))
assert.equal(stderr, 'end\n')
assert.equal(result.exit_code, 3)
const content = Buffer.alloc(200000, '\x00\xff', 'latin1')
const put = await call('PUT', '/sandboxes/raw-js/files/tmp/x%20y', content)
assert(put.ok, await put.text())
assert.deepEqual(Buffer.from(await (await call('GET', '/sandboxes/raw-js/files/tmp/x%20y')).arrayBuffer()), content)
await ask('DELETE', '/sandboxes/raw-js?force=true')
console.log('ok')
process.exit(0)
