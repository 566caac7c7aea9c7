/**
 * Run commands of AI agents in sandboxes of caisson.
 *
 * @packageDocumentation
 */
export { Changesets } from './changesets.js'
export { Client, type ClientOptions } from './client.js'
export { CaissonError, CommandFailed } from './errors.js'
export { Files, Watch } from './files.js'
export * from './generated/codes.js'
export { Images, type BuildOptions, type FromHostOptions, type PruneOptions, type PullOptions } from './images.js'
export { Policy } from './policy.js'
export { Process } from './process.js'
export type { EventOptions } from './resume.js'
export { Sandbox } from './sandbox.js'
export { Secrets } from './secrets.js'
export { Snapshots } from './snapshots.js'
export { Templates, type TemplateBuildOptions } from './templates.js'
export type { InputOptions, Inputs, MountOptions, Rlimit, Size, Time } from './forms.js'
export type { ExecOptions, ListOptions, NestedOptions, SandboxOptions, UpdateOptions } from './generated/options.js'
export type * from './generated/values.js'
export type { AloneOptions, Command, CreateOptions, Data, LogsOptions, OutputOptions, RunOptions, StartOptions } from './spec.js'
export type * from './types.js'
export { Volumes } from './volumes.js'
