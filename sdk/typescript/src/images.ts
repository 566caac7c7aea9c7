import { randomBytes } from 'node:crypto'
import { padding, writeHeader } from './archive/header.js'
import { duration, present, request as made, type Time } from './forms.js'
import { ImageNotFoundError } from './generated/codes.js'
import { buildTable, type BuildOptions as MadeBuildOptions } from './generated/options.js'
import { messages, parts, type Request, type Transport } from './http.js'
import { bodyOf, bytesOf } from './input.js'
import type { Data } from './spec.js'
import type { BuildProgress, Image, ImageProgress, ImageUsage, Pruned } from './types.js'
import { broken, decode } from './wire.js'

/** How an image is built. Limits and network are those of each RUN, which has no network by default. */
export interface BuildOptions extends MadeBuildOptions {
  /** What COPY finds, by path. */
  files?: Record<string, string | Uint8Array>
  /** Is told of each step that begins, and of the output of its command. */
  onProgress?: (progress: BuildProgress) => void
  signal?: AbortSignal
}

/** Options of a pull. */
export interface PullOptions {
  onProgress?: (progress: ImageProgress) => void
  signal?: AbortSignal
}

/** What of the host is in an image. */
export interface FromHostOptions extends PullOptions {
  packages?: readonly string[]
  paths?: readonly string[]
}

/** Which images are removed. */
export interface PruneOptions {
  unused?: boolean
  until?: Time
  dryRun?: boolean
}

/** The images of the daemon. */
export class Images {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Returns all images. */
  async list(): Promise<Image[]> {
    return decode('ListImagesResponse', await this.transport.list('/v1/images', 'images')).images
  }

  /** Returns one image. */
  async get(name: string): Promise<Image> {
    const answer = await this.transport.call({ method: 'GET', path: imagePath(name) })
    return decode('Image', answer.image)
  }

  /**
   * Imports a tar: an OCI layout, a `docker save`, or a root file system. Without a name it
   * has the one that the archive states.
   */
  async load(archive: Data, name?: string): Promise<Image> {
    const body = bodyOf(archive)
    const answer = await this.transport.call(
      name ? { method: 'PUT', path: imagePath(name), body } : { method: 'POST', path: '/v1/images/import', body },
    )
    return decode('Image', answer.image)
  }

  /** Pulls HOST/PATH[:TAG][@DIGEST] from its registry, which the daemon has to allow. */
  pull(name: string, { onProgress, signal }: PullOptions = {}): Promise<Image> {
    const request: Request = { method: 'POST', path: '/v1/images/pull', json: { name }, signal }
    return this.transport.repeat(() => this.follow(request, (m) => onProgress?.(decode('ImageProgress', m))), true, signal)
  }

  /** Builds an image from a Dockerfile. */
  async build(name: string, dockerfile: string, options: BuildOptions = {}): Promise<Image> {
    const { files = {}, onProgress, signal } = options
    const some = Object.keys(files).length > 0
    const context = some ? `build-context/${randomBytes(16).toString('hex')}` : ''
    const json = {
      ...made(buildTable, options, ['files', 'onProgress', 'signal']),
      name, context, dockerfile: Buffer.from(dockerfile).toString('base64'),
    }
    const request: Request = { method: 'POST', path: '/v1/images/build', json, signal }
    try {
      if (some) await this.load(contextOf(files), context)
      return await this.follow(request, (m) => onProgress?.(decode('BuildProgress', m)))
    } finally {
      if (some) await this.remove(context).catch(ifPresent) // where the build has not removed it
    }
  }

  /** Makes an image from software that is installed on the host. */
  fromHost(name: string, { packages = [], paths = [], onProgress, signal }: FromHostOptions): Promise<Image> {
    const request: Request = { method: 'POST', path: '/v1/images/from-host', json: { name, packages, paths }, signal }
    return this.follow(request, (m) => onProgress?.(decode('ImageProgress', m)))
  }

  /** Gives an image a second name, which belongs to the caller. */
  async tag(name: string, newName: string): Promise<Image> {
    const json = { name, new_name: newName }
    const answer = await this.transport.call({ method: 'POST', path: '/v1/images/tag', json, repeatable: true })
    return decode('Image', answer.image)
  }

  /** Iterates over the bytes of one tar with the images, for `load` or `docker load`. */
  async *save(...names: string[]): AsyncGenerator<Uint8Array> {
    yield* parts(await this.transport.open({ method: 'POST', path: '/v1/images/save', json: { names } }))
  }

  /**
   * Removes the images of this user that no sandbox, profile or pool needs: all of them with
   * `unused`, else those that were stored longer ago than `until`. With `dryRun` they stay.
   */
  async prune({ unused = false, until, dryRun = false }: PruneOptions): Promise<Pruned> {
    const json = present({ unused, until: duration(until), dry_run: dryRun })
    return decode('PruneImagesResponse', await this.transport.call({ method: 'POST', path: '/v1/images/prune', json }))
  }

  /** Returns how much of the disk images take. */
  async du(): Promise<ImageUsage> {
    return decode('ImageUsageResponse', await this.transport.call({ method: 'GET', path: '/v1/image-usage' }))
  }

  /** Returns the image of the last message, and tells of those before it. */
  private async follow(request: Request, tell: (message: Record<string, unknown>) => void): Promise<Image> {
    for await (const message of messages(await this.transport.open(request), request.signal)) {
      if (message.image) return decode('Image', message.image)
      tell(message)
    }
    throw broken('the answer ended without an image')
  }

  /** Removes an image. */
  async remove(name: string): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: imagePath(name) })
  }
}

function imagePath(name: string): string {
  if (!name) throw new TypeError('the name of the image is empty')
  return `/v1/images/${name.split('/').map(encodeURIComponent).join('/')}`
}

function ifPresent(error: unknown): void {
  if (!(error instanceof ImageNotFoundError)) throw error
}

/** Returns files as the image that a build finds its context in. */
function contextOf(files: Record<string, string | Uint8Array>): Uint8Array {
  const parts: Uint8Array[] = []
  for (const [path, content] of Object.entries(files)) {
    const data = bytesOf(content)
    const name = `context/${path.replace(/^\/+/, '')}`
    parts.push(writeHeader({ name, type: 'file', mode: 0o644, size: data.length, mtime: 0, link: '' }), data, padding(data.length))
  }
  return Buffer.concat([...parts, Buffer.alloc(1024)])
}
