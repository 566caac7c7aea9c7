import { ExecForgottenError, ExecNotFoundError, NotFoundError } from './generated/codes.js'
import type { Transport } from './http.js'
import { int64, present } from './forms.js'
import type { Data } from './spec.js'
import { sandboxPath } from './wire.js'

const piece = 256 << 10

/** The input of one command. */
export class Input {
  private last: Promise<unknown> = Promise.resolve()

  /** `offset` undefined: others send input too, so nothing can be sent again. */
  constructor(
    private readonly transport: Transport,
    private readonly ref: string,
    private readonly processId: string,
    private offset: number | undefined,
    private readonly signal?: AbortSignal,
  ) {}

  /** Sends bytes after those of earlier calls. False: the command has closed its input, or has ended. */
  send(data: Uint8Array, close = false): Promise<boolean> {
    const sent = this.last.then(() => this.sendNow(data, close))
    this.last = sent.catch(() => undefined)
    return sent
  }

  private async sendNow(data: Uint8Array, close: boolean): Promise<boolean> {
    for (let at = 0; ; at += piece) {
      const end = at + piece >= data.length
      if (!(await this.post(data.subarray(at, at + piece), close && end))) return false
      if (end) return true
    }
  }

  private async post(data: Uint8Array, close: boolean): Promise<boolean> {
    const base64 = Buffer.from(data.buffer, data.byteOffset, data.length).toString('base64')
    const answer = await this.transport.call({
      method: 'POST',
      path: sandboxPath(this.ref, 'execs', this.processId, 'input'),
      json: present({ offset: int64(this.offset), data: base64, close }),
      repeatable: this.offset !== undefined,
      signal: this.signal,
    })
    if (this.offset === undefined) return close || answer.closed !== true
    this.offset += data.length
    return answer.closed !== true || Number(answer.offset ?? 0) >= this.offset
  }

  /** Sends all of data and closes the input, unless the command does so before. */
  async sendAll(data: Data): Promise<void> {
    try {
      if (typeof data === 'string' || data instanceof Uint8Array) {
        await this.send(bytesOf(data), true)
        return
      }
      for await (const part of data) {
        if (!(await this.send(bytesOf(part)))) return
      }
      await this.send(Buffer.alloc(0), true)
    } catch (error) {
      const ended = error instanceof ExecNotFoundError || error instanceof ExecForgottenError || error instanceof NotFoundError
      if (!ended) throw error
    }
  }
}

/** Returns text as UTF-8. */
export function bytesOf(data: string | Uint8Array): Uint8Array {
  return typeof data === 'string' ? Buffer.from(data) : data
}

/** Returns the body of an upload. */
export function bodyOf(data: Data): Uint8Array | AsyncIterable<Uint8Array> {
  return typeof data === 'string' || data instanceof Uint8Array ? bytesOf(data) : partsOf(data)
}

async function* partsOf(data: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const part of data) yield bytesOf(part)
}
