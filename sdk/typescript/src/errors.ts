import type { Result } from './types.js'

/** What the daemon says of an error. */
export interface ErrorFields {
  code: string
  class: string
  message: string
  cause?: string
  remedy?: string
  retryable?: boolean
  requestId?: string
  status?: number
}

/**
 * A call that was refused or failed. There is a subclass for each code.
 * A command that fails is no error, unless you ask for it with `check`.
 */
export class CaissonError extends Error {
  /** Stable, such as "SBX-107". */
  readonly code: string
  /** Who can act: "invalid_input", "policy_refusal", "host", "sandbox_down" and others. */
  readonly class: string
  /** What was refused or failed. `message` also has cause, code and remedy. */
  readonly summary: string
  /** Why, if something below said so. */
  override readonly cause: string
  /** What to do about it. */
  readonly remedy: string
  /** Whether the same call may succeed later. */
  readonly retryable: boolean
  /** The ID of the call, which is in the daemon's log too. */
  readonly requestId: string
  /** The status of HTTP. 0 if the daemon did not answer, or after a stream had begun. */
  readonly status: number

  constructor(fields: ErrorFields) {
    const what = fields.cause ? `${fields.message}: ${fields.cause}` : fields.message
    super(`${what} [${fields.code}]${fields.remedy ? ` (${fields.remedy})` : ''}`)
    this.name = new.target.name
    this.code = fields.code
    this.class = fields.class
    this.summary = fields.message
    this.cause = fields.cause ?? ''
    this.remedy = fields.remedy ?? ''
    this.retryable = fields.retryable ?? false
    this.requestId = fields.requestId ?? ''
    this.status = fields.status ?? 0
  }
}

/** A command that was run with `check` did not exit with 0. */
export class CommandFailed extends Error {
  constructor(
    /** How it ended, with its output. */
    readonly result: Result,
  ) {
    const last = result.stderr.trim().split('\n').at(-1)
    super(`the command ended with exit code ${result.exitCode} (${result.reason})${last ? `: ${last}` : ''}`)
    this.name = 'CommandFailed'
  }
}
