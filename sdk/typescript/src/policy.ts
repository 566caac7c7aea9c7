import type { Transport } from './http.js'
import { resumed } from './resume.js'
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

  /**
   * Iterates over the attempts to reach something, after the one with the cursor `since`.
   * `follow`: until the sandbox ends. If the daemon restarts, no attempt is missed or comes
   * twice; one of the kind "gap" says that those under way then may have no entry.
   */
  async *traffic(options: { follow?: boolean; since?: string; signal?: AbortSignal } = {}): AsyncGenerator<Attempt> {
    const { follow, signal } = options
    const path = sandboxPath(this.ref, 'traffic')
    let { since } = options
    for await (const message of resumed(this.transport, () => ({ method: 'GET', path, query: { follow, since }, signal }))) {
      const attempt = decode('TrafficResponse', message ?? gap())
      since = attempt.cursor || since
      yield attempt
    }
  }
}

function gap(): object {
  const reason = 'the connection to the daemon broke: attempts that were under way may have no entry'
  return { kind: 'gap', time: new Date().toISOString(), reason }
}
