/**
 * The output of a command, within limits.
 */
import type { OutputOptions } from './spec.js'
import { outputLimit } from './generated/options.js'
import { size } from './forms.js'
import type { Exit, Output, Result } from './types.js'

/** The last bytes of a stream, at least `keep` of them. */
class Tail {
  private buffer = Buffer.alloc(0)
  private length = 0

  constructor(private readonly keep: number) {}

  add(data: Uint8Array): void {
    if (data.length > this.keep) data = data.subarray(data.length - this.keep)
    if (this.length + data.length > this.buffer.length) this.makeRoom(data.length)
    this.buffer.set(data, this.length)
    this.length += data.length
  }

  // Every byte is moved once for each byte that is kept, at most.
  private makeRoom(more: number): void {
    const kept = Math.min(this.length, this.keep)
    const old = this.buffer.subarray(this.length - kept, this.length)
    const need = Math.max(kept + more, Math.min(2 * (kept + more), 2 * this.keep))
    if (need > this.buffer.length) {
      this.buffer = Buffer.alloc(need)
      this.buffer.set(old)
    } else {
      this.buffer.copyWithin(0, this.length - kept, this.length)
    }
    this.length = kept
  }

  clear(): void {
    this.length = 0
  }

  bytes(most: number): Buffer {
    return this.buffer.subarray(this.length - Math.min(this.length, most), this.length)
  }
}

/** Keeps a stream within a limit: its first half and its last half. */
export class Keep {
  private readonly head: Tail
  private readonly tail: Tail
  private room: number
  private passed = 0
  private gap = false

  constructor(private readonly limit: number) {
    if (!(limit >= 2)) throw new RangeError(`outputLimit is ${limit}: give 2 or more`)
    this.room = limit - Math.floor(limit / 2)
    this.head = new Tail(this.room)
    this.tail = new Tail(Math.floor(limit / 2))
  }

  /** Adds the next part of the stream. */
  add(data: Uint8Array, skipped: number): void {
    this.passed += data.length + skipped
    if (skipped > 0) {
      // There is one gap, in front of the last bytes.
      this.gap = true
      this.tail.clear()
    }
    const first = this.gap ? 0 : Math.min(this.room, data.length)
    if (first > 0) this.head.add(data.subarray(0, first))
    this.room -= first
    if (first < data.length) this.tail.add(data.subarray(first))
  }

  /** Returns the kept bytes, and how many are left out. */
  kept(): { data: Buffer; skipped: number } {
    const data = Buffer.concat([this.head.bytes(this.limit), this.tail.bytes(Math.floor(this.limit / 2))])
    return { data, skipped: this.passed - data.length }
  }
}

/** Keeps the output of a command, and passes it on. */
export class Collector {
  private readonly keeps: Record<Output['type'], Keep>

  constructor(private readonly options: OutputOptions) {
    const limit = Number(size(options.outputLimit ?? outputLimit))
    this.keeps = { stdout: new Keep(limit), stderr: new Keep(limit) }
  }

  /** Takes a part of the output in. */
  async add(output: Output): Promise<void> {
    this.keeps[output.type].add(output.data, output.skipped)
    const { onStdout, onStderr, onStdoutData, onStderrData } = this.options
    const [onText, onData] = output.type === 'stdout' ? [onStdout, onStdoutData] : [onStderr, onStderrData]
    if (onText && output.text !== '') await onText(output.text)
    if (onData && output.data.length > 0) await onData(output.data)
  }

  /** Returns the result with the kept output. */
  result(exit: Exit): Result {
    const { stdout, stderr } = this.keeps
    return withOutput(exit, stdout.kept(), stderr.kept())
  }
}

type Kept = ReturnType<Keep['kept']>

function withOutput(exit: Exit, stdout: Kept, stderr: Kept): Result {
  return {
    ...exit,
    ok: exit.exitCode === 0,
    stdout: stdout.data.toString(),
    stderr: stderr.data.toString(),
    stdoutData: stdout.data,
    stderrData: stderr.data,
    stdoutSkipped: stdout.skipped,
    stderrSkipped: stderr.skipped,
  }
}
