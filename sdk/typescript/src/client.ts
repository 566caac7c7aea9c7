import { Place } from './events.js'
import { endpoint, type EndpointOptions } from './endpoint.js'
import { foreground } from './foreground.js'
import { request as made, seconds, type Time } from './forms.js'
import { listTable, type ListOptions } from './generated/options.js'
import { Transport } from './http.js'
import { Images } from './images.js'
import { hostEvents, resumed, type EventOptions } from './resume.js'
import { reconnect, Sandbox } from './sandbox.js'
import { Changesets } from './changesets.js'
import { Secrets } from './secrets.js'
import { Snapshots } from './snapshots.js'
import { Templates } from './templates.js'
import * as spec from './spec.js'
import type { Capability, Doctor, HostEvent, HostInfo, Leftover, Ping, Reloaded, Result, RouteUsage, Spec, Stats, Version } from './types.js'
import { Volumes } from './volumes.js'
import { decode, sandboxPath, type Query } from './wire.js'

/** Which daemon a client talks to, and how patiently. */
export interface ClientOptions extends EndpointOptions {
  /** Seconds for which calls and streams are continued if the daemon goes away. By default 10. */
  reconnect?: Time
}

/** A client of one daemon. It holds no connection, so it needs no end. */
export class Client {
  /** @internal */
  readonly transport: Transport
  readonly images: Images
  readonly snapshots: Snapshots
  readonly templates: Templates
  readonly changesets: Changesets
  readonly volumes: Volumes
  readonly secrets: Secrets

  constructor(options: ClientOptions = {}) {
    const window = options.reconnect === undefined ? reconnect : 1000 * seconds(options.reconnect)
    this.transport = new Transport(endpoint(options), window)
    this.images = new Images(this.transport)
    this.snapshots = new Snapshots(this.transport)
    this.templates = new Templates(this.transport)
    this.changesets = new Changesets(this.transport)
    this.volumes = new Volumes(this.transport)
    this.secrets = new Secrets(this.transport)
  }

  /**
   * Runs one command in a sandbox of its own, which is removed when the command ends.
   * The options are all of `Sandbox.create` and `run`. If the connection breaks, the command is ended.
   */
  async run(command: spec.Command, options: spec.AloneOptions = {}): Promise<Result> {
    const json = spec.aloneSpec(command, options)
    return foreground(this.transport, { method: 'POST', path: '/v1/run', json }, new Place(''), options, false)
  }

  /** Returns what `run` would build, and builds nothing. With `seccompPfc` it has the compiled filter too. */
  async spec(command: spec.Command, options: spec.AloneOptions & { seccompPfc?: boolean } = {}): Promise<Spec> {
    const json = { ...spec.aloneSpec(command, options, ['seccompPfc']), seccomp_pfc: options.seccompPfc ?? false }
    return decode('SpecResponse', await this.transport.call({ method: 'POST', path: '/v1/spec', json, repeatable: true }))
  }

  /** Returns the sandboxes that have all that is given, the oldest first. */
  async list(options: ListOptions = {}): Promise<Sandbox[]> {
    const answer = await this.transport.list('/v1/sandboxes', 'sandboxes', made(listTable, options) as Query)
    return decode('ListResponse', answer).sandboxes.map((info) => new Sandbox(this.transport, info))
  }

  /** Returns the sandbox of a name, an ID or its unique beginning. */
  async get(ref: string): Promise<Sandbox> {
    const answer = await this.transport.call({ method: 'GET', path: sandboxPath(ref) })
    return new Sandbox(this.transport, decode('Sandbox', answer.sandbox))
  }

  /** Iterates each second over what the live sandboxes that have all that is given use. */
  async *stats(options: ListOptions & { signal?: AbortSignal } = {}): AsyncGenerator<Stats> {
    const { signal } = options
    const query = made(listTable, options, ['signal']) as Query
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

  /** Returns whether the daemon can run something now, and else why not. */
  async ping(): Promise<Ping> {
    return decode('PingResponse', await this.transport.call({ method: 'GET', path: '/v1/ping' }))
  }

  /** Returns for each setting whether this host enforces it. */
  async capabilities(): Promise<Capability[]> {
    return decode('CapabilitiesResponse', await this.transport.call({ method: 'GET', path: '/v1/capabilities' })).capabilities
  }

  /** Removes what no live sandbox owns, and returns it. With `dryRun` it stays. */
  async cleanup({ dryRun = false }: { dryRun?: boolean } = {}): Promise<Leftover[]> {
    const answer = await this.transport.call({ method: 'POST', path: '/v1/cleanup', json: { dry_run: dryRun } })
    return decode('CleanupResponse', answer).leftovers
  }

  /** Has the daemon read its configuration again. A failure changes nothing. For root alone. */
  async reloadConfig(): Promise<Reloaded> {
    return decode('ReloadConfigResponse', await this.transport.call({ method: 'POST', path: '/v1/config/reload', json: {} }))
  }

  /** Returns the versions of the daemon and of its engine. */
  async version(): Promise<Version> {
    return decode('VersionResponse', await this.transport.call({ method: 'GET', path: '/v1/version' }))
  }

  /** Returns what works on this host. */
  async doctor(): Promise<Doctor> {
    return decode('DoctorResponse', await this.transport.call({ method: 'GET', path: '/v1/doctor' }))
  }

  /** Returns what requests by routes took, of this user's sandboxes, live and gone; for root of all. */
  async usage(options: { session?: string; profile?: string } = {}): Promise<RouteUsage[]> {
    const query = { session: options.session, profile: options.profile } as Query
    return decode('UsageResponse', await this.transport.list('/v1/usage', 'usages', query)).usages
  }

  /** Returns what the daemon counts. */
  async info(): Promise<HostInfo> {
    return decode('InfoResponse', await this.transport.call({ method: 'GET', path: '/v1/info' }))
  }
}
