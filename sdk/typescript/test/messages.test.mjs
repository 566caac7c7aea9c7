import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { decode } from '../dist/esm/wire.js'

// Every message of an answer, with a value in every field.
const messages = JSON.parse(readFileSync(new URL('../../../api/testdata/messages.json', import.meta.url), 'utf8'))

// An error, which has a class, and answers that are the bytes of a file.
const others = ['ErrorDetail', 'CopyOutResponse', 'ExportSnapshotResponse', 'ForwardResponse', 'ReadFileResponse', 'SaveImagesResponse']

const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())

// Checks that a value has all of what was told.
function check(at, told, value) {
  if (value instanceof Date) assert.equal(value.getTime(), new Date(told).getTime(), at)
  else if (value instanceof Uint8Array) assert.equal(Buffer.from(value).toString('base64'), told, at)
  else if (typeof value === 'number' && typeof told === 'string') assert.equal(`${value}s`, told, at)
  else if (Array.isArray(told)) {
    assert.equal(value.length, told.length, at)
    told.forEach((item, i) => check(at, item, value[i]))
  } else if (typeof told === 'object') {
    for (const [name, item] of Object.entries(told)) {
      const key = name in value ? name : camel(name)
      assert(key in value, `${at} has no ${key}`)
      check(`${at}.${name}`, item, value[key])
    }
  } else assert.equal(value, told, at)
}

test('every field of every answer is decoded', () => {
  assert(Object.keys(messages).length > 60)
  for (const [name, forms] of Object.entries(messages)) {
    if (others.includes(name)) continue
    for (const message of forms) check(name, message, decode(name, message))
  }
})
