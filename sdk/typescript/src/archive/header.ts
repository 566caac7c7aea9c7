/**
 * The headers of a tar: ustar, with pax records for what does not fit.
 */
import { ArchiveError } from '../generated/codes.js'

export const blockSize = 512
const maxOctal = 0o77777777777

/** One entry of an archive. */
export interface Entry {
  type: 'file' | 'directory' | 'symlink'
  name: string
  mode: number
  size: number
  /** Seconds. */
  mtime: number
  /** The target of a symlink. */
  link: string
}

const letters = { file: '0', directory: '5', symlink: '2' } as const

/** Makes the error of an archive that is not taken. */
export function refuse(message: string): ArchiveError {
  return new ArchiveError({ code: 'SBX-218', class: 'invalid_input', message })
}

/** Returns the zeros after content of a size. */
export function padding(size: number): Buffer {
  return Buffer.alloc((blockSize - (size % blockSize)) % blockSize)
}

/** Writes the header of an entry. */
export function writeHeader(entry: Entry): Buffer {
  const name = entry.type === 'directory' ? `${entry.name}/` : entry.name
  const records = Object.entries({
    path: fits(name) ? '' : name,
    linkpath: fits(entry.link) ? '' : entry.link,
    size: entry.size > maxOctal ? String(entry.size) : '',
  }).filter(([, value]) => value !== '')
  const plain = block(letters[entry.type], fits(name) ? name : 'pax', entry, fits(entry.link) ? entry.link : '')
  if (records.length === 0) return plain
  const pax = Buffer.concat(records.map(([key, value]) => paxRecord(key, value)))
  const head = block('x', 'pax', { ...entry, size: pax.length }, '')
  return Buffer.concat([head, pax, padding(pax.length), plain])
}

function fits(text: string): boolean {
  return text.length <= 100 && /^[\x20-\x7e]*$/.test(text)
}

// A record states its own length, with the digits of it.
function paxRecord(key: string, value: string): Buffer {
  const rest = ` ${key}=${value}\n`
  const length = Buffer.byteLength(rest)
  let total = length + String(length).length
  if (length + String(total).length !== total) total = length + String(total).length
  return Buffer.from(`${total}${rest}`)
}

function block(type: string, name: string, entry: Entry, link: string): Buffer {
  const header = Buffer.alloc(blockSize)
  const octal = (value: number, at: number, digits: number) =>
    header.write(value.toString(8).padStart(digits, '0').slice(-digits), at, 'latin1')
  header.write(name, 0, 'latin1')
  octal(entry.mode & 0o777, 100, 7)
  octal(0, 108, 7)
  octal(0, 116, 7)
  octal(entry.size > maxOctal ? 0 : entry.size, 124, 11)
  octal(Math.min(Math.max(Math.floor(entry.mtime), 0), maxOctal), 136, 11)
  header.write(type, 156, 'latin1')
  header.write(link, 157, 'latin1')
  header.write('ustar\x0000', 257, 'latin1')
  octal(checksum(header), 148, 6)
  header.write('\0 ', 154, 'latin1')
  return header
}

// The bytes of a header, with spaces for the checksum itself.
function checksum(header: Buffer): number {
  let sum = 8 * 0x20
  for (let at = 0; at < blockSize; at++) if (at < 148 || at >= 156) sum += header[at] as number
  return sum
}

/** What a header says before pax records are put over it. */
export interface Header extends Omit<Entry, 'type'> {
  letter: string
}

/** Reads a header. Undefined: the block is empty, which is the end. */
export function readHeader(header: Buffer): Header | undefined {
  if (header.every((byte) => byte === 0)) return undefined
  if (octalOf(header, 148, 8) !== checksum(header)) throw refuse('the archive is malformed: a checksum is wrong')
  const prefix = header.toString('latin1', 257, 262) === 'ustar' ? textOf(header, 345, 155) : ''
  const name = textOf(header, 0, 100)
  return {
    letter: header.toString('latin1', 156, 157),
    name: prefix ? `${prefix}/${name}` : name,
    mode: octalOf(header, 100, 8) & 0o777,
    size: octalOf(header, 124, 12),
    mtime: octalOf(header, 136, 12),
    link: textOf(header, 157, 100),
  }
}

function textOf(header: Buffer, at: number, length: number): string {
  const field = header.subarray(at, at + length)
  const end = field.indexOf(0)
  return field.toString('utf8', 0, end < 0 ? length : end)
}

function octalOf(header: Buffer, at: number, length: number): number {
  const text = header.toString('latin1', at, at + length).replace(/[\0 ]+$/, '').trimStart()
  if (!/^[0-7]*$/.test(text)) throw refuse('the archive is malformed: a number is not octal')
  return text === '' ? 0 : Number.parseInt(text, 8)
}

/** Reads pax records. */
export function readPax(data: Buffer): Map<string, string> {
  const records = new Map<string, string>()
  for (let at = 0; at < data.length; ) {
    const space = data.indexOf(0x20, at)
    const digits = data.toString('latin1', at, space)
    const end = at + Number(digits)
    if (space < 0 || !/^[1-9]\d{0,7}$/.test(digits) || end > data.length || data[end - 1] !== 0x0a || end <= space + 1) {
      throw refuse('the archive is malformed: a pax record has a wrong length')
    }
    const record = data.toString('utf8', space + 1, end - 1)
    const equals = record.indexOf('=')
    if (equals <= 0) throw refuse('the archive is malformed: a pax record has no key')
    records.set(record.slice(0, equals), record.slice(equals + 1))
    at = end
  }
  return records
}
