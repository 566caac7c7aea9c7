// The options of the calls. Made by api/openapi/gen; do not edit.
import type { Inputs, MountOptions, Rlimit, Size, Time } from '../forms.js'
import type { LiveNetwork, Network, OnIdle, RootFS, SandboxState } from './values.js'

/** The field of the request and the form, by option. */
export type Table = Readonly<Record<string, readonly [path: string, form: string]>>

/** The bytes that a result keeps of each stream, by default. */
export const outputLimit = 10485760

/** What a sandbox may give to its children all together. */
export interface NestedOptions {
  sandboxes?: number
  memory?: Size
  /** A count such as 1.5. */
  cpus?: number
}

/** What a sandbox is made of. What is not given is the profile's. */
export interface SandboxOptions {
  /** Unique; empty is the sandbox ID. */
  name?: string
  /** Empty is the profile's. */
  image?: string
  /** Empty is "strict". */
  profile?: string
  /** Name, uid, or uid:gid; empty is the profile's. */
  user?: string
  /** Of all its commands, added to the image's. */
  env?: Readonly<Record<string, string>>
  /** "none", "allow", "open", or "bridge" where the operator offers it; empty is "allow" where
   * allow is given, else the profile's. A child of a sandbox has "none" where it names
   * nothing, and "none" or "allow". */
  network?: Network
  /** [METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque], instead of the
   * profile's; without a port 80 and 443. Methods and a path, a pattern, are of requests by
   * plain HTTP, which alone pass then. HOST is a name, *.NAME, an address or a CIDR. Of a
   * child: rules that those of its parent cover (else SBX-406), and its parent's where it
   * names none. */
  allow?: readonly string[]
  workspace?: string
  memory?: Size
  /** A count such as 1.5. */
  cpus?: number
  /** Tasks, that is processes and threads, as the kernel counts. */
  pids?: number
  openFiles?: number
  /** Of each tmpfs. */
  tmpfs?: Size
  /** Weight against other sandboxes while CPUs are short, 2 to 262144, as cpu.shares of cgroup
   * v1. 1024 where neither request nor profile says otherwise. */
  cpuShares?: number
  /** Of /dev/shm; where neither request nor profile says, that of each tmpfs. */
  shmSize?: Size
  /** Bytes per second that are read from each disk with files of the sandbox, and written to
   * it, at least 65536. Where neither request nor profile says, unbounded. Writes need a host
   * with cgroup v2. */
  ioReadBps?: Size
  ioWriteBps?: Size
  /** Size of a file system of the sandbox's own, on the host's disk, with a /workspace that its
   * user may write; 16 MiB to 1 TiB. Where neither request nor profile says, there is none. */
  disk?: Size
  /** Files and directories on it, 256 to one for each 4 KiB; absent is one for each 16 KiB. */
  diskInodes?: number
  labels?: Readonly<Record<string, string>>
  session?: string
  task?: string
  /** When its time is over a sandbox is ended and removed, paused or not, with the output and
   * the results of its commands. Calls for it then have SBX-107, which says so for as long as
   * the daemon remembers it: 1024 of them, the oldest of whoever had most forgotten first. */
  ttl?: Time
  /** Since no command ran and nobody worked on its files; with on_idle "pause" since nothing
   * worked inside. Zero is never, absent the profile's. */
  idleTimeout?: Time
  /** A socket to make sandboxes of its own; absent is none. */
  nested?: boolean | NestedOptions
  /** As allow, beside the profile's; deny beats allow. */
  deny?: readonly string[]
  /** [ADDRESS:]PORT:PORT: TCP port of the host and port inside. The address is 127.0.0.1 where
   * none is given; port 0 of the host has a free one picked. */
  publish?: readonly string[]
  /** Ports inside to which links of the same owner's sandboxes may lead, from 54. */
  expose?: readonly number[]
  /** NAME=SANDBOX:PORT: NAME, which has no dot, and PORT lead to that port of the sandbox,
   * which exposes it. Such a sandbox is in the mode "allow" or "open". */
  links?: readonly string[]
  /** Let TLS clients encrypt the name that they ask for (encrypted_client_hello), also where a
   * rule depends on it. The profile may say so as well. */
  allowEch?: boolean
  /** Language of the work, such as "python". Without an image here or in the profile,
   * images.languages of the configuration says which image is for it, else it is base. */
  language?: string
  /** How the caller knows, such as the name of a file; the result repeats it. */
  languageReason?: string
  /** At most 16, beside the workspace. */
  mounts?: readonly MountOptions[]
  /** A label of RFC 1123: 1 to 63 letters, digits and - inside. Empty is the sandbox ID. Such a
   * sandbox comes from no pool. */
  hostname?: string
  /** Resolvers to ask for names, ADDRESS or ADDRESS:PORT, at most 3, among those of
   * network.dns_allowed in the configuration. Absent are those of network.dns. */
  dns?: readonly string[]
  /** "ro", or "rw": the root can be written, and the sandbox's disk holds what is written. If
   * no limit sizes the disk, sandboxes.disk of the configuration does. Empty is the profile's. */
  rootfs?: RootFS
  /** Name of a snapshot. The sandbox begins with a copy of its disk, and has its image,
   * profile, user, env, network policy, limits and labels where the request names none. */
  from?: string
  /** Name of a snapshot that is made of the disk when the sandbox ends, whatever ends it. If
   * there is one of that name by then, it is followed by a dash and some letters. */
  snapshotOnEnd?: string
  /** Caches of package managers, by name: cargo, go, maven, npm, nuget, pip or uv, or NAME=PATH
   * for one of another tool, mounted at PATH. Each is the caller's volume caisson-cache-NAME,
   * which many sandboxes read; what one writes goes to its disk. Absent are the profile's. */
  caches?: readonly string[]
  /** What happens when the sandbox was idle for idle_timeout, which is at least a second for
   * "pause": "remove", or "pause" until somebody uses it. Empty is the profile's, else
   * "remove". */
  onIdle?: OnIdle
  /** Names of routes that the profile has on request, beside those of each of its sandboxes. Of
   * a child: routes that its parent has, and no other (else SBX-406). Root also gives routes
   * whole, as NAME={upstream: URL, credential: SECRET}, in YAML or JSON. The keys are those of
   * a route in the configuration. */
  routes?: readonly string[]
}

/** How a sandbox is made. */
export interface CreateOptions extends SandboxOptions {
  /** Return the live sandbox of the name when it was made with the same settings. What Update
   * changed since does not count, and stays. A sandbox of the name that has ended is removed
   * and replaced. One that was made for one command, whose result it holds, is not. */
  ensure?: boolean
  /** End and remove the caller's sandbox of the name first, live or not. A request that is
   * refused removes nothing. Not with ensure. */
  replace?: boolean
}

/** How a command is run. */
export interface ExecOptions {
  /** Added to the sandbox's. */
  env?: Readonly<Record<string, string>>
  /** Absolute; empty is the workspace, else the image's. */
  workdir?: string
  /** Empty is the sandbox's. */
  user?: string
  /** Absent is none. */
  timeout?: Time
  /** Per stream; absent is 10 MiB. */
  outputLimit?: Size
  /** Below the sandbox's. */
  rlimits?: Readonly<Record<string, Rlimit>>
  memory?: Size
  /** A count such as 1.5. */
  cpus?: number
  pids?: number
  /** Files that exist as long as the command runs: 16 at most, of 1 MiB each and 2 MiB
   * together. Their content is kept nowhere and told to nobody. */
  inputs?: Inputs
}

/** How a command in the background is started. */
export interface StartOptions extends ExecOptions {
  /** The command gets an input, sent with SendInput or StreamInput. */
  stdin?: boolean
  /** A terminal of this size; absent is none. */
  tty?: boolean | { rows: number; cols: number }
}

/** How a command is run in a sandbox of its own. */
export interface AloneOptions extends SandboxOptions {
  /** Absolute; empty is the workspace, else the image's. */
  workdir?: string
  /** Absent is none. */
  timeout?: Time
  /** Per stream; absent is 10 MiB. */
  outputLimit?: Size
  /** Below the sandbox's. */
  rlimits?: Readonly<Record<string, Rlimit>>
  /** Files that exist as long as the command runs: 16 at most, of 1 MiB each and 2 MiB
   * together. Their content is kept nowhere and told to nobody. */
  inputs?: Inputs
  /** Let the command reach all that is public (the mode "open"), and tell in the result what it
   * reached. Not with detach or keep. */
  learn?: boolean
  /** With learn: let it reach names at private addresses too (RFC 1918, RFC 4193), but at none
   * of the host itself. */
  learnPrivate?: boolean
  /** The sandbox stays, as one of Create does, for further commands and for the output and the
   * result of this one. The caller that goes away ends the command alone. Where the command
   * does not start, nothing stays. Not with detach. */
  keep?: boolean
}

/** What can be changed of a sandbox. */
export interface UpdateOptions {
  memory?: Size
  /** A count such as 1.5. */
  cpus?: number
  pids?: number
  /** From now; zero is never. */
  ttl?: Time
  /** Zero is never. */
  idleTimeout?: Time
  /** Merged; an empty value removes the label. */
  labels?: Readonly<Record<string, string>>
  /** Replace those of the request that made the sandbox; absent keeps them. What is open and no
   * longer allowed is cut. The policies of its children follow. Those of a child stay within
   * its parent's. One of "allow", "open". */
  network?: LiveNetwork
  allow?: readonly string[]
  deny?: readonly string[]
  /** As in Limits. */
  cpuShares?: number
  /** As in Limits; 0 takes a rate away. */
  ioReadBps?: Size
  ioWriteBps?: Size
  /** As in SandboxSpec. One of "remove", "pause". */
  onIdle?: OnIdle
  /** The published ports as they are open, all of them, with other clients:
   * ADDRESS:PORT:PORT@CIDR+CIDR, and any may connect without @. Connections of others are cut. */
  publish?: readonly string[]
}

/** Selects sandboxes: those that have all that is given. */
export interface ListOptions {
  labels?: Readonly<Record<string, string>>
  session?: string
  task?: string
  /** A pattern of path.Match, such as "build-*". */
  name?: string
  /** Any of these. With "removed", also sandboxes that are gone and of which History has the
   * use. One of "creating", "adopting", "running", "paused", "stopping", "exited", "removing",
   * "removed". */
  states?: readonly SandboxState[]
  /** Since it was created. */
  olderThan?: Time
}

/** How an image is built. Settings of a sandbox are those of each RUN. */
export interface BuildOptions {
  /** Values of ARG. */
  args?: Readonly<Record<string, string>>
  /** Name or number of the stage; empty: the last. */
  target?: string
  /** Do all steps again. */
  noCache?: boolean
  /** Of each RUN; absent: none. */
  timeout?: Time
  /** Files for RUN --mount=type=secret, by id. At most 500 KiB each. Nothing keeps them. */
  secrets?: Readonly<Record<string, string | Uint8Array>>
  /** Build nothing: the one message holds needs. */
  needsOnly?: boolean
  /** Empty is "strict". */
  profile?: string
  /** "none", "allow", "open", or "bridge" where the operator offers it; empty is "allow" where
   * allow is given, else the profile's. A child of a sandbox has "none" where it names
   * nothing, and "none" or "allow". */
  network?: Network
  /** [METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque], instead of the
   * profile's; without a port 80 and 443. Methods and a path, a pattern, are of requests by
   * plain HTTP, which alone pass then. HOST is a name, *.NAME, an address or a CIDR. Of a
   * child: rules that those of its parent cover (else SBX-406), and its parent's where it
   * names none. */
  allow?: readonly string[]
  memory?: Size
  /** A count such as 1.5. */
  cpus?: number
  /** Tasks, that is processes and threads, as the kernel counts. */
  pids?: number
  openFiles?: number
  /** Of each tmpfs. */
  tmpfs?: Size
  /** Weight against other sandboxes while CPUs are short, 2 to 262144, as cpu.shares of cgroup
   * v1. 1024 where neither request nor profile says otherwise. */
  cpuShares?: number
  /** Of /dev/shm; where neither request nor profile says, that of each tmpfs. */
  shmSize?: Size
  /** Bytes per second that are read from each disk with files of the sandbox, and written to
   * it, at least 65536. Where neither request nor profile says, unbounded. Writes need a host
   * with cgroup v2. */
  ioReadBps?: Size
  ioWriteBps?: Size
  /** Size of a file system of the sandbox's own, on the host's disk, with a /workspace that its
   * user may write; 16 MiB to 1 TiB. Where neither request nor profile says, there is none. */
  disk?: Size
  /** Files and directories on it, 256 to one for each 4 KiB; absent is one for each 16 KiB. */
  diskInodes?: number
  /** As allow, beside the profile's; deny beats allow. */
  deny?: readonly string[]
  /** Let TLS clients encrypt the name that they ask for (encrypted_client_hello), also where a
   * rule depends on it. The profile may say so as well. */
  allowEch?: boolean
}

export const nestedTable = {
  sandboxes: ['sandboxes', 'count'],
  memory: ['memory_bytes', 'size'],
  cpus: ['milli_cpu', 'cpus'],
} as const satisfies Table & Record<keyof NestedOptions, unknown>

export const sandboxTable = {
  name: ['name', 'text'],
  image: ['image', 'text'],
  profile: ['profile', 'text'],
  user: ['user', 'text'],
  env: ['env', 'map'],
  network: ['network', 'text'],
  allow: ['allow', 'texts'],
  workspace: ['workspace', 'workspace'],
  memory: ['limits.memory_bytes', 'size'],
  cpus: ['limits.milli_cpu', 'cpus'],
  pids: ['limits.pids', 'count'],
  openFiles: ['limits.open_files', 'count'],
  tmpfs: ['limits.tmpfs_bytes', 'size'],
  cpuShares: ['limits.cpu_shares', 'count'],
  shmSize: ['limits.shm_bytes', 'size'],
  ioReadBps: ['limits.io_read_bps', 'size'],
  ioWriteBps: ['limits.io_write_bps', 'size'],
  disk: ['limits.disk_bytes', 'size'],
  diskInodes: ['limits.disk_inodes', 'count'],
  labels: ['labels', 'map'],
  session: ['session', 'text'],
  task: ['task', 'text'],
  ttl: ['ttl', 'time'],
  idleTimeout: ['idle_timeout', 'time'],
  nested: ['nested', 'nested'],
  deny: ['deny', 'texts'],
  publish: ['publish', 'texts'],
  expose: ['expose', 'counts'],
  links: ['links', 'texts'],
  allowEch: ['allow_ech', 'flag'],
  language: ['language', 'text'],
  languageReason: ['language_reason', 'text'],
  mounts: ['mounts', 'mounts'],
  hostname: ['hostname', 'text'],
  dns: ['dns', 'texts'],
  rootfs: ['rootfs', 'text'],
  from: ['from', 'text'],
  snapshotOnEnd: ['snapshot_on_end', 'text'],
  caches: ['caches', 'texts'],
  onIdle: ['on_idle', 'text'],
  routes: ['routes', 'texts'],
} as const satisfies Table & Record<keyof SandboxOptions, unknown>

export const createTable = {
  name: ['name', 'text'],
  image: ['image', 'text'],
  profile: ['profile', 'text'],
  user: ['user', 'text'],
  env: ['env', 'map'],
  network: ['network', 'text'],
  allow: ['allow', 'texts'],
  workspace: ['workspace', 'workspace'],
  memory: ['limits.memory_bytes', 'size'],
  cpus: ['limits.milli_cpu', 'cpus'],
  pids: ['limits.pids', 'count'],
  openFiles: ['limits.open_files', 'count'],
  tmpfs: ['limits.tmpfs_bytes', 'size'],
  cpuShares: ['limits.cpu_shares', 'count'],
  shmSize: ['limits.shm_bytes', 'size'],
  ioReadBps: ['limits.io_read_bps', 'size'],
  ioWriteBps: ['limits.io_write_bps', 'size'],
  disk: ['limits.disk_bytes', 'size'],
  diskInodes: ['limits.disk_inodes', 'count'],
  labels: ['labels', 'map'],
  session: ['session', 'text'],
  task: ['task', 'text'],
  ttl: ['ttl', 'time'],
  idleTimeout: ['idle_timeout', 'time'],
  nested: ['nested', 'nested'],
  deny: ['deny', 'texts'],
  publish: ['publish', 'texts'],
  expose: ['expose', 'counts'],
  links: ['links', 'texts'],
  allowEch: ['allow_ech', 'flag'],
  language: ['language', 'text'],
  languageReason: ['language_reason', 'text'],
  mounts: ['mounts', 'mounts'],
  hostname: ['hostname', 'text'],
  dns: ['dns', 'texts'],
  rootfs: ['rootfs', 'text'],
  from: ['from', 'text'],
  snapshotOnEnd: ['snapshot_on_end', 'text'],
  caches: ['caches', 'texts'],
  onIdle: ['on_idle', 'text'],
  routes: ['routes', 'texts'],
  ensure: ['ensure', 'flag'],
  replace: ['replace', 'flag'],
} as const satisfies Table & Record<keyof CreateOptions, unknown>

export const execTable = {
  env: ['env', 'map'],
  workdir: ['workdir', 'text'],
  user: ['user', 'text'],
  timeout: ['timeout', 'time'],
  outputLimit: ['output_limit_bytes', 'size'],
  rlimits: ['rlimits', 'rlimits'],
  memory: ['limits.memory_bytes', 'size'],
  cpus: ['limits.milli_cpu', 'cpus'],
  pids: ['limits.pids', 'count'],
  inputs: ['inputs', 'inputs'],
} as const satisfies Table & Record<keyof ExecOptions, unknown>

export const startTable = {
  env: ['env', 'map'],
  workdir: ['workdir', 'text'],
  user: ['user', 'text'],
  timeout: ['timeout', 'time'],
  outputLimit: ['output_limit_bytes', 'size'],
  rlimits: ['rlimits', 'rlimits'],
  memory: ['limits.memory_bytes', 'size'],
  cpus: ['limits.milli_cpu', 'cpus'],
  pids: ['limits.pids', 'count'],
  inputs: ['inputs', 'inputs'],
  stdin: ['stdin', 'flag'],
  tty: ['tty', 'terminal'],
} as const satisfies Table & Record<keyof StartOptions, unknown>

export const aloneTable = {
  name: ['sandbox.name', 'text'],
  image: ['sandbox.image', 'text'],
  profile: ['sandbox.profile', 'text'],
  user: ['sandbox.user', 'text'],
  env: ['sandbox.env', 'map'],
  network: ['sandbox.network', 'text'],
  allow: ['sandbox.allow', 'texts'],
  workspace: ['sandbox.workspace', 'workspace'],
  memory: ['sandbox.limits.memory_bytes', 'size'],
  cpus: ['sandbox.limits.milli_cpu', 'cpus'],
  pids: ['sandbox.limits.pids', 'count'],
  openFiles: ['sandbox.limits.open_files', 'count'],
  tmpfs: ['sandbox.limits.tmpfs_bytes', 'size'],
  cpuShares: ['sandbox.limits.cpu_shares', 'count'],
  shmSize: ['sandbox.limits.shm_bytes', 'size'],
  ioReadBps: ['sandbox.limits.io_read_bps', 'size'],
  ioWriteBps: ['sandbox.limits.io_write_bps', 'size'],
  disk: ['sandbox.limits.disk_bytes', 'size'],
  diskInodes: ['sandbox.limits.disk_inodes', 'count'],
  labels: ['sandbox.labels', 'map'],
  session: ['sandbox.session', 'text'],
  task: ['sandbox.task', 'text'],
  ttl: ['sandbox.ttl', 'time'],
  idleTimeout: ['sandbox.idle_timeout', 'time'],
  nested: ['sandbox.nested', 'nested'],
  deny: ['sandbox.deny', 'texts'],
  publish: ['sandbox.publish', 'texts'],
  expose: ['sandbox.expose', 'counts'],
  links: ['sandbox.links', 'texts'],
  allowEch: ['sandbox.allow_ech', 'flag'],
  language: ['sandbox.language', 'text'],
  languageReason: ['sandbox.language_reason', 'text'],
  mounts: ['sandbox.mounts', 'mounts'],
  hostname: ['sandbox.hostname', 'text'],
  dns: ['sandbox.dns', 'texts'],
  rootfs: ['sandbox.rootfs', 'text'],
  from: ['sandbox.from', 'text'],
  snapshotOnEnd: ['sandbox.snapshot_on_end', 'text'],
  caches: ['sandbox.caches', 'texts'],
  onIdle: ['sandbox.on_idle', 'text'],
  routes: ['sandbox.routes', 'texts'],
  workdir: ['exec.workdir', 'text'],
  timeout: ['exec.timeout', 'time'],
  outputLimit: ['exec.output_limit_bytes', 'size'],
  rlimits: ['exec.rlimits', 'rlimits'],
  inputs: ['exec.inputs', 'inputs'],
  learn: ['learn', 'flag'],
  learnPrivate: ['learn_private', 'flag'],
  keep: ['keep', 'flag'],
} as const satisfies Table & Record<keyof AloneOptions, unknown>

export const updateTable = {
  memory: ['memory_bytes', 'size'],
  cpus: ['milli_cpu', 'cpus'],
  pids: ['pids', 'count'],
  ttl: ['ttl', 'time'],
  idleTimeout: ['idle_timeout', 'time'],
  labels: ['labels', 'map'],
  network: ['network', 'text'],
  allow: ['allow', 'rules'],
  deny: ['deny', 'rules'],
  cpuShares: ['cpu_shares', 'count'],
  ioReadBps: ['io_read_bps', 'size'],
  ioWriteBps: ['io_write_bps', 'size'],
  onIdle: ['on_idle', 'text'],
  publish: ['publish', 'rules'],
} as const satisfies Table & Record<keyof UpdateOptions, unknown>

export const listTable = {
  labels: ['labels', 'map'],
  session: ['session', 'text'],
  task: ['task', 'text'],
  name: ['name', 'text'],
  states: ['states', 'texts'],
  olderThan: ['older_than', 'time'],
} as const satisfies Table & Record<keyof ListOptions, unknown>

export const buildTable = {
  args: ['args', 'map'],
  target: ['target', 'text'],
  noCache: ['no_cache', 'flag'],
  timeout: ['timeout', 'time'],
  secrets: ['secrets', 'secrets'],
  needsOnly: ['needs_only', 'flag'],
  profile: ['sandbox.profile', 'text'],
  network: ['sandbox.network', 'text'],
  allow: ['sandbox.allow', 'texts'],
  memory: ['sandbox.limits.memory_bytes', 'size'],
  cpus: ['sandbox.limits.milli_cpu', 'cpus'],
  pids: ['sandbox.limits.pids', 'count'],
  openFiles: ['sandbox.limits.open_files', 'count'],
  tmpfs: ['sandbox.limits.tmpfs_bytes', 'size'],
  cpuShares: ['sandbox.limits.cpu_shares', 'count'],
  shmSize: ['sandbox.limits.shm_bytes', 'size'],
  ioReadBps: ['sandbox.limits.io_read_bps', 'size'],
  ioWriteBps: ['sandbox.limits.io_write_bps', 'size'],
  disk: ['sandbox.limits.disk_bytes', 'size'],
  diskInodes: ['sandbox.limits.disk_inodes', 'count'],
  deny: ['sandbox.deny', 'texts'],
  allowEch: ['sandbox.allow_ech', 'flag'],
} as const satisfies Table & Record<keyof BuildOptions, unknown>

/** The commands of remedies, and what is called instead. */
export const calls: readonly (readonly [RegExp, string])[] = [
  [/caisson update --/g, 'Sandbox.update with --'],
  [/caisson create --mount type=snapshot,src=[^\s;:()]*/g, 'Sandbox.create() with a mount of type snapshot'],
  [/caisson create --/g, 'Sandbox.create with --'],
  [/caisson spec --/g, 'Client.spec with --'],
  [/\(create --nested\)/g, '(nested of Sandbox.create)'],
  [/caisson run\b(?! --)/g, 'Client.run()'],
  [/by -m and --cpus/g, 'by memory and cpus'],
  [/caisson ls(?: --json)?/g, 'Client.list()'],
  [/caisson ps SANDBOX/g, 'Sandbox.processes()'],
  [/caisson inspect SANDBOX/g, 'Sandbox.inspect()'],
  [/caisson resume [^\s,;:()]+/g, 'Sandbox.resume()'],
  [/caisson rm (?:--force )?[^\s,;:()]+/g, 'Sandbox.remove()'],
  [/caisson kill --all/g, 'Process.kill()'],
  [/caisson port [^\s,;:()]+/g, 'Sandbox.ports'],
  [/caisson cp/g, 'Sandbox.files.copyIn()'],
  [/caisson policy log SANDBOX/g, 'Sandbox.policy.traffic()'],
  [/caisson policy check/g, 'Sandbox.policy.check()'],
  [/caisson image pull, import or from-host/g, 'Client.images.pull(), load() or fromHost()'],
  [/(?:caisson image import|import it with) --name NAME/g, 'Client.images.load() with a name'],
  [/caisson image import/g, 'Client.images.load()'],
  [/caisson image save/g, 'Client.images.save()'],
  [/caisson image prune --filter unused/g, 'Client.images.prune() with unused: true'],
  [/caisson image ls/g, 'Client.images.list()'],
  [/caisson image rm/g, 'Client.images.remove()'],
  [/caisson image pull/g, 'Client.images.pull()'],
  [/caisson image build/g, 'Client.images.build()'],
  [/caisson volume rm or prune/g, 'Client.volumes.remove() or prune()'],
  [/caisson config reload/g, 'Client.reload_config()'],
  [/caisson secret ls/g, 'Client.secrets.list()'],
  [/caisson secret set/g, 'Client.secrets.set()'],
  [/caisson secret rm/g, 'Client.secrets.remove()'],
  [/caisson volume ls/g, 'Client.volumes.list()'],
  [/caisson snapshot ls/g, 'Client.snapshots.list()'],
  [/caisson snapshot export/g, 'Client.snapshots.save()'],
  [/caisson snapshot import(?: FILE)?/g, 'Client.snapshots.load()'],
  [/caisson snapshot rm(?: [^\s,;:()]+)?/g, 'Client.snapshots.remove()'],
  [/caisson template ls/g, 'Client.templates.list()'],
  [/caisson template inspect [^\s,;:()]+/g, 'Client.templates.get()'],
  [/caisson template build [^\s,;:()]+/g, 'Client.templates.build()'],
  [/caisson changes ls/g, 'Client.changesets.list()'],
  [/caisson apply SANDBOX PATH/g, 'Sandbox.apply() with paths'],
  [/caisson apply [^\s,;:()]+/g, 'Sandbox.apply()'],
  [/caisson diff/g, 'Sandbox.diff()'],
  [/caisson doctor(?: --json)?/g, 'Client.doctor()'],
  [/caisson cleanup/g, 'Client.cleanup()'],
  [/caisson help shows the usage/g, 'the README of the SDK shows the calls'],
]

/** Flags that an option has another name for. */
export const flags: Readonly<Record<string, string>> = {
  'link': 'links',
  'volume': 'mounts',
  'secret': 'secrets',
  'path': 'paths',
  'package': 'packages',
  'max-bytes': 'maxBytes',
  'from': 'from',
}

export const lists: readonly string[] = ['allow', 'deny', 'publish', 'expose', 'links', 'mounts', 'dns', 'caches', 'routes', 'states']

export const switches: readonly string[] = ['nested', 'allowEch', 'ensure', 'replace', 'stdin', 'learn', 'learnPrivate', 'keep', 'noCache', 'needsOnly']

export const others: readonly string[] = ['sandboxes', 'memory', 'cpus', 'name', 'image', 'profile', 'user', 'env', 'network', 'workspace', 'pids', 'openFiles', 'tmpfs', 'cpuShares', 'shmSize', 'ioReadBps', 'ioWriteBps', 'disk', 'diskInodes', 'labels', 'session', 'task', 'ttl', 'idleTimeout', 'language', 'languageReason', 'hostname', 'rootfs', 'from', 'snapshotOnEnd', 'onIdle', 'workdir', 'timeout', 'outputLimit', 'rlimits', 'inputs', 'tty', 'olderThan', 'args', 'target', 'secrets']
