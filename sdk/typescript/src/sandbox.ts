import { randomUUID } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { Changesets } from './changesets.js'
import type { CaissonError } from './errors.js'
import { follow, Place } from './events.js'
import { Files } from './files.js'
import { foreground, within } from './foreground.js'
import { duration, known, present, request as made, workspace, type Time } from './forms.js'
import { ExecNotFoundError, NotFoundError } from './generated/codes.js'
import { updateTable, type UpdateOptions } from './generated/options.js'
import { Transport, type Request } from './http.js'
import { Policy } from './policy.js'
import { Process, processes } from './process.js'
import * as spec from './spec.js'
import { endpoint } from './endpoint.js'
import type { Applied, ApplyOptions, Cleaned, Diff, DiffOptions, Event, History, Port, ProcessInfo, Result, Rewound, SandboxDetail, SandboxInfo, SandboxStats, Snapshot } from './types.js'
import { broken, decode, errorOf, sandboxPath } from './wire.js'

/** Milliseconds for which calls and streams are continued, by default. */
export const reconnect = 10_000

/**
 * A sandbox in which commands are run. `await using` removes it at the end of the block, with
 * its processes and all that they wrote outside of the workspace.
 */
export class Sandbox {
  /** The files inside. */
  files: Files
  /** What the sandbox may reach. */
  policy: Policy

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
    const body = spec.createRequest(options)
    const transport = options.client?.transport ?? new Transport(endpoint(), reconnect)
    if (!body.ensure) body.idempotency_key = randomUUID() // so the call can be made again
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
  async run(command: spec.Command, options: spec.RunOptions = {}): Promise<Result> {
    const exec = spec.runSpec(command, options)
    const request: Request = { method: 'POST', path: sandboxPath(this.id, 'execs'), json: { exec, attach: true } }
    return foreground(this.transport, request, new Place(this.id), options, true)
  }

  /** Starts a command in the background, which runs on without this program. */
  async start(command: spec.Command, options: spec.StartOptions = {}): Promise<Process> {
    const json = { exec: spec.startSpec(command, options) }
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
    const remedy = 'list its commands: sandbox.processes()'
    throw new ExecNotFoundError({ code: 'SBX-115', class: 'invalid_input', message, remedy })
  }

  /** Returns the commands of the sandbox, the oldest first. */
  processes(): Promise<ProcessInfo[]> {
    return processes(this.transport, this.id)
  }

  /** Iterates over the kept output of a command; by default of the sandbox's own. */
  logs(processId = '', options: spec.LogsOptions = {}): AsyncGenerator<Event> {
    known(['follow', 'timestamps', 'since', 'until', 'signal'], options)
    const { follow: live, timestamps, since, until, signal } = options
    const query = { exec_id: processId || undefined, follow: live, timestamps, since: since?.toISOString(), until: until?.toISOString() }
    const request: Request = { method: 'GET', path: sandboxPath(this.id, 'logs'), query, signal }
    return follow(this.transport, request, new Place(this.id, '', 0, 0, since !== undefined), { partial: true })
  }

  /** Changes what is given. */
  async update(options: UpdateOptions): Promise<SandboxInfo> {
    const json = made(updateTable, options)
    return this.told({ method: 'PATCH', path: sandboxPath(this.id), json, repeatable: true })
  }

  /**
   * Mounts a directory of the host on /workspace, without a restart: `DIR[:ro|:cow]`. The sandbox
   * has no workspace of the host yet, and no files in /workspace.
   */
  async attachWorkspace(directory: string): Promise<SandboxInfo> {
    const json = { workspace: workspace(directory) }
    return this.told({ method: 'POST', path: sandboxPath(this.id, 'workspace'), json })
  }

  /**
   * Mounts the directory that a snapshot keeps, copy-on-write, without a restart. `path` is an
   * existing directory, by default the one that the snapshot is of.
   */
  async attachSnapshot(snapshot: string, path?: string): Promise<SandboxInfo> {
    const json = present({ snapshot, path })
    return this.told({ method: 'POST', path: sandboxPath(this.id, 'snapshots'), json })
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
  async stop(options: { grace?: Time } = {}): Promise<SandboxInfo> {
    const json = present({ grace: duration(options.grace) })
    return this.told({ method: 'POST', path: sandboxPath(this.id, 'stop'), json })
  }

  /** Ends every process, with its listeners, and empties /tmp. Other files stay. */
  async clean(): Promise<Cleaned> {
    const answer = await this.transport.call({ method: 'POST', path: sandboxPath(this.id, 'clean'), json: {} })
    return decode('CleanResponse', answer)
  }

  /**
   * Replaces the sandbox by a new one of the same settings, whose ID this object has then. Files
   * and commands of the old one go, and so do changes by `update`.
   */
  async restart(): Promise<SandboxInfo> {
    await this.told({ method: 'POST', path: sandboxPath(this.id, 'restart'), json: {} })
    this.files = new Files(this.transport, this.id)
    this.policy = new Policy(this.transport, this.id)
    return this.info
  }

  /** Returns what changed in a copy-on-write workspace, `workspace: 'DIR:cow'`. */
  async diff(options: DiffOptions = {}): Promise<Diff> {
    return new Changesets(this.transport).diff(this.id, options)
  }

  /**
   * Writes the changes of a copy-on-write workspace into the host's directory: `paths` and all
   * below them, or all. `conflicts` says whose counts where the host changed the same: 'ours' is
   * the host's, 'theirs' the sandbox's. Otherwise that is refused.
   */
  async apply(options: ApplyOptions = {}): Promise<Applied> {
    return new Changesets(this.transport).apply(this.id, options)
  }

  /**
   * Copies the disk, while the processes stand still. `Sandbox.create` begins with it: `from`.
   * The sandbox has a disk with `rootfs: 'rw'`, or with `disk`. Without a name one is made up.
   * With a path it is that directory alone, for a mount of type 'snapshot'.
   */
  async snapshot(name?: string, path?: string): Promise<Snapshot> {
    const json = present({ ref: this.id, name, path })
    return decode('Snapshot', await this.transport.call({ method: 'POST', path: '/v1/snapshots', json }))
  }

  /**
   * Gives the sandbox the files of a snapshot of its own image. Its commands end first. Its ID,
   * name, ports, network policy and mounts of the host stay.
   */
  async rewind(snapshot: string): Promise<Rewound> {
    const answer = await this.transport.call({ method: 'POST', path: sandboxPath(this.id, 'rewind'), json: { snapshot } })
    return decode('RewindResponse', answer)
  }

  /** Connects to a port on localhost inside, published or not. */
  forward(port: number): Promise<Duplex> {
    return this.transport.duplex({ method: 'POST', path: sandboxPath(this.id, 'forward', String(port)) })
  }

  /**
   * Makes sandboxes with the files and settings of this one, as create does from a snapshot.
   * Each succeeds or fails alone: in place of one that failed is its error.
   */
  async fork(count = 1): Promise<(Sandbox | CaissonError)[]> {
    const answer = await this.transport.call({ method: 'POST', path: sandboxPath(this.id, 'fork'), json: { count } })
    return decode('ForkResponse', answer).forks.map((fork) => {
      return fork.sandbox ? new Sandbox(this.transport, fork.sandbox) : errorOf({ error: fork.error })
    })
  }

  /** Waits until the sandbox has ended. After the `timeout` it throws a TimeoutError. */
  wait(options: { timeout?: Time; signal?: AbortSignal } = {}): Promise<SandboxInfo> {
    const path = sandboxPath(this.id, 'wait')
    return within(options, 'the sandbox', (signal) => this.told({ method: 'GET', path, signal }))
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
