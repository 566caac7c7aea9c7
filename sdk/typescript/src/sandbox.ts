import { randomUUID } from 'node:crypto'
import { follow, Place } from './events.js'
import { Files } from './files.js'
import { foreground } from './foreground.js'
import { ExecNotFoundError, NotFoundError } from './generated/codes.js'
import { Transport, type Request } from './http.js'
import { check } from './options.js'
import { Policy } from './policy.js'
import { Process, processes } from './process.js'
import * as spec from './spec.js'
import type { Event, History, Port, ProcessInfo, Result, SandboxDetail, SandboxInfo, SandboxStats } from './types.js'
import { broken, decode, errorOf, sandboxPath } from './wire.js'

/** Milliseconds for which calls and streams are continued, by default. */
export const reconnect = 10_000

/**
 * A sandbox in which commands are run. `await using` removes it at the end of the block, with
 * its processes and all that they wrote outside of the workspace.
 */
export class Sandbox {
  /** The files inside. */
  readonly files: Files
  /** What the sandbox may reach. */
  readonly policy: Policy

  /** @internal */
  constructor(
    private readonly transport: Transport,
    /** The sandbox as it was when a call of this object last returned it. */
    public info: SandboxInfo,
  ) {
    this.files = new Files(transport, info.id)
    this.policy = new Policy(transport, info.id)
  }

  /** Makes a sandbox. What is not given is the profile's. */
  static async create(options: spec.CreateOptions = {}): Promise<Sandbox> {
    check('create', options)
    const transport = options.client?.transport ?? new Transport(spec.socketPath(), reconnect)
    const ensure = options.ensure ?? false
    // With a key the call can be made again.
    const replace = options.replace ?? false
    const body = { spec: spec.sandboxSpec(options), ensure, replace, idempotency_key: ensure ? '' : randomUUID() }
    const answer = await transport.call({
      method: 'POST',
      path: '/v1/sandboxes',
      json: body,
      repeatable: true,
      signal: options.signal,
    })
    return new Sandbox(transport, decode('Sandbox', answer))
  }

  /** The ID, which is never used again. */
  get id(): string {
    return this.info.id
  }

  /** The name, which is the ID if none was given. */
  get name(): string {
    return this.info.name
  }

  /** The ports of the host that lead inside. */
  get ports(): Port[] {
    return this.info.ports
  }

  /** Runs a command and returns its result. */
  run(command: spec.Command, options: spec.RunOptions = {}): Promise<Result> {
    check('run', options)
    const exec = spec.execSpec(command, { ...options, stdin: options.input !== undefined })
    const request: Request = { method: 'POST', path: sandboxPath(this.id, 'execs'), json: { exec } }
    return foreground(this.transport, request, new Place(this.id), options, true)
  }

  /** Starts a command in the background, which runs on without this program. */
  async start(command: spec.Command, options: spec.StartOptions = {}): Promise<Process> {
    check('start', options)
    const json = { exec: spec.execSpec(command, options), detach: true }
    const place = new Place(this.id)
    const request: Request = { method: 'POST', path: sandboxPath(this.id, 'execs'), json, signal: options.signal }
    for await (const event of follow(this.transport, request, place)) {
      if (event.type === 'started' && event.exec) return new Process(this.transport, this.id, event.exec, true)
    }
    throw broken('the daemon did not say whether the command started')
  }

  /** Returns a command that was started before, perhaps by another program. */
  async connect(processId: string): Promise<Process> {
    const info = (await this.processes()).find((info) => info.id === processId)
    if (info) return new Process(this.transport, this.id, info, false)
    const message = `the sandbox ${this.name} has no command ${JSON.stringify(processId)}`
    throw new ExecNotFoundError({ code: 'SBX-115', class: 'invalid_input', message })
  }

  /** Returns the commands of the sandbox, the oldest first. */
  processes(): Promise<ProcessInfo[]> {
    return processes(this.transport, this.id)
  }

  /** Iterates over the kept output of a command; by default of the sandbox's own. */
  logs(processId = '', options: spec.LogsOptions = {}): AsyncGenerator<Event> {
    check('logs', options)
    const { follow: live, timestamps, since, until, signal } = options
    const query = { exec_id: processId || undefined, follow: live, timestamps, since: since?.toISOString(), until: until?.toISOString() }
    const request: Request = { method: 'GET', path: sandboxPath(this.id, 'logs'), query, signal }
    return follow(this.transport, request, new Place(this.id, '', 0, 0, since !== undefined), { partial: true })
  }

  /** Changes what is given. */
  update(options: spec.UpdateOptions): Promise<SandboxInfo> {
    check('update', options)
    const json = spec.updateRequest(options)
    return this.told({ method: 'PATCH', path: sandboxPath(this.id), json, repeatable: true })
  }

  /** Freezes all processes. */
  pause(): Promise<SandboxInfo> {
    return this.told({ method: 'POST', path: sandboxPath(this.id, 'pause') })
  }

  /** Lets the processes of a paused sandbox go on. */
  resume(): Promise<SandboxInfo> {
    return this.told({ method: 'POST', path: sandboxPath(this.id, 'resume') })
  }

  /** Ends all processes: TERM, and KILL after a grace. Their output stays. */
  stop(options: { grace?: spec.Time } = {}): Promise<SandboxInfo> {
    const json = spec.present({ grace: spec.duration(options.grace) })
    return this.told({ method: 'POST', path: sandboxPath(this.id, 'stop'), json })
  }

  /** Waits until the sandbox has ended. */
  wait(options: { signal?: AbortSignal } = {}): Promise<SandboxInfo> {
    return this.told({ method: 'GET', path: sandboxPath(this.id, 'wait'), signal: options.signal })
  }

  /** Returns the limits, the traffic and the image, and updates `info`. */
  async inspect(): Promise<SandboxDetail> {
    const detail = decode('InspectResponse', await this.transport.call({ method: 'GET', path: sandboxPath(this.id) }))
    if (detail.sandbox) this.info = detail.sandbox
    return detail
  }

  /** Returns what the sandbox uses. */
  async stats(): Promise<SandboxStats> {
    const query = { refs: [this.id], no_stream: true } // a stream of one message
    const answer = await this.transport.call({ method: 'GET', path: '/v1/stats', query })
    if (answer.error) throw errorOf(answer)
    return decode('StatsResponse', answer).sandboxes[0] as SandboxStats
  }

  /** Returns what the sandbox used over time. */
  async history(): Promise<History> {
    const path = sandboxPath(this.id, 'history')
    return decode('HistoryResponse', await this.transport.call({ method: 'GET', path }))
  }

  /** Removes the sandbox. With `force: false`, one that runs is refused. */
  async remove(options: { force?: boolean } = {}): Promise<void> {
    const query = { force: options.force ?? true }
    await this.transport.call({ method: 'DELETE', path: sandboxPath(this.id), query })
  }

  /** Removes the sandbox, if it is still there. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.remove()
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
    }
  }

  private async told(request: Request): Promise<SandboxInfo> {
    this.info = decode('Sandbox', await this.transport.call(request))
    return this.info
  }
}
