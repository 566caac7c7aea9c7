import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import * as caisson from '../dist/esm/index.js'
import { byCode } from '../dist/esm/generated/codes.js'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

test('the generated files are current', () => {
  const out = mkdtempSync(join(tmpdir(), 'caisson-generated-'))
  try {
    execFileSync(process.execPath, [here('../tools/generate.mjs'), out])
    const files = readdirSync(out).sort()
    const there = readdirSync(here('../src/generated')).filter((file) => !['options.ts', 'values.ts'].includes(file)) // which make generate makes
    assert.deepEqual(there.sort(), files)
    for (const file of files) {
      assert.equal(readFileSync(here(`../src/generated/${file}`), 'utf8'), readFileSync(join(out, file), 'utf8'), file)
    }
  } finally {
    rmSync(out, { recursive: true })
  }
})

test('each documented code has a class of its own', () => {
  const page = readFileSync(here('../../../docs/reference/errors.md'), 'utf8')
  const codes = [...page.matchAll(/^\| (SBX-\d+) \|/gm)].map(([, code]) => code)
  assert(codes.length > 50)
  assert.deepEqual(Object.keys(byCode).sort(), codes.sort())
  assert.equal(new Set(Object.values(byCode)).size, codes.length)
  for (const kind of Object.values(byCode)) assert.equal(caisson[kind.name], kind)
  assert.equal(byCode['SBX-107'], caisson.NotFoundError)
})
