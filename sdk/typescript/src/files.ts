import { copyIn } from './archive/pack.js'
import { copyOut } from './archive/unpack.js'
import { FileAbsentError } from './generated/codes.js'
import { bytes, parts, type Request, type Transport } from './http.js'
import { bodyOf } from './input.js'
import { resumed } from './resume.js'
import { int64, present, size, type Size } from './forms.js'
import type { Data } from './spec.js'
import type { Copied, CopiedOut, FileEvent, FileInfo, Listing } from './types.js'
import { broken, decode, filePath, sandboxPath } from './wire.js'

/**
 * The changes below a directory. It is iterated over, and closed at the end. It goes on when
 * the daemon restarts: an event of the type "overflow" says that changes may be missing.
 */
export class Watch implements AsyncIterable<FileEvent> {
  private readonly call = new AbortController()
  private readonly list: AsyncGenerator<Record<string, unknown> | undefined>
  private closed = false

  /** @internal */
  constructor(
    transport: Transport,
    request: Request,
    private readonly path: string,
  ) {
    const { signal } = request
    if (signal?.aborted) this.call.abort(signal.reason)
    signal?.addEventListener('abort', () => this.call.abort(signal.reason), { once: true, signal: this.call.signal })
    this.list = resumed(transport, () => ({ ...request, signal: this.call.signal }))
  }

  /** @internal Waits until changes are reported. */
  async begin(): Promise<void> {
    for (;;) {
      const { done, value } = await this.list.next()
      if (done) throw broken('the watch did not begin')
      if (value?.ready) return
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FileEvent> {
    try {
      for await (const message of this.list) {
        if (message?.event) yield decode('FileEvent', message.event)
        else if (message?.ready) yield decode('FileEvent', { path: this.path, type: 'overflow' }) // it began again
      }
    } catch (error) {
      if (!this.closed) throw error
    }
  }

  /** Ends the watch. */
  close(): void {
    this.closed = true
    this.call.abort()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }
}

/** The files of a sandbox, with the rights of its user. Paths are absolute. */
export class Files {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly ref: string,
  ) {}

  /** Returns the bytes of a file, or `length` of them from `offset`. */
  async read(path: string, options: { offset?: number; length?: number } = {}): Promise<Buffer> {
    const query = { offset: int64(options.offset), length: int64(options.length) }
    const request = { method: 'GET', path: filePath(this.ref, 'files', path), query } as const
    return this.transport.repeat(async () => bytes(await this.transport.open(request)))
  }

  /** Returns a file as text. */
  async readText(path: string, encoding: BufferEncoding = 'utf8'): Promise<string> {
    return (await this.read(path)).toString(encoding)
  }

  /** Iterates over the bytes of a large file. */
  async *stream(path: string): AsyncGenerator<Buffer> {
    yield* parts(await this.transport.open({ method: 'GET', path: filePath(this.ref, 'files', path) }))
  }

  /** Replaces a file in one step. Without a mode a new file has 0644. */
  async write(path: string, data: Data, options: { mode?: number; parents?: boolean } = {}): Promise<FileInfo> {
    const query = { mode: options.mode, make_parents: options.parents }
    const request = { method: 'PUT', path: filePath(this.ref, 'files', path), query, body: bodyOf(data) } as const
    return decode('FileInfo', await this.transport.call(request))
  }

  /** Returns the entries of a directory, down to a depth. Their paths are below it. */
  async list(path: string, options: { depth?: number } = {}): Promise<Listing> {
    const query = { depth: options.depth }
    const answer = await this.transport.call({ method: 'GET', path: filePath(this.ref, 'dirs', path), query })
    const { files, truncated } = decode('ListDirResponse', answer)
    return Object.assign(files, { truncated })
  }

  /** Returns what a path is. `follow`: of a symlink, its target. */
  async stat(path: string, options: { follow?: boolean } = {}): Promise<FileInfo> {
    const query = { follow: options.follow }
    return decode('FileInfo', await this.transport.call({ method: 'GET', path: filePath(this.ref, 'stat', path), query }))
  }

  /** Returns whether there is something at a path. */
  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path)
      return true
    } catch (error) {
      if (error instanceof FileAbsentError) return false
      throw error
    }
  }

  /** Makes a directory. With `parents`, the default, one that exists is no error. */
  async mkdir(path: string, options: { mode?: number; parents?: boolean } = {}): Promise<FileInfo> {
    const parents = options.parents ?? true
    const json = present({ mode: options.mode, make_parents: parents })
    const request = { method: 'PUT', path: filePath(this.ref, 'dirs', path), json, repeatable: parents } as const
    return decode('FileInfo', await this.transport.call(request))
  }

  /** Moves a file or a directory. */
  async move(from: string, to: string, options: { replace?: boolean } = {}): Promise<FileInfo> {
    const json = { from, to, replace: options.replace ?? false }
    return decode('FileInfo', await this.transport.call({ method: 'POST', path: sandboxPath(this.ref, 'move'), json }))
  }

  /** Removes a file, or with `recursive` a directory. */
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    const query = { recursive: options.recursive }
    await this.transport.call({ method: 'DELETE', path: filePath(this.ref, 'files', path), query })
  }

  /** Reports changes below a directory, from the return of this call on. */
  async watch(path: string, options: { recursive?: boolean; signal?: AbortSignal } = {}): Promise<Watch> {
    const { signal, recursive } = options
    const request = { method: 'GET', path: filePath(this.ref, 'watch', path), query: { recursive }, signal } as const
    const watch = new Watch(this.transport, request, path)
    await watch.begin()
    return watch
  }

  /**
   * Copies the content of a local directory, or one file, into a directory, which is made.
   * If the connection breaks, all of it is copied again.
   */
  async copyIn(source: string, path: string): Promise<Copied> {
    await this.mkdir(path)
    const request = { method: 'PUT', path: filePath(this.ref, 'archive', path) } as const
    const answer = await this.transport.repeat(() => this.transport.once({ ...request, body: copyIn(source) }))
    return decode('CopyInResponse', answer)
  }

  /**
   * Copies the content of a directory, or one file, into a local directory, which is made.
   * Nothing is written before all has come. If the connection breaks, the copy begins again.
   */
  async copyOut(path: string, target: string, options: { maxBytes?: Size } = {}): Promise<CopiedOut> {
    const query = { max_bytes: size(options.maxBytes) }
    const request = { method: 'GET', path: filePath(this.ref, 'archive', path), query } as const
    return this.transport.repeat(async () => {
      const response = await this.transport.open(request)
      const copied = await copyOut(parts(response), target)
      const before = Number(response.trailers['caisson-left-out'] ?? 0)
      return { ...copied, leftOut: copied.leftOut + before }
    })
  }
}
