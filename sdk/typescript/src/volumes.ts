import { present, size, type Size } from './forms.js'
import type { Transport } from './http.js'
import type { Volume } from './types.js'
import { decode } from './wire.js'

/** Named directories that outlive sandboxes. A mount of the type "volume" uses one. */
export class Volumes {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Makes a volume. One that is there stays as it is. With `size` it holds no more than that, and `inodes` files. */
  async create(name: string, options: { size?: Size; inodes?: number } = {}): Promise<Volume> {
    const json = present({ name, size_bytes: size(options.size), inodes: options.inodes })
    return decode('Volume', await this.transport.call({ method: 'POST', path: '/v1/volumes', json, repeatable: true }))
  }

  /** Returns the volumes of this user by name; for root those of all users. */
  async list(): Promise<Volume[]> {
    return decode('ListVolumesResponse', await this.transport.list('/v1/volumes', 'volumes')).volumes
  }

  /** Returns one volume. */
  async get(name: string): Promise<Volume> {
    return decode('Volume', await this.transport.call({ method: 'GET', path: volumePath(name) }))
  }

  /** Removes a volume that no sandbox uses, with all files in it. */
  async remove(name: string): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: volumePath(name) })
  }

  /** Removes the volumes of this user that no sandbox uses, and returns them. With `dryRun` they stay. */
  async prune({ dryRun = false }: { dryRun?: boolean } = {}): Promise<Volume[]> {
    const answer = await this.transport.call({ method: 'POST', path: '/v1/volumes/prune', json: { dry_run: dryRun } })
    return decode('PruneVolumesResponse', answer).volumes
  }
}

function volumePath(name: string): string {
  if (!name) throw new TypeError('the name of the volume is empty')
  return `/v1/volumes/${encodeURIComponent(name)}`
}
