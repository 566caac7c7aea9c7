/**
 * How the values of options are read, and the requests that they make.
 */
import { resolve } from 'node:path'
import { nestedTable, type NestedOptions, type Table } from './generated/options.js'
import type { MountType } from './generated/values.js'
import type { Duration, Int64 } from './scalars.js'

/** Bytes, or text such as "512M", in powers of 1024. */
export type Size = number | string
/** Seconds, or text such as "90s", "1.5s" or "1h30m". */
export type Time = number | string
/** A bound, or a soft and a hard one. "unlimited" is none. */
export type Rlimit = Bound | readonly [soft: Bound, hard: Bound]
type Bound = number | 'unlimited'
/** A private file for one command. `mode` is 0o400 by default. */
export interface InputOptions {
  /** A name in /dev/shm/caisson-input, or an absolute path on a tmpfs of the sandbox. */
  path: string
  data: string | Uint8Array
  mode?: number
}
/** Contents by path, or a list of files. */
export type Inputs = Readonly<Record<string, string | Uint8Array>> | readonly InputOptions[]

/** A mount of a sandbox. */
export interface MountOptions {
  type: MountType
  /** Of a bind: a directory of the host. Of a volume: its name. */
  source?: string
  /** Where it is mounted inside, absolute. */
  target: string
  /** Of a bind or volume. */
  readOnly?: boolean
  /** Of a tmpfs. By default that of each tmpfs. */
  size?: Size
  /** Of a volume, which stays as it is: writes go to the sandbox's disk. */
  cow?: boolean
}

type Json = Record<string, unknown>

/**
 * Makes a request of the options that are given. One that is neither in the table nor among
 * `others`, which the caller reads itself, is refused.
 */
export function request(table: Table, options: object, others: readonly string[] = []): Json {
  known([...Object.keys(table), ...others], options)
  const body: Json = {}
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || !Object.hasOwn(table, name)) continue
    const [path, form] = table[name]!
    const read = named(name, () => forms[form]!(value))
    if (read === undefined) continue
    const fields = path.split('.')
    const last = fields.pop()!
    let at = body
    for (const field of fields) at = (at[field] ??= {}) as Json
    at[last] = read
  }
  return body
}

/** Throws if there is an option that is not among the names. */
export function known(names: readonly string[], options: object): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && !names.includes(name)) {
      throw new TypeError(`there is no option ${JSON.stringify(name)}; there are: ${[...names].sort().join(', ')}`)
    }
  }
}

function named<T>(name: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw new TypeError(`${name}: ${(error as Error).message}`)
  }
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
  const match = typeof value === 'string' && sizeForm.exec(value.trim().toUpperCase())
  if (!match) throw new TypeError(`${quoted(value)} is no size: give bytes, or text such as "512M"`)
  return int64(Math.floor(Number(match[1]) * 1024 ** ' KMGT'.indexOf(match[2] || ' ')))
}

/** Writes a whole number. */
export function int64(value: number | undefined): Int64 | undefined {
  return value === undefined ? undefined : (count(value) as Int64)
}

function count(value: number): number {
  if (!Number.isSafeInteger(value)) throw new TypeError(`${quoted(value)} is no whole number`)
  return value
}

const timeForm = /^((\d+\.?\d*|\.\d+)(h|ms|m|s|us|µs|ns))+$/
const units: Record<string, number> = { h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6, µs: 1e-6, ns: 1e-9 }

/** Reads a duration in seconds. */
export function seconds(value: Time): number {
  let total = value as number
  if (typeof value === 'string') {
    total = timeForm.test(value) ? 0 : NaN
    for (const [, n, unit] of value.matchAll(/([\d.]+)([a-zµ]+)/g)) total += Number(n) * units[unit!]!
  }
  if (typeof total !== 'number' || !(total >= 0 && total < Infinity)) {
    throw new TypeError(`${quoted(value)} is no duration: give seconds, or text such as "90s", "1.5s" or "1h30m"`)
  }
  return total
}

/** Writes a duration. */
export function duration(value: Time | undefined): Duration | undefined {
  return value === undefined ? undefined : (`${seconds(value).toFixed(9).replace(/\.?0+$/, '')}s` as Duration)
}

/** Quotes a wrong value. */
function quoted(value: unknown): string {
  return typeof value === 'object' ? (JSON.stringify(value) ?? String(value)) : typeof value === 'string' ? JSON.stringify(value) : String(value)
}

function cpus(value: number): Int64 | undefined {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new TypeError(`${quoted(value)} is no number of CPUs`)
  return int64(Math.round(value * 1000))
}

function text(value: string): string {
  if (typeof value !== 'string') throw new TypeError(`${quoted(value)} is no text`)
  return value
}

function flag(value: boolean): boolean {
  if (typeof value !== 'boolean') throw new TypeError(`${quoted(value)} is neither true nor false`)
  return value
}

function list<In, Out>(each: (value: In) => Out): (value: readonly In[]) => Out[] {
  return (value) => {
    if (!Array.isArray(value)) throw new TypeError(`${quoted(value)} is no list`) // each letter of a text would be an element
    return value.map(each)
  }
}

function map<In, Out>(each: (value: In) => Out): (value: Readonly<Record<string, In>>) => Record<string, Out> {
  return (value) => Object.fromEntries(Object.entries(value).map(([key, item]) => [key, each(item)]))
}

function base64(value: string | Uint8Array): string {
  return Buffer.from(value as Uint8Array).toString('base64')
}

/** Makes a Workspace of the API of DIR[:PATH][:rw|ro|cow|clone]. */
export function workspace(value: string): Json {
  const [, dir, path, mode] = /^(.*?)(?::(\/.*?))?(?::(ro|rw|cow|clone))?$/s.exec(text(value))!
  return { dir: resolve(dir!), mode: mode ?? '', ...(path && { path }) }
}

function mount(value: MountOptions): Json {
  known(['type', 'source', 'target', 'readOnly', 'size', 'cow'], value)
  return present({
    type: value.type,
    source: value.source !== undefined && value.type === 'bind' ? resolve(value.source) : value.source,
    target: value.target,
    read_only: value.readOnly,
    size_bytes: size(value.size),
    cow: value.cow,
  })
}

function nested(value: boolean | NestedOptions): Json | undefined {
  if (typeof value === 'boolean') return value ? {} : undefined
  return request(nestedTable, value)
}

function inputs(value: Inputs): Json[] {
  const files: readonly InputOptions[] = Array.isArray(value)
    ? (value as readonly InputOptions[])
    : Object.entries(value as Record<string, string>).map(([path, data]) => ({ path, data }))
  return files.map(({ path, data, mode }) => present({ path, data: base64(data), mode }))
}

function rlimits(value: Readonly<Record<string, Rlimit>>): Json[] {
  const bound = (of: Bound) => (of === 'unlimited' ? '18446744073709551615' : count(of))
  return Object.entries(value).map(([name, of]) => {
    const [soft, hard] = typeof of === 'object' ? of : [of, of]
    return { name, soft: bound(soft), hard: bound(hard) }
  })
}

function terminal(value: boolean | { rows: number; cols: number }): Json | undefined {
  if (typeof value === 'boolean') return value ? { rows: 24, cols: 80 } : undefined
  return { rows: value.rows, cols: value.cols }
}

// The readers, by the names that generated/options.ts has for them.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
const forms: Readonly<Record<string, (value: any) => unknown>> = {
  text, flag, size, cpus, workspace, nested, inputs, rlimits, terminal,
  count: int64,
  time: duration,
  texts: list(text),
  counts: list(count),
  map: map(text),
  secrets: map(base64),
  rules: (value) => ({ rules: list(text)(value) }),
  mounts: list(mount),
}
