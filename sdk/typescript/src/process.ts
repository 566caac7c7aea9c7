import { Collector } from './collect.js'
import { follow, Place } from './events.js'
import { checked, collect, sendSignal, within } from './foreground.js'
import type { Time } from './forms.js'
import { CaissonError } from './errors.js'
import type { Transport } from './http.js'
import { bytesOf, Input } from './input.js'
import type { OutputOptions } from './spec.js'
import type { Event, ProcessInfo, Result } from './types.js'
import { decode, sandboxPath } from './wire.js'

/**
 * A command that runs in a sandbox, or has run in it.
 *
 * Every reader of its output begins at the first byte. The daemon keeps `outputLimit` bytes
 * of each stream, and all that a connected reader has not read yet.
 */
export class Process {
  private readonly input: Input

  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly ref: string,
    /** The command as it was when it was started or connected to. */
    readonly info: ProcessInfo,
    own: boolean,
  ) {
    this.input = new Input(transport, ref, info.id, own ? 0 : undefined)
  }

  /** The ID, for `connect`. */
  get id(): string {
    return this.info.id
  }

  /** Iterates over the events. After a lost connection it goes on where it was. */
  events(options: { stdoutOffset?: number; stderrOffset?: number; signal?: AbortSignal } = {}): AsyncGenerator<Event> {
    const place = new Place(this.ref, this.id, options.stdoutOffset, options.stderrOffset)
    return follow(this.transport, { ...place.request(), signal: options.signal }, place, { resume: true })
  }

  /**
   * Waits for the end and returns the result with the output. An abort or the `timeout`, which
   * throws a TimeoutError, leaves the command alone.
   */
  async wait(options: OutputOptions & { timeout?: Time } = {}): Promise<Result> {
    const collector = new Collector(options)
    const last = (signal?: AbortSignal) => collect(this.events(signal ? { signal } : {}), collector)
    return checked(await within(options, 'the command', last), options.check)
  }

  /**
   * Writes to the input of a command that was started with `stdin` or `tty`. It returns when
   * the command's pipe has taken all. If the connection breaks, only the rest is sent again;
   * of a command that you connected to, nothing is, as others may send too.
   */
  async send(data: string | Uint8Array): Promise<void> {
    if (await this.input.send(bytesOf(data))) return
    throw Object.assign(new Error('the command has closed its input, or has ended'), { code: 'EPIPE' })
  }

  /** Ends the input. */
  async closeInput(): Promise<void> {
    await this.input.send(Buffer.alloc(0), true)
  }

  /** Sends a signal such as "INT", with `all` to all processes of the command. */
  signal(name: string, options: { all?: boolean } = {}): Promise<void> {
    return sendSignal(this.transport, { ref: this.ref, processId: this.id }, name, options.all ?? false)
  }

  /** Kills the command with all its processes. One that has ended is no error. */
  async kill(): Promise<void> {
    try {
      await this.signal('KILL', { all: true })
    } catch (error) {
      if (!(error instanceof CaissonError) || !(await this.hasEnded())) throw error
    }
  }

  private async hasEnded(): Promise<boolean> {
    const list = await processes(this.transport, this.ref)
    return list.every((info) => info.id !== this.id || info.state === 'exited')
  }

  /** Changes the size of the terminal. */
  async resize(rows: number, cols: number): Promise<void> {
    const path = sandboxPath(this.ref, 'execs', this.id, 'resize')
    await this.transport.call({ method: 'POST', path, json: { size: { rows, cols } }, repeatable: true })
  }
}

/** Returns the commands of a sandbox. */
export async function processes(transport: Transport, ref: string): Promise<ProcessInfo[]> {
  const answer = await transport.list(sandboxPath(ref, 'execs'), 'execs')
  return decode('ListExecsResponse', answer).execs
}
