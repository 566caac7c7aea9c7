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
}
