import { present } from './forms.js'
import type { Transport } from './http.js'
import type { Applied, ApplyOptions, Changeset, Diff, DiffOptions } from './types.js'
import { decode, sandboxPath, type Query } from './wire.js'

/**
 * What ended sandboxes changed in copy-on-write workspaces, by the ID or the name of the sandbox.
 * It stays until it is applied, discarded or past the daemon's retention.
 */
export class Changesets {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Returns the changesets of this user, the newest first; for root those of all users. */
  async list(): Promise<Changeset[]> {
    return decode('ListChangesetsResponse', await this.transport.list('/v1/changesets', 'changesets')).changesets
  }

  /** Returns what changed, as `sandbox.diff`. */
  async diff(ref: string, options: DiffOptions = {}): Promise<Diff> {
    const { patch, includeControl } = options
    const query = present({ patch: patch || undefined, include_control: includeControl || undefined }) as Query
    return decode('DiffResponse', await this.transport.call({ method: 'GET', path: sandboxPath(ref, 'diff'), query }))
  }

  /** Writes the changes into the host's directory, as `sandbox.apply`. */
  async apply(ref: string, options: ApplyOptions = {}): Promise<Applied> {
    const { paths, dryRun, conflicts, includeControl } = options
    const json = present({ paths, dry_run: dryRun, conflicts, include_control: includeControl })
    return decode('ApplyResponse', await this.transport.call({ method: 'POST', path: sandboxPath(ref, 'apply'), json }))
  }

  /** Removes a changeset. */
  async discard(ref: string): Promise<void> {
    if (!ref) throw new TypeError('the name of the changeset is empty')
    await this.transport.call({ method: 'DELETE', path: `/v1/changesets/${encodeURIComponent(ref)}` })
  }
}
