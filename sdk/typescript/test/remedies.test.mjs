import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { inTypeScript } from '../dist/esm/remedies.js'
import { decode, errorOf } from '../dist/esm/wire.js'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

test('every remedy of the daemon names calls and options, not commands and flags', () => {
  const texts = JSON.parse(execFileSync('python3', [here('../../python/tools/remedies.py'), here('../../..')]))
  assert(texts.length > 60)
  for (const text of texts) {
    const said = inTypeScript(text + (text.endsWith(' ') ? 'NAME' : ''))
    assert.doesNotMatch(said, /\bcaisson (?!with )[a-z]|--[a-z]|\0/, `of ${text}: see api/openapi/gen/remedies.go`)
  }
})

test('a remedy in the words of this package', () => {
  for (const [text, want] of [
    ['start the sandbox with --network allow --allow a.b:5432,private', "start the sandbox with network: 'allow', allow: ['a.b:5432,private']"],
    ['resume it first: caisson resume agent-7', 'resume it first: Sandbox.resume()'],
    ['name its destinations: --allow HOST, or --network allow for the rules', "name its destinations: allow: [HOST], or network: 'allow' for the rules"],
    ['with a longer --ttl or --idle-timeout', 'with a longer ttl or idleTimeout'],
    ['start it with --allow-ech, now', 'start it with allowEch: true, now'],
    ['caisson image pull, import or from-host', 'Client.images.pull(), load() or fromHost()'],
    ['create it with --rootfs rw, or with --disk for more', "create it with rootfs: 'rw', or with disk for more"],
    ['begin with --from SNAPSHOT', 'begin with from: SNAPSHOT'],
    ['or remove that one: caisson snapshot rm one', 'or remove that one: Client.snapshots.remove()'],
    ['use another --root, or iptables --version', 'use another --root, or iptables --version'], // of other programs
    ['raise the bound: --max-bytes SIZE', 'raise the bound: maxBytes: SIZE'],
    ['check the value', 'check the value'],
  ]) assert.equal(inTypeScript(text), want)
})

test('where a remedy is said', () => {
  const error = errorOf({ error: { code: 'SBX-114', message: 'caisson resume x', remedy: 'caisson resume x' } })
  assert.equal(error.message, 'caisson resume x [SBX-114] (Sandbox.resume())')
  assert.equal(decode('CheckPolicyResponse', { remedy: 'allow it with --allow a.b' }).remedy, "allow it with allow: ['a.b']")
  assert.deepEqual(decode('Sandbox', { warnings: ['--replace makes it'] }).warnings, ['replace: true makes it'])
})
