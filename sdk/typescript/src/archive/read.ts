/**
 * The entries of a tar in a file.
 */
import type { FileHandle } from 'node:fs/promises'
import { blockSize, readHeader, readPax, refuse, type Entry, type Header } from './header.js'

const maxPax = 1 << 20

/** An entry, and where its content is in the file. */
export interface Placed extends Entry {
  at: number
}

/** Iterates over the entries. Anything but files, directories and symlinks is refused. */
export async function* entriesOf(archive: FileHandle): AsyncGenerator<Placed> {
  const { size: end } = await archive.stat()
  let pax = new Map<string, string>()
  for (let at = 0; ; ) {
    const header = readHeader(await read(archive, at, blockSize))
    if (header === undefined) return
    at += blockSize
    if (header.letter === 'x') {
      if (header.size > maxPax) throw refuse('the archive is malformed: its pax records are too long')
      pax = readPax(await read(archive, at, header.size))
      at = next(at, header.size)
      continue
    }
    const entry = { ...entryOf(header, pax), at }
    if (at + entry.size > end) throw refuse('the archive ends too early')
    yield entry
    at = next(at, entry.size)
    pax = new Map()
  }
}

function next(at: number, size: number): number {
  return at + Math.ceil(size / blockSize) * blockSize
}

async function read(archive: FileHandle, at: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await archive.read(Buffer.alloc(length), 0, length, at)
  if (bytesRead < length) throw refuse('the archive ends too early')
  return buffer
}

const types: Record<string, Entry['type']> = { '0': 'file', '\0': 'file', '2': 'symlink', '5': 'directory' }

function entryOf(header: Header, pax: Map<string, string>): Entry {
  const name = pax.get('path') ?? header.name
  const type = types[header.letter]
  if (type === undefined) throw refuse(`the archive holds ${JSON.stringify(name)}, which is no file, directory or symlink`)
  const size = pax.has('size') ? Number(pax.get('size')) : header.size
  if (!Number.isSafeInteger(size) || size < 0) throw refuse(`the archive holds ${JSON.stringify(name)} with a wrong size`)
  return { ...header, type, name, size: type === 'file' ? size : 0, link: pax.get('linkpath') ?? header.link }
}
