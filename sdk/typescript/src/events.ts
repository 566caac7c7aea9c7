/**
 * The events of a command, and the place of a reader in them.
 */
import type { CaissonError } from './errors.js'
import { lines, type Request, type Transport } from './http.js'
import type { Schemas, Event, Output } from './types.js'
import { broken, decode, errorOf, parse, sandboxPath } from './wire.js'

type Stream = Output['type']

// A part of a stream. Text and bytes are made when they are asked for: to read bytes as
// text that are none takes ten times as long as all else.
class Part implements Output {
  private made: string | undefined

  constructor(
    readonly type: Stream,
    readonly offset: number,
    readonly skipped: number,
    private readonly source: string | Buffer,
    private readonly characters: () => string,
    readonly time?: Date,
  ) {}

  get text(): string {
    return (this.made ??= this.characters())
  }

  get data(): Buffer {
    return typeof this.source === 'string' ? Buffer.from(this.source) : this.source
  }
}

const empty = Buffer.alloc(0)

// Reads the messages of one stream in order.
class StreamReader {
  private begun: Buffer = empty // a character that the last part cut

  constructor(
    private readonly type: Stream,
    public offset: number,
    private later: boolean, // it may begin behind the offset
  ) {}

  read(message: Schemas['Output']): Output[] {
    const offset = Number(message.offset ?? 0)
    if (this.later) this.offset = Math.max(offset, this.offset)
    this.later = false
    if (offset !== this.offset) throw broken(`${this.type} goes on at ${offset} instead of ${this.offset}`)
    const skipped = Number(message.skipped ?? 0)
    if (skipped > 0) {
      const before = this.end()
      this.offset += skipped
      return [...before, new Part(this.type, offset, skipped, empty, () => '')]
    }
    const { text } = message
    const time = message.time === undefined ? undefined : new Date(message.time)
    if (text !== undefined && this.begun.length === 0) {
      this.offset += Buffer.byteLength(text)
      return [new Part(this.type, offset, 0, text, () => text, time)]
    }
    const data = Buffer.from(text ?? message.data ?? '', text === undefined ? 'base64' : 'utf8')
    this.offset += data.length
    return [new Part(this.type, offset, 0, data, this.join(data), time)]
  }

  // Returns the text of the characters that end in data, after the part of one before.
  private join(data: Buffer): () => string {
    const whole = this.begun.length === 0 ? data : Buffer.concat([this.begun, data])
    const end = whole.length - cutAtEnd(whole)
    this.begun = whole.subarray(end)
    return () => whole.toString('utf8', 0, end)
  }

  /** Returns what a character became that the end of the stream cut. */
  end(): Output[] {
    const { begun } = this
    this.begun = empty
    return begun.length === 0 ? [] : [new Part(this.type, this.offset, 0, empty, () => begun.toString())]
  }
}

// Returns how many bytes at the end begin a character that is not whole, as far as they
// can become one (RFC 3629).
function cutAtEnd(data: Buffer): number {
  for (let n = 1; n <= Math.min(3, data.length); n++) {
    const byte = data[data.length - n] as number
    if (byte < 0x80) return 0
    if (byte < 0xc0) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2
    return byte >= 0xc2 && byte <= 0xf4 && n < length ? n : 0
  }
  return 0
}

/** The place of a reader in the events of one command. `later`: its streams may begin later. */
export class Place {
  private readonly streams: Record<Stream, StreamReader>
  private started = false
  ended = false

  constructor(
    public ref: string,
    public processId = '',
    stdoutOffset = 0,
    stderrOffset = 0,
    later = false,
  ) {
    this.streams = { stdout: new StreamReader('stdout', stdoutOffset, later), stderr: new StreamReader('stderr', stderrOffset, later) }
  }

  /** Returns the request that goes on from here. */
  request(): Request {
    const query = { stdout_offset: this.streams.stdout.offset, stderr_offset: this.streams.stderr.offset }
    return { method: 'POST', path: sandboxPath(this.ref, 'execs', this.processId, 'attach'), query }
  }

  /** Reads one line. It may tell nothing new. */
  read(line: string): Event[] {
    const message = parse(line) as Schemas['ExecEvent'] & { error?: unknown }
    if (message.stdout) return this.streams.stdout.read(message.stdout)
    if (message.stderr) return this.streams.stderr.read(message.stderr)
    if (message.started) return this.start(message.started)
    if (message.exit) {
      this.ended = true
      const last = [...this.streams.stdout.end(), ...this.streams.stderr.end()]
      return [...last, { type: 'exit', result: decode('Result', message.exit) }]
    }
    if (message.error) throw errorOf(message)
    return []
  }

  private start(message: Schemas['Started']): Event[] {
    if (this.started) return [] // told again after a reconnect
    this.started = true
    const started = decode('Started', message)
    this.ref = started.sandboxId || this.ref
    this.processId = started.exec?.id || this.processId
    return [{ type: 'started', ...started }]
  }
}

/** How a stream of events may end. */
export interface FollowOptions {
  /** A stream that breaks is continued where it was: no byte is lost, and none comes twice. */
  resume?: boolean
  /** The stream may end before the command. */
  partial?: boolean
}

/** Iterates over the events of a command to its end. */
export async function* follow(
  transport: Transport,
  request: Request,
  place: Place,
  { resume = false, partial = false }: FollowOptions = {},
): AsyncGenerator<Event> {
  const retry = transport.retry()
  const { signal } = request
  for (;;) {
    let error: CaissonError
    try {
      for await (const line of lines(await transport.open(request), signal)) {
        retry.connected()
        yield* place.read(line)
      }
      if (place.ended || partial) return
      error = broken('the stream ended before the command did')
    } catch (caught) {
      if (place.ended) return
      error = caught as CaissonError
    }
    await retry.pause(error, resume && place.processId !== '', signal)
    if (place.processId !== '') request = { ...place.request(), signal }
  }
}
