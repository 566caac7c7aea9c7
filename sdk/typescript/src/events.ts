/**
 * The events of a command, and the place of a reader in them.
 */
import { StringDecoder } from 'node:string_decoder'
import type { CaissonError } from './errors.js'
import { lines, type Request, type Transport } from './http.js'
import type { Schemas, Event, Output } from './types.js'
import { broken, decode, errorOf, parse, sandboxPath } from './wire.js'

type Stream = Output['type']

// A part of a stream. Of text, the bytes are made when they are asked for.
class Part implements Output {
  constructor(
    readonly type: Stream,
    readonly offset: number,
    readonly skipped: number,
    readonly text: string,
    private readonly bytes: Buffer | undefined,
  ) {}

  get data(): Buffer {
    return this.bytes ?? Buffer.from(this.text)
  }
}

// Reads the messages of one stream in order.
class StreamReader {
  private decoder = new StringDecoder('utf8')
  private cut = false // the decoder may hold the beginning of a character

  constructor(
    private readonly type: Stream,
    public offset: number,
  ) {}

  read(message: Schemas['Output']): Output[] {
    const offset = Number(message.offset ?? 0)
    if (offset !== this.offset) throw broken(`${this.type} goes on at ${offset} instead of ${this.offset}`)
    const skipped = Number(message.skipped ?? 0)
    const { text } = message
    if (skipped === 0 && text !== undefined && !this.cut) {
      this.offset += Buffer.byteLength(text)
      return [new Part(this.type, offset, 0, text, undefined)]
    }
    const before = skipped === 0 ? [] : this.end()
    const data = text === undefined ? Buffer.from(message.data ?? '', 'base64') : Buffer.from(text)
    this.offset += data.length + skipped
    this.cut = text === undefined && skipped === 0
    return [...before, new Part(this.type, offset, skipped, this.decoder.write(data), data)]
  }

  /** Returns what a character became that the end of the stream cut. */
  end(): Output[] {
    const text = this.decoder.end()
    return text === '' ? [] : [new Part(this.type, this.offset, 0, text, Buffer.alloc(0))]
  }
}

/** The place of a reader in the events of one command. */
export class Place {
  private readonly streams: Record<Stream, StreamReader>
  private started = false
  ended = false

  constructor(
    public ref: string,
    public processId = '',
    stdoutOffset = 0,
    stderrOffset = 0,
  ) {
    this.streams = { stdout: new StreamReader('stdout', stdoutOffset), stderr: new StreamReader('stderr', stderrOffset) }
  }

  /** Returns the request that goes on from here. */
  request(): Request {
    const query = { stdout_offset: this.streams.stdout.offset, stderr_offset: this.streams.stderr.offset }
    return { method: 'GET', path: sandboxPath(this.ref, 'execs', this.processId, 'output'), query }
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
