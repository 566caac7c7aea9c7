import { parts, type Transport } from './http.js'
import { bodyOf } from './input.js'
import type { Data } from './spec.js'
import type { Diff, Snapshot } from './types.js'
import { decode } from './wire.js'

/** Disks of sandboxes as they were once. `sandbox.snapshot` makes one, the option `from` begins with one. */
export class Snapshots {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Returns the snapshots of this user, the newest first; for root those of all users. */
  async list(): Promise<Snapshot[]> {
    return decode('ListSnapshotsResponse', await this.transport.list('/v1/snapshots', 'snapshots')).snapshots
  }

  /** Returns one snapshot. */
  async get(name: string): Promise<Snapshot> {
    return decode('Snapshot', await this.transport.call({ method: 'GET', path: snapshotPath(name) }))
  }

  /** Returns what the snapshot `to` has other than the snapshot `name`, at or below `paths` or everywhere. */
  async diff(name: string, to: string, paths: string[] = []): Promise<Diff> {
    return decode('DiffResponse', await this.transport.call({ method: 'GET', path: `${snapshotPath(name)}/diff`, query: { to, paths } }))
  }

  /** Removes a snapshot. Sandboxes that began with it keep what they have. */
  async remove(name: string): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: snapshotPath(name) })
  }

  /** Gives the bytes of a tar with the changes to the image of a snapshot, for `load`. */
  async *save(name: string): AsyncGenerator<Uint8Array> {
    yield* parts(await this.transport.open({ method: 'GET', path: `${snapshotPath(name)}/export` }))
  }

  /**
   * Makes a snapshot of an archive that `save` gave. The daemon has the image of the same digest.
   * Without a name it has the one that the snapshot had.
   */
  async load(archive: Data, name?: string): Promise<Snapshot> {
    const body = bodyOf(archive)
    const answer = await this.transport.call(
      name ? { method: 'PUT', path: snapshotPath(name), body } : { method: 'POST', path: '/v1/snapshots/import', body },
    )
    return decode('Snapshot', answer)
  }
}

function snapshotPath(name: string): string {
  if (!name) throw new TypeError('the name of the snapshot is empty')
  return `/v1/snapshots/${encodeURIComponent(name)}`
}
