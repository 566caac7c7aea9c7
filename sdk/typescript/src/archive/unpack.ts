/**
 * A tar as local files. What comes out of a sandbox is not trusted: names that leave the
 * target are refused, symlinks that lead out are left out, and nothing is written through
 * a symlink. Other programs must not change the target meanwhile.
 */
import { constants } from 'node:fs'
import { chmod, lstat, mkdir, mkdtemp, open, rm, symlink, unlink, type FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { CopiedOut } from '../types.js'
import { refuse } from './header.js'
import { Base, place, staysIn } from './plan.js'
import { entriesOf, type Placed } from './read.js'

const piece = 256 << 10
const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants

/** Copies what a stream brings below a directory. Nothing is written before all has come. */
export async function copyOut(stream: AsyncIterable<Buffer>, target: string): Promise<CopiedOut> {
  const dir = await mkdtemp(join(tmpdir(), 'caisson-'))
  try {
    const archive = await open(join(dir, 'archive'), 'wx+', 0o600)
    try {
      for await (const part of stream) await archive.writeFile(part)
      return await unpack(archive, target)
    } finally {
      await archive.close()
    }
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}

interface Planned {
  entry: Placed
  parts: string[]
}

// All is checked before anything is written. Symlinks are made last.
async function unpack(archive: FileHandle, target: string): Promise<CopiedOut> {
  const base = new Base()
  const links: Planned[] = []
  const others: Planned[] = []
  let leftOut = 0
  for await (const entry of entriesOf(archive)) {
    const parts = base.strip(place(entry), entry.type)
    if (parts === undefined) continue
    if (entry.type !== 'symlink') others.push({ entry, parts })
    else if (staysIn(entry.link, parts.length - 1)) links.push({ entry, parts })
    else leftOut++
  }
  const writer = new Writer(archive, target)
  await mkdir(target, { recursive: true })
  for (const planned of [...others, ...links]) await writer.write(planned)
  await writer.finish()
  return { entries: others.length + links.length, bytes: writer.bytes, leftOut }
}

class Writer {
  bytes = 0
  private readonly real = new Set<string>() // directories that are no symlinks
  private readonly modes: { path: string; mode: number }[] = []

  constructor(
    private readonly archive: FileHandle,
    private readonly target: string,
  ) {}

  async write({ entry, parts }: Planned): Promise<void> {
    const parent = await this.enter(parts.slice(0, -1))
    const path = join(parent, parts.at(-1) as string)
    if (entry.type === 'directory') {
      await this.directory(path, entry.mode)
      return
    }
    await makeWay(path)
    if (entry.type === 'symlink') await symlink(entry.link, path)
    else await this.file(path, entry)
  }

  // Returns a directory below the target, which is made where it is missing.
  private async enter(parts: string[]): Promise<string> {
    let path = this.target
    for (const part of parts) {
      path = join(path, part)
      await this.directory(path)
    }
    return path
  }

  private async directory(path: string, mode?: number): Promise<void> {
    if (this.real.has(path)) return
    const found = await lstat(path).catch(absent)
    if (found === undefined) {
      await mkdir(path, 0o700)
      this.modes.push({ path, mode: mode ?? 0o755 })
    } else if (!found.isDirectory()) {
      throw refuse(`${path} is no directory`)
    }
    this.real.add(path)
  }

  private async file(path: string, entry: Placed): Promise<void> {
    const file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
    try {
      const buffer = Buffer.alloc(Math.min(entry.size, piece))
      for (let done = 0; done < entry.size; ) {
        const length = Math.min(entry.size - done, piece)
        const { bytesRead } = await this.archive.read(buffer, 0, length, entry.at + done)
        if (bytesRead === 0) throw refuse('the archive ends too early')
        await file.writeFile(buffer.subarray(0, bytesRead))
        done += bytesRead
      }
      await file.utimes(entry.mtime, entry.mtime)
      await file.chmod(entry.mode)
      this.bytes += entry.size
    } finally {
      await file.close()
    }
  }

  /** Gives directories their modes, the deepest first: a closed one cannot be passed. */
  async finish(): Promise<void> {
    for (const { path, mode } of this.modes.reverse()) await chmod(path, mode)
  }
}

// Removes what an entry replaces. A directory stays.
async function makeWay(path: string): Promise<void> {
  const found = await lstat(path).catch(absent)
  if (found?.isDirectory()) throw refuse(`${path} is a directory`)
  if (found !== undefined) await unlink(path)
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error
}
