/**
 * Requests and answers as JSON, without any input or output.
 */
import type { Endpoint } from './endpoint.js'
import { CaissonError } from './errors.js'
import { byCode } from './generated/codes.js'
import { fields } from './generated/fields.js'
import { inTypeScript } from './remedies.js'
import type { Decoded } from './scalars.js'
import type { Schemas } from './types.js'

type Json = Record<string, unknown>

/** Returns a message with the names and types of this package, and a zero for what is absent. */
export function decode<Name extends keyof typeof fields>(name: Name, message: unknown): Decoded<Schemas[Name]> {
  return decodeMessage(name, (message ?? {}) as Json) as Decoded<Schemas[Name]>
}

function decodeMessage(name: string, message: Json): Json {
  const decoded: Json = {}
  for (const [field, kind] of Object.entries<string>((fields as Record<string, object>)[name] as Record<string, string>)) {
    const value = decodeValue(kind, message[field])
    if (value !== undefined) decoded[camel(field)] = worded.includes(field) ? inWords(value) : value
  }
  return decoded
}

// Fields that say what to do.
const worded = ['remedy', 'warnings']

function inWords(value: unknown): unknown {
  return Array.isArray(value) ? value.map(inWords) : inTypeScript(value as string)
}

function decodeValue(kind: string, value: unknown): unknown {
  if (kind.endsWith('[]')) {
    return ((value ?? []) as unknown[]).map((item) => decodeValue(kind.slice(0, -2), item))
  }
  if (kind.endsWith('{}')) {
    const pairs = Object.entries((value ?? {}) as Json)
    return Object.fromEntries(pairs.map(([key, item]) => [key, decodeValue(kind.slice(0, -2), item)]))
  }
  if (kind.endsWith('!')) return decodeMessage(kind.slice(0, -1), (value ?? {}) as Json)
  const scalar = scalars[kind]
  if (scalar !== undefined) return scalar(value ?? undefined)
  return value === undefined || value === null ? undefined : decodeMessage(kind, value as Json)
}

const scalars: Record<string, (value: unknown) => unknown> = {
  string: (value) => value ?? '',
  number: (value) => value ?? 0,
  boolean: (value) => value ?? false,
  Int64: (value) => Number(value ?? 0),
  OptionalInt64: (value) => (value === undefined ? undefined : Number(value)),
  OptionalNumber: (value) => value,
  Duration: (value) => (value === undefined ? 0 : Number((value as string).slice(0, -1))),
  Timestamp: (value) => (value === undefined ? undefined : new Date(value as string)),
  Bytes: (value) => (value === undefined ? new Uint8Array() : Buffer.from(value as string, 'base64')),
}

function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())
}

/** Reads a JSON object of the daemon. */
export function parse(text: string): Json {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw broken('the daemon sent text that is not JSON', error)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw broken('the daemon sent JSON that is no object')
  }
  return value as Json
}

/** Makes the error of an answer, or of the last line of a stream. */
export function errorOf(message: Json, status = 0): CaissonError {
  const error = (message.error ?? {}) as Schemas['Error']['error']
  if (typeof error.code !== 'string') return broken(`the daemon answered ${status} without a code`)
  return new (byCode[error.code] ?? CaissonError)({ ...error, remedy: inTypeScript(error.remedy ?? ''), requestId: error.request_id ?? '', status })
}

/** Makes the error of a connection that broke. */
export function broken(message: string, cause?: unknown): CaissonError {
  return local('SBX-803', 'engine_failure', message, 'check that the daemon runs', cause)
}

/** Makes the error of a socket that cannot be reached. */
export function daemonOff({ name: socket, secured }: Endpoint, cause: NodeJS.ErrnoException): CaissonError {
  if (secured) {
    const remedy = 'check the name and the port, that the daemon there runs with listen.tcp, and what lies between'
    return local('SBX-802', 'host', `the daemon cannot be reached on ${socket}`, remedy, cause)
  }
  if (socket.startsWith('ssh://')) {
    return local('SBX-802', 'host', `the daemon cannot be reached on ${socket}`, 'install ssh, and try it by hand: ssh HOST caisson version', cause)
  }
  const [message, remedy] =
    cause.code === 'EACCES' || cause.code === 'EPERM'
      ? [`this user may not use ${socket}`, "run as root, or as a member of the socket's group (ls -l shows it)"]
      : [
          `the daemon cannot be reached on ${socket}`,
          'start it as root: caissond; or name the socket of a running one: new Client({ socket }) or CAISSON_SOCKET',
        ]
  return local('SBX-802', 'host', message, remedy, cause)
}

/** Makes the error of a connection that TLS refused. */
export function untrusted(cause: unknown): CaissonError {
  const remedy = "check the name and port of host, the certificates that are trusted (ca), and the client's own (cert, certKey)"
  return local('SBX-814', 'host', 'the TLS connection cannot be trusted, or is refused', remedy, cause, false)
}

/** Makes the error of options that cannot be used. */
export function usage(message: string): CaissonError {
  return local('SBX-801', 'invalid_input', message, 'give a host such as tcp://build.example.com:7443, with a key or a certificate', undefined, false)
}

function local(code: string, kind: string, message: string, remedy: string, cause?: unknown, retryable = true): CaissonError {
  const text = cause instanceof Error ? cause.message : ''
  return new (byCode[code] ?? CaissonError)({ code, class: kind, message, remedy, cause: text, retryable })
}

/** Values of a query. Absent ones are left out, a list repeats its name, a map takes KEY=VALUE. */
export type Query = Record<string, string | number | boolean | readonly string[] | Readonly<Record<string, string>> | undefined>

/** Returns a path with its query. */
export function target(path: string, query: Query = {}): string {
  const pairs = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === false) continue
    if (typeof value !== 'object') {
      pairs.append(name, String(value))
      continue
    }
    if (Array.isArray(value)) for (const item of value) pairs.append(name, item)
    else for (const [key, item] of Object.entries(value)) pairs.append(name, `${key}=${item}`)
  }
  const text = pairs.toString()
  return text ? `${path}?${text}` : path
}

/** Returns the path of a sandbox, or of something below it. */
export function sandboxPath(ref: string, ...rest: string[]): string {
  if (!ref) throw new TypeError('the name of the sandbox is empty')
  return ['/v1/sandboxes', ...[ref, ...rest].map(encodeURIComponent)].join('/')
}

/** Returns the path of a file call. */
export function filePath(ref: string, call: string, path: string): string {
  if (!path.startsWith('/')) {
    throw new TypeError(`${JSON.stringify(path)} is not absolute: paths inside a sandbox begin with /`)
  }
  return `${sandboxPath(ref, call)}/${path.slice(1).split('/').map(encodeURIComponent).join('/')}`
}
