import { CaissonError } from './errors.js'
import { APIBrokenError, CanceledError, DaemonOffError, EngineDownError, InitError } from './generated/codes.js'

const firstPause = 5
const lastPause = 250
const steady = 1000 // after which a connection that breaks counts as a new break

/** Says whether and when a call that broke is made again. Times are in milliseconds. */
export class Retry {
  private until = 0
  private pausing = firstPause
  private began = 0 // the last attempt; one that finds no daemon ends at once

  /** `known`: there was a daemon. If none listens now, it restarts. */
  constructor(
    private readonly window: number,
    private known: boolean,
  ) {}

  /** Notes that the daemon answers. */
  connected(): void {
    this.known = true
    this.until = 0
  }

  /**
   * Waits for the next attempt, or throws the error if it is final. A request that is not
   * repeatable is made again only if no daemon can have had it.
   */
  async pause(error: unknown, repeatable: boolean, signal?: AbortSignal): Promise<void> {
    const unsent = error instanceof DaemonOffError && error.status === 0
    if (!this.broken(error) || !(repeatable || unsent)) throw error
    const now = performance.now()
    if (this.until === 0 || (this.began !== 0 && now - this.began > steady)) {
      this.until = now + this.window
      this.pausing = firstPause
    }
    if (now >= this.until) throw error
    await sleep(this.pausing, signal)
    this.began = performance.now()
    this.pausing = Math.min(2 * this.pausing, lastPause)
  }

  // Whether an error says nothing of the call: the daemon ends, starts or is away.
  private broken(error: unknown): boolean {
    if (!(error instanceof CaissonError)) return false
    if (error instanceof APIBrokenError || error instanceof CanceledError) {
      this.known = true
      return true
    }
    return this.known && (error instanceof DaemonOffError || error instanceof EngineDownError || error instanceof InitError)
  }
}

function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, milliseconds)
    signal?.addEventListener('abort', stop, { once: true })
  })
}
