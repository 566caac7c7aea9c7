/**
 * What in JSON stands for something else, and what it becomes.
 */

declare const kind: unique symbol
type Branded<Name extends string> = string & { readonly [kind]: Name }

/** A 64-bit number: a number, and from 2^53 on a string. */
export type Int64 = (number | string) & { readonly [kind]: 'int64' }
/** A 64-bit number whose absence differs from 0. */
export type OptionalInt64 = Branded<'int64?'>
/** A number whose absence differs from 0. */
export type OptionalNumber = number & { readonly [kind]: 'number?' }
/** RFC 3339. */
export type Timestamp = Branded<'timestamp'>
/** Seconds, such as "1.5s". */
export type Duration = Branded<'duration'>
/** Base64. */
export type Bytes = Branded<'bytes'>

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : Name

type Value<T> = T extends Int64 | OptionalInt64 | OptionalNumber | Duration
  ? number
  : T extends Timestamp
    ? Date
    : T extends Bytes
      ? Uint8Array
      : T extends readonly (infer Item)[]
        ? Value<Item>[]
        : T extends object
          ? string extends keyof T
            ? { [Key in keyof T]: Value<T[Key]> }
            : Decoded<T>
          : T

// A message that is not required, a time and an optional number may be absent. All else has a zero.
type MayBeAbsent<T> = T extends Timestamp | OptionalInt64 | OptionalNumber
  ? true
  : T extends string | readonly unknown[]
    ? false
    : T extends object
      ? string extends keyof T
        ? false
        : true
      : false

type AbsentKeys<T> = { [Key in keyof T]-?: {} extends Pick<T, Key> ? (MayBeAbsent<NonNullable<T[Key]>> extends true ? Key : never) : never }[keyof T]

/**
 * A message as this package returns it: names in camelCase, 64-bit numbers and durations
 * (in seconds) as numbers, times as Date, bytes as Uint8Array.
 */
export type Decoded<T> = {
  [Key in keyof T as Key extends AbsentKeys<T> ? never : Camel<Key & string>]-?: Value<NonNullable<T[Key]>>
} & {
  [Key in keyof T as Key extends AbsentKeys<T> ? Camel<Key & string> : never]?: Value<NonNullable<T[Key]>>
}
