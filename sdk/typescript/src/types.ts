/**
 * What the calls return. The fields are those of docs/reference/routes.md in camelCase.
 * Sizes are in bytes, durations in seconds.
 */
import type { components } from './generated/openapi.js'
import type { ConflictSide } from './generated/values.js'
import type { Decoded } from './scalars.js'

/** The messages of the API as JSON. */
export type Schemas = components['schemas']

/** How a command ended. It has no output. */
export interface Exit extends Decoded<Schemas['Result']> {}

/** How a command ended, and its output as far as it was kept. */
export interface Result extends Exit {
  /** The kept output as text. Bytes that are not UTF-8 become U+FFFD. */
  readonly stdout: string
  /** The kept errors as text. */
  readonly stderr: string
  /** The first and the last half of the limit, if the command wrote more. */
  readonly stdoutData: Uint8Array
  readonly stderrData: Uint8Array
  /** Bytes that are left out between the two halves. */
  readonly stdoutSkipped: number
  readonly stderrSkipped: number
  /** Whether the exit code is 0. */
  readonly ok: boolean
}

/** One command of a sandbox. */
export interface ProcessInfo extends Decoded<Schemas['Exec']> {}

/** The command runs. It is the first event. */
export interface Started extends Decoded<Schemas['Started']> {
  readonly type: 'started'
}

/** A part of one stream of a command. */
export interface Output {
  readonly type: 'stdout' | 'stderr'
  /** Of the first byte in the stream. */
  readonly offset: number
  /** So many bytes are not kept any more. Then there is no data. */
  readonly skipped: number
  /** When the first byte came, if `logs` was asked for timestamps and it is known. */
  readonly time?: Date | undefined
  readonly data: Uint8Array
  /** The data as text. A character that two parts share is in the second one. */
  readonly text: string
}

/** The command has ended. It is the last event. */
export interface Exited {
  readonly type: 'exit'
  readonly result: Exit
}

/** One event of a command. */
export type Event = Started | Output | Exited

/** One sandbox, as it was when the call returned. */
export interface SandboxInfo extends Decoded<Schemas['Sandbox']> {}

/** All that is known of one sandbox. */
export interface SandboxDetail extends Decoded<Schemas['InspectResponse']> {}

/** A port of the host that leads to a port inside. */
export interface Port extends Decoded<Schemas['Port']> {}

/** One entry of a sandbox's file system. */
export interface FileInfo extends Decoded<Schemas['FileInfo']> {}

/** The entries of a directory. `truncated`: there are more than the daemon lists. */
export type Listing = FileInfo[] & { readonly truncated: boolean }

/** One change below a watched directory. */
export interface FileEvent extends Decoded<Schemas['FileEvent']> {}

/** What a copy moved. */
export interface Copied {
  readonly entries: number
  readonly bytes: number
}

/** What a copy out of a sandbox moved. */
export interface CopiedOut extends Copied {
  /** Entries that stay behind: devices, unreadable files, symlinks that lead out. */
  readonly leftOut: number
}

/** What a policy makes of a destination. */
export interface Verdict extends Decoded<Schemas['CheckPolicyResponse']> {}

/** One rule of a policy and what it does. */
export interface PolicyLine extends Decoded<Schemas['PolicyLine']> {}

/** The smallest policy that would have allowed what a sandbox reached. */
export interface Learned extends Decoded<Schemas['LearnPolicyResponse']> {}

/** One attempt of a sandbox to reach something. */
export interface Attempt extends Decoded<Schemas['TrafficResponse']> {}

/** One event of the host, in the form of CloudEvents 1.0. */
export interface HostEvent extends Decoded<Schemas['Event']> {}

/** What one sandbox uses. A value that the host does not count is absent. */
export interface SandboxStats extends Decoded<Schemas['SandboxStats']> {}

/** What sandboxes use at one time. */
export interface Stats extends Decoded<Schemas['StatsResponse']> {}

/** The use of a sandbox over time, the oldest sample first. */
export interface History extends Decoded<Schemas['HistoryResponse']> {}

/** One image of the daemon. */
export interface Image extends Decoded<Schemas['Image']> {}

/** One secret of routes, without its value. */
export interface Secret extends Decoded<Schemas['Secret']> {}

/** One volume. */
export interface Volume extends Decoded<Schemas['Volume']> {}

/** A name under which a copy-on-write workspace differs from the directory of the host. */
export interface Change extends Decoded<Schemas['Change']> {}
/** What an ended sandbox changed in its copy-on-write workspace. It has the ID of the sandbox. */
export interface Changeset extends Decoded<Schemas['Changeset']> {}
/** Settings of `diff`. */
export interface DiffOptions {
  /** Answer with a patch, too, that git apply takes. */
  patch?: boolean
  /** The patch has control files, too, such as .envrc. */
  includeControl?: boolean
}
/** What changed in a copy-on-write workspace. */
export interface Diff extends Decoded<Schemas['DiffResponse']> {}
/** Settings of `apply`. */
export interface ApplyOptions {
  /** Below the workspace; none is all. */
  paths?: string[]
  /** Only answer what would be applied. */
  dryRun?: boolean
  conflicts?: ConflictSide
  /** Control files too, such as .git/hooks. */
  includeControl?: boolean
}
/** What apply wrote to the host, or would write. */
export interface Applied extends Decoded<Schemas['ApplyResponse']> {}

/** The disk of a sandbox as it was once. */
export interface Snapshot extends Decoded<Schemas['Snapshot']> {}

/** The result of the set-up of a profile. */
export interface Template extends Decoded<Schemas['Template']> {}

/** A line about a pull, or its layers where one has changed. */
export interface ImageProgress extends Decoded<Schemas['ImageProgress']> {}

/** A step of a build that begins. Without an instruction it is output of the step's command. */
export interface BuildProgress extends Decoded<Schemas['BuildProgress']> {}

/** The versions of the daemon and of its engine. */
export interface Version extends Decoded<Schemas['VersionResponse']> {}

/** What works on this host. */
export interface Doctor extends Decoded<Schemas['DoctorResponse']> {}

/** Whether the daemon can run something now, and else why not. */
export interface Ping extends Decoded<Schemas['PingResponse']> {}

/** How a setting is honoured on this host. */
export interface Capability extends Decoded<Schemas['Capability']> {}

/** Something of the daemon's that no live sandbox owns. */
export interface Leftover extends Decoded<Schemas['Leftover']> {}

/** The keys of a configuration that was read again. */
export interface Reloaded extends Decoded<Schemas['ReloadConfigResponse']> {}

/** What `run` would build. */
export interface Spec extends Decoded<Schemas['SpecResponse']> {}

/** What `clean` ended and removed. */
export interface Cleaned extends Decoded<Schemas['CleanResponse']> {}

/** What `rewind` ended. */
export interface Rewound extends Decoded<Schemas['RewindResponse']> {}

/** Images that were removed, and the bytes that no other image has of them. */
export interface Pruned extends Decoded<Schemas['PruneImagesResponse']> {}

/** The room that images take. */
export interface ImageUsage extends Decoded<Schemas['ImageUsageResponse']> {}

/** What requests by one route took together. */
export interface RouteUsage extends Decoded<Schemas['RouteUsage']> {}

/** What the daemon counts. */
export interface HostInfo extends Decoded<Schemas['InfoResponse']> {}
