import { messages, type Transport } from './http.js'
import type { Attempt, Learned, PolicyLine, Verdict } from './types.js'
import { decode, sandboxPath } from './wire.js'

/** What a sandbox may reach, and what it tried to reach. */
export class Policy {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly ref: string,
  ) {}

  /** Returns whether a URL, HOST or HOST:PORT may be reached. Nothing is tried. */
  async check(target: string): Promise<Verdict> {
    return decode('CheckPolicyResponse', await this.ask('check', { target }))
  }

  /** Returns all rules, in the order in which they count. */
  async explain(): Promise<PolicyLine[]> {
    return decode('ExplainPolicyResponse', await this.ask('explain', {})).lines
  }

  private ask(call: string, more: object): Promise<Record<string, unknown>> {
    const json = { policy: { ref: this.ref }, ...more }
    return this.transport.call({ method: 'POST', path: `/v1/policy/${call}`, json, repeatable: true })
  }

  /** Returns the rules that would have been enough for what was reached. */
  async learned(): Promise<Learned> {
    const answer = await this.transport.call({ method: 'GET', path: sandboxPath(this.ref, 'learned') })
    return decode('LearnPolicyResponse', answer)
  }

  /** Iterates over the attempts to reach something. `follow`: until the sandbox ends. */
  async *traffic(options: { follow?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<Attempt> {
    const { signal } = options
    const response = await this.transport.open({
      method: 'GET',
      path: sandboxPath(this.ref, 'traffic'),
      query: { follow: options.follow },
      signal,
    })
    for await (const message of messages(response, signal)) yield decode('TrafficResponse', message)
  }
}
