/**
 * The options of create, run and start, and what they are in the API.
 */
import { resolve } from 'node:path'
import type { Client } from './client.js'
import type { Duration, Int64 } from './scalars.js'
import type { Schemas } from './types.js'
import type { Query } from './wire.js'

/** Text is a script for the shell, a list is the arguments. */
export type Command = string | readonly string[]
/** Bytes, or text such as "512M", in powers of 1024. */
export type Size = number | string
/** Seconds, or text such as "90s", "1h30m" or "500ms". */
export type Time = number | string
/** Bytes of an input or a file. */
export type Data = string | Uint8Array | Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>

/** The bytes that a result keeps of each stream, by default. */
export const outputLimit = 10 << 20

/** Limits of a sandbox, or of one command in it. What is not given is the profile's. */
export interface LimitOptions {
  memory?: Size
  cpus?: number
  pids?: number
}

/** Bytes per second with each disk that has files of the sandbox. */
export interface IOOptions {
  ioReadBps?: Size
  /** On hosts with cgroup v2. */
  ioWriteBps?: Size
}

/** What a sandbox may reach. Without any rule, nothing. */
export interface NetworkOptions {
  /** "none", "allow", "open", or "bridge" if the operator offers it. */
  network?: string
  /** HOST[:PORT][+PORT…][,private]. */
  allow?: readonly string[]
  /** As `allow`; it beats `allow`. */
  deny?: readonly string[]
}

/** A mount of a sandbox. */
export interface MountOptions {
  type: 'bind' | 'volume' | 'tmpfs'
  /** Of a bind: a directory of the host. Of a volume: its name. */
  source?: string
  /** Where it is mounted inside, absolute. */
  target: string
  /** Of a bind or volume. */
  readOnly?: boolean
  /** Of a tmpfs. By default that of each tmpfs. */
  size?: Size
}

/** What a sandbox is made of. */
export interface SandboxOptions extends LimitOptions, IOOptions, NetworkOptions {
  image?: string
  profile?: string
  user?: string
  /** Of all commands, added to the image's. */
  env?: Readonly<Record<string, string>>
  /** A directory of the host, with `:ro` at its end to be read only. */
  workspace?: string
  /** Mounts beside the workspace. */
  mounts?: readonly MountOptions[]
  /** Weight against other sandboxes while CPUs are short, as `cpu.shares`. By default 1024. */
  cpuShares?: number
  openFiles?: number
  /** The size of each tmpfs. */
  tmpfs?: Size
  /** The size of /dev/shm. By default that of each tmpfs. */
  shmSize?: Size
  /** The host name inside. By default the ID. */
  hostname?: string
  /** [ADDRESS:]PORT:PORT, of the host and inside. */
  publish?: readonly string[]
  /** Ports inside that links of other sandboxes may lead to. */
  expose?: readonly number[]
  /** NAME=SANDBOX:PORT. */
  links?: readonly string[]
  /** Resolvers to ask, among those that the operator allows. */
  dns?: readonly string[]
  allowEch?: boolean
  labels?: Readonly<Record<string, string>>
  ttl?: Time
  idleTimeout?: Time
}

/** How a sandbox is made. */
export interface CreateOptions extends SandboxOptions {
  name?: string
  /** Return the live sandbox of this name, if it was made with the same settings; replace one that has ended. */
  ensure?: boolean
  /** End and remove the sandbox of this name first. */
  replace?: boolean
  /** By default a client of `$CAISSON_SOCKET`. */
  client?: Client
  signal?: AbortSignal
}

/** How a command is started. */
export interface ExecOptions extends LimitOptions {
  env?: Readonly<Record<string, string>>
  /** Absolute. By default the workspace, else the image's. */
  workdir?: string
  user?: string
  /** The command is ended after this time, with exit code 124. */
  timeout?: Time
  /** Bytes of each stream that are kept. */
  outputLimit?: number
}

/** How a command in the background is started. */
export interface StartOptions extends ExecOptions {
  /** The command gets an input, for `send`. */
  stdin?: boolean
  /** A terminal, which is an input too. `true` has 24 rows and 80 columns. */
  tty?: boolean | { rows: number; cols: number }
  signal?: AbortSignal
}

/** Which of the kept output is wanted. */
export interface LogsOptions {
  /** Go on to the end of the command. */
  follow?: boolean
  /** Each part has its time. */
  timestamps?: boolean
  /** Leave out what came before it. */
  since?: Date
  /** Leave out what came after it. */
  until?: Date
  signal?: AbortSignal
}

/** What is done with the output of a command. The command waits for the callbacks. */
export interface OutputOptions {
  onStdout?: (text: string) => void | PromiseLike<void>
  onStderr?: (text: string) => void | PromiseLike<void>
  /** The bytes, for output that is no text. */
  onStdoutData?: (data: Uint8Array) => void | PromiseLike<void>
  onStderrData?: (data: Uint8Array) => void | PromiseLike<void>
  /** Throw CommandFailed unless the exit code is 0. */
  check?: boolean
  /** Bytes of each stream that the result keeps. */
  outputLimit?: number
  /** Its abort makes the call throw. */
  signal?: AbortSignal
}

/** How a command is run to its end. If the call fails or is aborted, the command is killed. */
export interface RunOptions extends ExecOptions, OutputOptions {
  outputLimit?: number
  /** All of the command's input. */
  input?: Data
}

/** Selects sandboxes. `name` is a pattern such as `build-*`; `olderThan` counts from the creation. */
export interface ListOptions {
  labels?: Readonly<Record<string, string>>
  name?: string
  session?: string
  task?: string
  states?: readonly string[]
  olderThan?: Time
}

/** Returns the query of a selection. */
export function listQuery({ labels, name, session, task, states, olderThan }: ListOptions): Query {
  return { labels, name, session, task, states, older_than: duration(olderThan) }
}

/** What can be changed of a sandbox. `ttl` counts from now; a label with an empty value goes. */
export interface UpdateOptions extends LimitOptions, IOOptions, NetworkOptions {
  cpuShares?: number
  ttl?: Time
  idleTimeout?: Time
  labels?: Readonly<Record<string, string>>
}

/** Returns an object without what is undefined. */
export function present<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> }
}

const sizeForm = /^(\d+(?:\.\d+)?)([KMGT]?)$/

/** Writes a size in bytes. */
export function size(value: Size | undefined): Int64 | undefined {
  if (value === undefined || typeof value === 'number') return int64(value)
  const match = sizeForm.exec(value.trim().toUpperCase())
  if (match === null) throw new TypeError(`${JSON.stringify(value)} is not a size: give bytes, or text such as "512M"`)
  return int64(Math.floor(Number(match[1]) * 1024 ** ' KMGT'.indexOf(match[2] || ' ')))
}

/** Writes a whole number. */
export function int64(value: number | undefined): Int64 | undefined {
  if (value === undefined) return undefined
  if (!Number.isSafeInteger(value)) throw new TypeError(`${value} is not a whole number`)
  return String(value) as Int64
}

const units: Record<string, number> = { h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6 }

/** Writes a duration. */
export function duration(value: Time | undefined): Duration | undefined {
  if (value === undefined) return undefined
  const seconds = typeof value === 'number' ? value : secondsOf(value)
  if (!Number.isFinite(seconds)) throw new TypeError(`${value} is not a number of seconds`)
  return `${seconds.toFixed(9).replace(/\.?0+$/, '')}s` as Duration
}

function secondsOf(text: string): number {
  if (!/^(\d+(\.\d+)?(h|ms|m|s|us))+$/.test(text)) {
    throw new TypeError(`${JSON.stringify(text)} is not a time: give seconds, or text such as "90s" or "1h30m"`)
  }
  let seconds = 0
  for (const [, count, unit] of text.matchAll(/([\d.]+)([a-z]+)/g)) seconds += Number(count) * (units[unit as string] as number)
  return seconds
}

function milliCPU(cpus: number | undefined): Int64 | undefined {
  return cpus === undefined ? undefined : int64(Math.round(cpus * 1000))
}

/** Returns the socket of the daemon. */
export function socketPath(socket?: string): string {
  return socket || process.env.CAISSON_SOCKET || '/run/caisson/caisson.sock'
}

/** Makes an ExecSpec. */
export function execSpec(command: Command, options: StartOptions): Schemas['ExecSpec'] {
  const tty = options.tty === true ? { rows: 24, cols: 80 } : options.tty || undefined
  const limits = present(limitsOf(options))
  return present({
    ...(typeof command === 'string' ? { shell: command } : { args: [...command] }),
    env: options.env,
    workdir: options.workdir,
    user: options.user,
    stdin: options.stdin || tty ? true : undefined,
    tty,
    timeout: duration(options.timeout),
    output_limit_bytes: int64(options.outputLimit ?? outputLimit),
    limits: Object.keys(limits).length > 0 ? limits : undefined,
  }) as Schemas['ExecSpec']
}

function limitsOf(options: LimitOptions) {
  return { memory_bytes: size(options.memory), milli_cpu: milliCPU(options.cpus), pids: int64(options.pids) }
}

function ioOf(options: IOOptions) {
  return { io_read_bps: size(options.ioReadBps), io_write_bps: size(options.ioWriteBps) }
}

/** Makes a SandboxSpec. */
export function sandboxSpec(options: SandboxOptions & { name?: string }): Schemas['SandboxSpec'] {
  return present({
    name: options.name,
    hostname: options.hostname,
    image: options.image,
    profile: options.profile,
    user: options.user,
    env: options.env,
    network: options.network,
    allow: options.allow,
    deny: options.deny,
    workspace: workspace(options.workspace),
    mounts: options.mounts?.map(mount),
    limits: present({ ...limitsOf(options), ...ioOf(options), cpu_shares: int64(options.cpuShares), open_files: int64(options.openFiles), tmpfs_bytes: size(options.tmpfs), shm_bytes: size(options.shmSize) }),
    labels: options.labels,
    publish: options.publish,
    expose: options.expose,
    links: options.links,
    dns: options.dns,
    allow_ech: options.allowEch,
    ttl: duration(options.ttl),
    idle_timeout: duration(options.idleTimeout),
  }) as Schemas['SandboxSpec']
}

function mount(m: MountOptions): Schemas['Mount'] {
  return present({
    type: m.type,
    source: m.source !== undefined && m.type === 'bind' ? resolve(m.source) : m.source,
    target: m.target,
    read_only: m.readOnly,
    size_bytes: size(m.size),
  }) as Schemas['Mount']
}

function workspace(value: string | undefined): Schemas['Workspace'] | undefined {
  if (value === undefined) return undefined
  const [, dir, path, mode] = /^(.*?)(?::(\/.*?))?(?::(ro|rw))?$/s.exec(value)!
  return { dir: resolve(dir!), mode: mode ?? '', ...(path && { path }) }
}

/** Makes an UpdateRequest. */
export function updateRequest(options: UpdateOptions): Schemas['UpdateRequest'] {
  const rules = (list: readonly string[] | undefined) => list && { rules: [...list] }
  return present({
    ...limitsOf(options),
    cpu_shares: int64(options.cpuShares),
    ...ioOf(options),
    ttl: duration(options.ttl),
    idle_timeout: duration(options.idleTimeout),
    labels: options.labels,
    network: options.network,
    allow: rules(options.allow),
    deny: rules(options.deny),
  }) as Schemas['UpdateRequest']
}
