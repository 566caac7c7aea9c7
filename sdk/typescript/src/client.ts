import { Place } from './events.js'
import { foreground } from './foreground.js'
import { Transport } from './http.js'
import { Images } from './images.js'
import { check } from './options.js'
import { hostEvents, resumed, type EventOptions } from './resume.js'
import { reconnect, Sandbox } from './sandbox.js'
import * as spec from './spec.js'
import type { Doctor, HostEvent, HostInfo, Result, Stats, Version } from './types.js'
import { Volumes } from './volumes.js'
import { decode, sandboxPath } from './wire.js'

/** Which daemon a client talks to. */
export interface ClientOptions {
  /** By default `$CAISSON_SOCKET`, else /run/caisson/caisson.sock. */
  socket?: string
  /** Seconds for which calls and streams are continued if the daemon goes away. By default 10. */
  reconnect?: spec.Time
}

/** A client of one daemon. It holds no connection, so it needs no end. */
export class Client {
  /** @internal */
  readonly transport: Transport
  readonly images: Images
  readonly volumes: Volumes

  constructor(options: ClientOptions = {}) {
    const window = options.reconnect === undefined ? reconnect : 1000 * Number(spec.duration(options.reconnect)?.slice(0, -1))
    this.transport = new Transport(spec.socketPath(options.socket), window)
    this.images = new Images(this.transport)
    this.volumes = new Volumes(this.transport)
  }

  /**
   * Runs one command in a sandbox of its own, which is removed when the command ends.
   * If the connection breaks, the command is ended.
   */
  run(command: spec.Command, options: spec.RunOptions & spec.SandboxOptions = {}): Promise<Result> {
    check('runAlone', options)
    const { env, workdir, timeout, input, outputLimit, ...sandbox } = options
    const exec = spec.execSpec(
      command,
      spec.present({ env, workdir, timeout, outputLimit, stdin: input !== undefined }) as spec.StartOptions,
    )
    const json = { spec: { sandbox: spec.sandboxSpec(sandbox), exec } }
    return foreground(this.transport, { method: 'POST', path: '/v1/run', json }, new Place(''), options, false)
  }

  /** Returns the sandboxes that have all that is given, the oldest first. */
  async list(options: spec.ListOptions = {}): Promise<Sandbox[]> {
    const answer = await this.transport.call({ method: 'GET', path: '/v1/sandboxes', query: spec.listQuery(options) })
    return decode('ListResponse', answer).sandboxes.map((info) => new Sandbox(this.transport, info))
  }

  /** Returns the sandbox of a name, an ID or its unique beginning. */
  async get(ref: string): Promise<Sandbox> {
    const answer = await this.transport.call({ method: 'GET', path: sandboxPath(ref) })
    return new Sandbox(this.transport, decode('Sandbox', answer.sandbox))
  }

  /** Iterates each second over what the live sandboxes that have all that is given use. */
  async *stats(options: spec.ListOptions & { signal?: AbortSignal } = {}): AsyncGenerator<Stats> {
    const { signal } = options
    const query = spec.listQuery(options)
    for await (const message of resumed(this.transport, () => ({ method: 'GET', path: '/v1/stats', query, signal }))) {
      if (message) yield decode('StatsResponse', message)
    }
  }

  /**
   * Iterates over the events of the host that this user may see, the oldest first. `follow`:
   * it goes on with those to come. If the daemon restarts, an event of the type
   * "run.caisson.events.lost" says that events may be missing.
   */
  events(options: EventOptions = {}): AsyncGenerator<HostEvent> {
    return hostEvents(this.transport, options)
  }

  /** Returns the versions of the daemon and of its engine. */
  async version(): Promise<Version> {
    return decode('VersionResponse', await this.transport.call({ method: 'GET', path: '/v1/version' }))
  }

  /** Returns what works on this host. */
  async doctor(): Promise<Doctor> {
    return decode('DoctorResponse', await this.transport.call({ method: 'GET', path: '/v1/doctor' }))
  }

  /** Returns what the daemon counts. */
  async info(): Promise<HostInfo> {
    return decode('InfoResponse', await this.transport.call({ method: 'GET', path: '/v1/info' }))
  }
}
