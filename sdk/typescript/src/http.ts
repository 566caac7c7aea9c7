import { type ClientRequest, type IncomingMessage } from 'node:http'
import { Duplex } from 'node:stream'
import type { Endpoint } from './endpoint.js'
import { Retry } from './retry.js'
import { broken, daemonOff, errorOf, parse, target, untrusted, type Query } from './wire.js'

/** One request of plain HTTP. */
export interface Request {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  query?: Query
  json?: object
  body?: Uint8Array | AsyncIterable<Uint8Array>
  /** It may be sent again after a connection broke. By default GET alone. */
  repeatable?: boolean
  signal?: AbortSignal | undefined
}

// A connection that was not made carried no request.
const unsent = new Set(['ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT', 'ECONNREFUSED', 'ENOENT', 'EACCES', 'EPERM', 'EAGAIN', 'ENOTSOCK', 'EMFILE', 'ENFILE'])

/**
 * Makes requests to one daemon. Over a unix socket each has a connection of its own: it connects
 * in microseconds, and a request on a kept connection may meet the end of its daemon.
 */
export class Transport {
  private known = false

  constructor(
    readonly endpoint: Endpoint,
    private readonly window: number,
  ) {}

  /** Returns the state of one call that may be made again. */
  retry(): Retry {
    return new Retry(this.window, this.known)
  }

  /** Makes a call with one answer. It is made again where that is safe. */
  call(request: Request): Promise<Record<string, unknown>> {
    return this.repeat(() => this.once(request), request.repeatable ?? request.method === 'GET', request.signal)
  }

  /** Returns an answer with the entries of a list from all its pages, in its field. */
  async list(path: string, field: string, query: Query = {}): Promise<Record<string, unknown>> {
    const entries: unknown[] = []
    for (let next: string | undefined; next !== ''; ) {
      const answer = await this.call({ method: 'GET', path, query: { ...query, next } })
      entries.push(...((answer[field] as unknown[] | undefined) ?? []))
      next = (answer.next as string | undefined) ?? ''
    }
    return { [field]: entries }
  }

  /** Makes a call with one answer. */
  async once(request: Request): Promise<Record<string, unknown>> {
    return parse(await text(await this.open(request), request.signal))
  }

  /** Does work again after a connection broke, or if not `repeatable` where no daemon had a request. */
  async repeat<T>(work: () => Promise<T>, repeatable = true, signal?: AbortSignal): Promise<T> {
    const retry = this.retry()
    for (;;) {
      try {
        return await work()
      } catch (error) {
        await retry.pause(error, repeatable, signal)
      }
    }
  }

  /** Sends a request and returns the answer, whose body is still to be read. */
  async open(request: Request, begin?: (sent: ClientRequest) => void): Promise<IncomingMessage> {
    request.signal?.throwIfAborted()
    const response = await this.send(request, begin)
    this.known = true
    const status = response.statusCode ?? 0
    if (status >= 400) throw errorOf(parse(await text(response, request.signal)), status)
    return response
  }

  /** Makes a request whose body flows while its answer does. */
  async duplex(request: Request): Promise<Duplex> {
    let sent: ClientRequest | undefined
    const response = await this.open(request, (made) => {
      sent = made
      made.flushHeaders()
    })
    const stream = Duplex.from({ writable: sent!, readable: response })
    stream.once('close', () => sent!.destroy())
    return stream
  }

  private send(request: Request, begin?: (sent: ClientRequest) => void): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const body = request.json ? Buffer.from(JSON.stringify(request.json)) : request.body
      const { options } = this.endpoint
      const sent = this.endpoint.request({
        ...options,
        method: request.method,
        path: target(request.path, request.query),
        headers: { ...headersOf(request, body), ...(options.headers as Record<string, string> | undefined) },
        ...(request.signal && { signal: request.signal }),
      })
      sent.on('error', (error) => reject(this.failure(error, request.signal)))
      sent.once('response', resolve)
      if (begin) return begin(sent)
      upload(sent, body).catch((error: unknown) => {
        reject(error)
        sent.destroy()
      })
    })
  }

  private failure(error: NodeJS.ErrnoException, signal?: AbortSignal): unknown {
    if (signal?.aborted) return signal.reason
    if (this.endpoint.secured && isTLS(error)) return untrusted(error)
    return unsent.has(error.code ?? '') ? daemonOff(this.endpoint, error) : broken('the connection to the daemon broke', error)
  }
}

// What OpenSSL and Node say of certificates, and alerts of the other side.
function isTLS(error: NodeJS.ErrnoException): boolean {
  return /^(ERR_SSL_|ERR_TLS_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_MISMATCH|EPROTO$)/.test(error.code ?? '')
}

type Body = Uint8Array | AsyncIterable<Uint8Array> | undefined

function headersOf(request: Request, body: Body): Record<string, string | number> {
  if (body === undefined) return {}
  const type = request.json ? 'application/json' : 'application/octet-stream'
  return body instanceof Uint8Array ? { 'Content-Type': type, 'Content-Length': body.length } : { 'Content-Type': type }
}

// An answer before the end of the body is a refusal: no more is sent.
async function upload(sent: ClientRequest, body: Body): Promise<void> {
  if (body === undefined || body instanceof Uint8Array) {
    sent.end(body)
    return
  }
  let open = true
  for (const end of ['response', 'close', 'error']) sent.once(end, () => (open = false))
  for await (const part of body) {
    if (open && !sent.write(part)) await drained(sent)
    if (!open) return
  }
  sent.end()
}

function drained(sent: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const ends = ['drain', 'response', 'close', 'error']
    const go = () => {
      for (const end of ends) sent.off(end, go)
      resolve()
    }
    for (const end of ends) sent.on(end, go)
  })
}

/** Iterates over the parts of a body. A body that is cut is an error. */
export async function* parts(response: IncomingMessage, signal?: AbortSignal): AsyncGenerator<Buffer> {
  try {
    for await (const part of response) yield part as Buffer
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    throw broken('the connection to the daemon broke', error)
  } finally {
    response.destroy()
  }
}

async function text(response: IncomingMessage, signal?: AbortSignal): Promise<string> {
  return (await bytes(response, signal)).toString()
}

/** Reads the whole body. */
export async function bytes(response: IncomingMessage, signal?: AbortSignal): Promise<Buffer> {
  const list: Buffer[] = []
  for await (const part of parts(response, signal)) list.push(part)
  return Buffer.concat(list)
}

/** Iterates over the lines of a body. */
export async function* lines(response: IncomingMessage, signal?: AbortSignal): AsyncGenerator<string> {
  let begun: Buffer[] = []
  for await (const part of parts(response, signal)) {
    let at = 0
    for (let end = part.indexOf(10); end >= 0; end = part.indexOf(10, at)) {
      const rest = part.subarray(at, end)
      yield begun.length === 0 ? rest.toString() : Buffer.concat([...begun, rest]).toString()
      begun = []
      at = end + 1
    }
    if (at < part.length) begun.push(part.subarray(at))
  }
}

/** Iterates over the messages of a stream. An error is its last line. */
export async function* messages(response: IncomingMessage, signal?: AbortSignal): AsyncGenerator<Record<string, unknown>> {
  for await (const line of lines(response, signal)) {
    const message = parse(line)
    if (message.error) throw errorOf(message)
    yield message
  }
}
