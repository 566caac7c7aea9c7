/**
 * Streams of the host and of sandboxes that go on when the daemon restarts.
 */
import { EventsGoneError } from './generated/codes.js'
import { messages, type Request, type Transport } from './http.js'
import type { HostEvent } from './types.js'
import { decode } from './wire.js'

/**
 * Iterates over the messages of a stream. Where it breaks comes `undefined`, and the
 * messages of the next request follow.
 */
export async function* resumed(
  transport: Transport,
  next: () => Request,
): AsyncGenerator<Record<string, unknown> | undefined> {
  const retry = transport.retry()
  for (;;) {
    const request = next()
    let opened = false
    try {
      const response = await transport.open(request)
      opened = true
      for await (const message of messages(response, request.signal)) {
        retry.connected()
        yield message
      }
      return
    } catch (error) {
      await retry.pause(error, true, request.signal)
    }
    if (opened) yield undefined
  }
}

/** Which events of the host are wanted. */
export interface EventOptions {
  /** Begin after the event with this ID, at a time (RFC 3339), or at a duration before now (`'10m'`). */
  since?: string
  /** Terms such as `'type=exec.*'` or `'sandbox=agent-7'`. */
  filter?: readonly string[]
  /** Go on with events that are to come. */
  follow?: boolean
  signal?: AbortSignal
}

/** Iterates over events. If some may be missing, an event of the type run.caisson.events.lost says so. */
export async function* hostEvents(transport: Transport, options: EventOptions): AsyncGenerator<HostEvent> {
  const { filter, follow, signal } = options
  let since = options.since
  let broke = false
  let last = '' // the ID after which another request goes on
  for (;;) {
    try {
      const request = (): Request => ({ method: 'GET', path: '/v1/events', query: { since, filter, follow }, signal })
      for await (const message of resumed(transport, request)) {
        if (message === undefined) {
          broke = true
          if (last === '') yield lost()
          continue
        }
        const event = decode('Event', message)
        if (event.id !== '') since = last = event.id
        yield event
      }
      return
    } catch (error) {
      if (!broke || !(error instanceof EventsGoneError)) throw error
      since = '' // the new daemon's first
      last = ''
      yield lost()
    }
  }
}

function lost(): HostEvent {
  return decode('Event', {
    specversion: '1.0',
    type: 'run.caisson.events.lost',
    time: new Date().toISOString(),
    data: { message: 'the connection to the daemon broke: events may be missing' },
  })
}
