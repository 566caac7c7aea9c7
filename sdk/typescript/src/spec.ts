/**
 * The options of create, run and start, and the requests that they make.
 */
import type { Client } from './client.js'
import { request, size, type Size } from './forms.js'
import * as made from './generated/options.js'

/** Text is a script for the shell, a list is the arguments. */
export type Command = string | readonly string[]
/** Bytes of an input or a file. */
export type Data = string | Uint8Array | Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>

/** How a sandbox is made. */
export interface CreateOptions extends made.CreateOptions {
  /** By default a client of `$CAISSON_SOCKET`. */
  client?: Client
  signal?: AbortSignal
}

/** How a command in the background is started. */
export interface StartOptions extends made.StartOptions {
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
  outputLimit?: Size
  /** Its abort makes the call throw. */
  signal?: AbortSignal
}

/** What is done with the input and the output of a command that is run to its end. */
export interface ForegroundOptions extends OutputOptions {
  /** All of the command's input. */
  input?: Data
}

/** How a command is run to its end. If the call fails or is aborted, the command is killed. */
export interface RunOptions extends made.ExecOptions, ForegroundOptions {
  outputLimit?: Size
}

/** How a command is run in a sandbox of its own. */
export interface AloneOptions extends made.AloneOptions, ForegroundOptions {
  outputLimit?: Size
}

const foreground = ['onStdout', 'onStderr', 'onStdoutData', 'onStderrData', 'check', 'signal', 'input']

/** Makes a CreateRequest without a key. */
export function createRequest(options: CreateOptions): Record<string, unknown> {
  return request(made.createTable, options, ['client', 'signal'])
}

/** Makes the ExecSpec of a command that is run to its end. */
export function runSpec(command: Command, options: RunOptions): object {
  return completed(request(made.execTable, options, foreground), command, options.input !== undefined)
}

/** Makes the ExecSpec of a command in the background. */
export function startSpec(command: Command, options: StartOptions): object {
  return completed(request(made.startTable, options, ['signal']), command, false)
}

/** Makes a RunSpec: a sandbox and its one command. */
export function aloneSpec(command: Command, options: AloneOptions, others: string[] = []): object {
  const spec = request(made.aloneTable, options, [...foreground, ...others])
  return { ...spec, exec: completed((spec.exec ?? {}) as Record<string, unknown>, command, options.input !== undefined) }
}

function completed(spec: Record<string, unknown>, command: Command, stdin: boolean): object {
  return {
    output_limit_bytes: size(made.outputLimit),
    ...spec,
    ...((stdin || spec.tty !== undefined) && { stdin: true }),
    ...(typeof command === 'string' ? { shell: command } : { args: [...command] }),
  }
}
