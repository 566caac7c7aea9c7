import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { padding, writeHeader } from '../dist/esm/archive/header.js'
import { copyIn } from '../dist/esm/archive/pack.js'
import { staysIn } from '../dist/esm/archive/plan.js'
import { copyOut } from '../dist/esm/archive/unpack.js'

function scratch(t) {
  const dir = fs.mkdtempSync(join(tmpdir(), 'caisson-archive-'))
  t.after(() => fs.rmSync(dir, { recursive: true, force: true }))
  fs.mkdirSync(join(dir, 'target'))
  fs.mkdirSync(join(dir, 'outside'))
  return dir
}

const header = (type, name, more = {}) => writeHeader({ type, name, mode: 0o755, size: 0, mtime: 1, link: '', ...more })
const dir = (name) => header('directory', name)
const link = (name, link) => header('symlink', name, { link })
const file = (name, text) => Buffer.concat([header('file', name, { size: text.length }), Buffer.from(text), padding(text.length)])
const tar = (...entries) => Buffer.concat([...entries, Buffer.alloc(1024)])

// Writes another type into a header, with its checksum.
function retyped(entry, letter) {
  const changed = Buffer.from(entry)
  changed.write(letter, 156)
  changed.fill(' ', 148, 156)
  const sum = changed.subarray(0, 512).reduce((a, b) => a + b, 0)
  changed.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return changed
}

async function* stream(archive, piece = 1000) {
  for (let at = 0; at < archive.length; at += piece) yield archive.subarray(at, at + piece)
}

const tree = (root) =>
  fs.readdirSync(root, { recursive: true }).sort().map((name) => {
    const stat = fs.lstatSync(join(root, name))
    const mode = (stat.mode & 0o777).toString(8)
    if (stat.isSymbolicLink()) return `${name} -> ${fs.readlinkSync(join(root, name))}`
    return stat.isDirectory() ? `${name}/ ${mode}` : `${name} ${mode} ${fs.readFileSync(join(root, name))} ${stat.mtimeMs / 1000}`
  })

function sample(root) {
  const long = 'l'.repeat(90)
  fs.mkdirSync(join(root, 'a', long, long), { recursive: true })
  fs.writeFileSync(join(root, 'a', long, long, 'ünicode'), 'x'.repeat(70_000))
  fs.writeFileSync(join(root, 'empty'), '', { mode: 0o600 })
  fs.symlinkSync(`../a/${long}/${long}/ünicode`, join(root, 'a', 'up'))
  fs.symlinkSync('empty', join(root, 'link'))
  fs.utimesSync(join(root, 'empty'), 1000, 2000)
  fs.utimesSync(join(root, 'a', long, long, 'ünicode'), 1000, 3000)
  fs.mkdirSync(join(root, 'closed'), { mode: 0o500 })
}

test('what is packed is read by tar, and what tar packs is read here', async (t) => {
  const root = scratch(t)
  fs.mkdirSync(join(root, 'source'))
  sample(join(root, 'source'))
  const want = tree(join(root, 'source'))
  const packed = []
  for await (const part of copyIn(join(root, 'source'))) packed.push(part)
  execFileSync('tar', ['xpf', '-', '-C', join(root, 'target')], { input: Buffer.concat(packed) })
  assert.deepEqual(tree(join(root, 'target')), want)
  for (const format of ['ustar', 'pax']) {
    if (format === 'ustar') fs.renameSync(join(root, 'source/a'), join(root, 'source/b')) // a link's target is too long for it
    const list = format === 'ustar' ? ['source/empty', 'source/link', 'source/closed'] : ['source']
    const archive = execFileSync('tar', ['cf', '-', `--format=${format}`, '-C', root, ...(format === 'ustar' ? ['--no-recursion', 'source', ...list] : list)])
    const copied = await copyOut(stream(archive), join(root, format))
    assert.equal(copied.leftOut, 0)
    if (format === 'pax') assert.deepEqual(tree(join(root, format)).length, want.length)
    assert(tree(join(root, format)).includes('closed/ 500'))
  }
})

test('a directory goes into the target without its name, a file with it', async (t) => {
  const root = scratch(t)
  fs.writeFileSync(join(root, 'target/x'), 'old')
  fs.writeFileSync(join(root, 'target/y'), 'stays')
  assert.deepEqual(await copyOut(stream(tar(dir('d'), file('d/x', 'new'))), join(root, 'target')), { entries: 1, bytes: 3, leftOut: 0 })
  assert.deepEqual(await copyOut(stream(tar(file('z', 'one'))), join(root, 'target')), { entries: 1, bytes: 3, leftOut: 0 })
  assert.deepEqual(['x', 'y', 'z'].map((name) => fs.readFileSync(join(root, 'target', name), 'utf8')), ['new', 'stays', 'one'])
})

// Each of these writes to ../outside if it is believed. tar -P believes them.
const escapes = {
  'climbs': () => tar(dir('d'), file('d/../../outside/hit', 'x')),
  'is absolute': (root) => tar(dir('d'), file(`${root}/outside/hit`, 'x')),
  'goes through its own symlink': () => tar(dir('d'), link('d/l', '../../outside'), file('d/l/hit', 'x')),
  'goes through an absolute symlink': (root) => tar(dir('d'), link('d/l', `${root}/outside`), file('d/l/hit', 'x')),
  'goes through two symlinks': () => tar(dir('d'), dir('d/a'), link('d/a/l', '..'), link('d/m', 'a/l/../../outside'), file('d/m/hit', 'x')),
}

for (const [name, make] of Object.entries(escapes)) {
  test(`an archive that ${name} writes nothing outside`, async (t) => {
    const root = scratch(t)
    const archive = make(root)
    execFileSync('tar', ['xPf', '-', '-C', join(root, 'target')], { input: archive })
    assert.deepEqual(fs.readdirSync(join(root, 'outside')), ['hit'], 'the probe does not work')
    fs.rmSync(join(root, 'outside/hit'))
    fs.rmSync(join(root, 'target'), { recursive: true })
    await copyOut(stream(archive), join(root, 'target')).catch((error) => assert.equal(error.code, 'SBX-218'))
    assert.deepEqual(fs.readdirSync(join(root, 'outside')), [])
  })
}

test('nothing is written through a symlink that was there', async (t) => {
  const root = scratch(t)
  fs.symlinkSync('../outside', join(root, 'target/l'))
  fs.writeFileSync(join(root, 'target/l/probe'), '') // it does lead outside
  fs.rmSync(join(root, 'outside/probe'))
  await assert.rejects(copyOut(stream(tar(dir('d'), dir('d/l'), file('d/l/hit', 'x'))), join(root, 'target')), { code: 'SBX-218' })
  fs.writeFileSync(join(root, 'outside/kept'), 'kept')
  fs.symlinkSync('../outside/kept', join(root, 'target/f'))
  await copyOut(stream(tar(dir('d'), file('d/f', 'new'))), join(root, 'target'))
  assert.equal(fs.readFileSync(join(root, 'outside/kept'), 'utf8'), 'kept')
  assert(fs.lstatSync(join(root, 'target/f')).isFile())
  assert.deepEqual(fs.readdirSync(join(root, 'outside')), ['kept'])
})

const good = tar(dir('d'), file('d/x', 'x'.repeat(600)))
const checksum = Buffer.from(good)
checksum[513] ^= 1
const refused = {
  'a hard link': tar(dir('d'), retyped(link('d/h', '/etc/passwd'), '1')),
  'a device': tar(dir('d'), retyped(header('file', 'd/dev'), '3')),
  'a pipe': tar(dir('d'), retyped(header('file', 'd/pipe'), '6')),
  'a sparse file': tar(dir('d'), retyped(header('file', 'd/s'), 'S')),
  'a cut end': good.subarray(0, good.length - 1024),
  'a cut file': good.subarray(0, 1100),
  'a wrong checksum': checksum,
  'nothing at all': Buffer.alloc(0),
  'a name beside the copy': tar(dir('d'), file('e', 'x')),
  'the copy twice': tar(dir('d'), file('d', 'x')),
  'a symlink as the copy': tar(link('d', 'x')),
  'a file as a directory': tar(dir('d'), file('d/f', 'x'), file('d/f/g', 'x')),
  'a wrong pax record': tar(Buffer.concat([retyped(header('file', 'p', { size: 8 }), 'x'), Buffer.from('99 a=b\n\n'), padding(8)])),
}

for (const [name, archive] of Object.entries(refused)) {
  test(`an archive with ${name} is refused`, async (t) => {
    const root = scratch(t)
    await copyOut(stream(good), join(root, 'probe')) // what it is made of is taken
    await assert.rejects(copyOut(stream(archive), join(root, 'target')), { code: 'SBX-218' })
    const left = fs.readdirSync(join(root, 'target'))
    assert.deepEqual(left, name === 'a file as a directory' ? ['f'] : [])
  })
}

test('an archive that breaks off writes nothing', async (t) => {
  const root = scratch(t)
  async function* broken() {
    yield good
    throw new Error('broke')
  }
  await assert.rejects(copyOut(broken(), join(root, 'target')), /broke/)
  assert.deepEqual(fs.readdirSync(join(root, 'target')), [])
})

test('a symlink that could lead out is left out', async (t) => {
  const root = scratch(t)
  const archive = tar(dir('d'), dir('d/a'), link('d/a/in', '../x'), link('d/a/out', '../../x'), link('d/abs', '/x'), file('d/x', 'x'))
  assert.equal((await copyOut(stream(archive), join(root, 'target'))).leftOut, 2)
  assert.deepEqual(fs.readdirSync(join(root, 'target/a')), ['in'])
  const cases = [['x', 0, true], ['..', 0, false], ['..', 1, true], ['a/..', 5, false], ['./../x', 1, true], ['', 1, false], ['../../x', 1, false]]
  for (const [target, depth, want] of cases) assert.equal(staysIn(target, depth), want, target)
})
