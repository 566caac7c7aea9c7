import { duration, present, type Time } from './forms.js'
import type { Transport } from './http.js'
import type { Secret } from './types.js'
import { decode } from './wire.js'

/** The secrets that routes put into requests, without their values. For root alone. */
export class Secrets {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Returns all secrets by name. */
  async list(): Promise<Secret[]> {
    return decode('ListSecretsResponse', await this.transport.call({ method: 'GET', path: '/v1/secrets' })).secrets
  }

  /** Sets where the value of a secret comes from, such as `file:/etc/caisson/models.key`. With `refresh` it is read again after each such time. */
  async set(name: string, source: string, options: { refresh?: Time } = {}): Promise<Secret> {
    const json = present({ source, refresh: duration(options.refresh) })
    return decode('Secret', await this.transport.call({ method: 'PUT', path: secretPath(name), json, repeatable: true }))
  }

  /** Removes a secret that a call set and that no route uses. */
  async remove(name: string): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: secretPath(name) })
  }
}

function secretPath(name: string): string {
  if (!name) throw new TypeError('the name of the secret is empty')
  return `/v1/secrets/${encodeURIComponent(name)}`
}
