/**
 * Local files as a tar stream.
 */
import { type Stats } from 'node:fs'
import { lstat, open, readdir, readlink } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { blockSize, padding, writeHeader, type Entry } from './header.js'

const piece = 256 << 10

/**
 * Packs the content of a directory, or one file. Files, directories and symlinks are packed,
 * without owners. Anything else is an error.
 */
export async function* copyIn(source: string): AsyncGenerator<Buffer> {
  const path = resolve(source)
  const found = await lstat(path)
  if (found.isDirectory()) yield* below(path, '')
  else yield* one(path, basename(path), found)
  yield Buffer.alloc(2 * blockSize)
}

async function* below(path: string, name: string): AsyncGenerator<Buffer> {
  for (const entry of (await readdir(path)).sort()) {
    const [at, as] = [join(path, entry), name ? `${name}/${entry}` : entry]
    const found = await lstat(at)
    yield* one(at, as, found)
    if (found.isDirectory()) yield* below(at, as)
  }
}

async function* one(path: string, name: string, found: Stats): AsyncGenerator<Buffer> {
  const entry: Entry = { type: 'file', name, mode: found.mode & 0o777, size: 0, mtime: found.mtimeMs / 1000, link: '' }
  if (found.isDirectory()) yield writeHeader({ ...entry, type: 'directory' })
  else if (found.isSymbolicLink()) yield writeHeader({ ...entry, type: 'symlink', link: await readlink(path) })
  else if (found.isFile()) yield* file(path, entry)
  else throw new Error(`${path} is no file, directory or symlink`)
}

async function* file(path: string, entry: Entry): AsyncGenerator<Buffer> {
  const handle = await open(path, 'r')
  try {
    const { size } = await handle.stat()
    yield writeHeader({ ...entry, size })
    for (let left = size; left > 0; ) {
      const length = Math.min(left, piece)
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, null)
      if (bytesRead === 0) throw new Error(`${path} became shorter while it was copied`)
      left -= bytesRead
      yield buffer.subarray(0, bytesRead)
    }
    yield padding(size)
  } finally {
    await handle.close()
  }
}
