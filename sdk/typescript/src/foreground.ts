import { Collector } from './collect.js'
import { CaissonError, CommandFailed } from './errors.js'
import { follow, type Place } from './events.js'
import type { Request, Transport } from './http.js'
import { Input } from './input.js'
import { seconds, type Time } from './forms.js'
import type { ForegroundOptions, OutputOptions } from './spec.js'
import type { Event, Result } from './types.js'
import { sandboxPath } from './wire.js'

const killTime = 2000
const longestTimer = 2 ** 31 // milliseconds

/** Follows a command to its end. If that fails, the command is killed. */
export async function foreground(
  transport: Transport,
  request: Request,
  place: Place,
  options: ForegroundOptions & OutputOptions,
  resume: boolean,
): Promise<Result> {
  const collector = new Collector(options)
  const call = new AbortController()
  const abort = () => call.abort(options.signal?.reason)
  if (options.signal?.aborted) abort()
  options.signal?.addEventListener('abort', abort, { once: true })
  const onEvent = (event: Event) => {
    if (event.type === 'started' && options.input !== undefined) {
      const input = new Input(transport, place.ref, place.processId, 0, call.signal)
      // The command must not take a part for the whole.
      input.sendAll(options.input).catch((error: unknown) => call.abort(error))
    }
  }
  try {
    const events = follow(transport, { ...request, signal: call.signal }, place, { resume })
    return checked(await collect(events, collector, onEvent), options.check)
  } catch (error) {
    if (!place.ended) await kill(transport, place)
    throw error
  } finally {
    options.signal?.removeEventListener('abort', abort)
    call.abort()
  }
}

/** Reads the events to the last one. */
export async function collect(
  events: AsyncIterable<Event>,
  collector: Collector,
  onEvent: (event: Event) => void = () => {},
): Promise<Result> {
  let result: Result | undefined
  for await (const event of events) {
    onEvent(event)
    if (event.type === 'exit') result = collector.result(event.result)
    else if (event.type !== 'started') await collector.add(event)
  }
  return result as Result // follow throws if there is none
}

/** Throws for a command that failed, if that is wanted. */
export function checked(result: Result, check = false): Result {
  if (check && !result.ok) throw new CommandFailed(result)
  return result
}

/**
 * Waits by `work` for the end of something. After the timeout it throws a TimeoutError, as
 * AbortSignal.timeout makes it.
 */
export async function within<T>(
  { timeout, signal }: { timeout?: Time | undefined; signal?: AbortSignal | undefined },
  what: string,
  work: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  if (timeout === undefined) return work(signal)
  const limit = seconds(timeout)
  const over = new AbortController()
  const expire = () => over.abort(new DOMException(`${what} has not ended after ${limit} s`, 'TimeoutError'))
  const timer = 1000 * limit < longestTimer ? setTimeout(expire, 1000 * limit) : undefined
  try {
    return await work(signal ? AbortSignal.any([signal, over.signal]) : over.signal)
  } finally {
    clearTimeout(timer)
  }
}

/** Sends a signal. */
export async function sendSignal(
  transport: Transport,
  place: { ref: string; processId: string },
  name: string,
  all: boolean,
  signal?: AbortSignal,
): Promise<void> {
  const path = sandboxPath(place.ref, 'execs', place.processId, 'signal')
  await transport.call({ method: 'POST', path, json: { signal: name, all }, signal })
}

async function kill(transport: Transport, place: Place): Promise<void> {
  if (place.processId === '') return
  const time = AbortSignal.timeout(killTime)
  try {
    await sendSignal(transport, place, 'KILL', true, time)
  } catch (error) {
    // It has ended; or the daemon ends it, as nobody is connected.
    if (!(error instanceof CaissonError) && !time.aborted) throw error
  }
}
