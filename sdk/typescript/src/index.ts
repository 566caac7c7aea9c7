/**
 * Run commands of AI agents in sandboxes of caisson.
 *
 * @packageDocumentation
 */
export { Client, type ClientOptions } from './client.js'
export { CaissonError, CommandFailed } from './errors.js'
export { Files, Watch } from './files.js'
export * from './generated/codes.js'
export { Images, type BuildOptions, type PullOptions } from './images.js'
export { Policy } from './policy.js'
export { Process } from './process.js'
export type { EventOptions } from './resume.js'
export { Sandbox } from './sandbox.js'
export type {
  Command,
  CreateOptions,
  Data,
  ExecOptions,
  LimitOptions,
  LogsOptions,
  NetworkOptions,
  OutputOptions,
  RunOptions,
  MountOptions,
  SandboxOptions,
  Size,
  StartOptions,
  Time,
  ListOptions,
  UpdateOptions,
} from './spec.js'
export type * from './types.js'
export { Volumes } from './volumes.js'
