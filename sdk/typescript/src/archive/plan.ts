/**
 * What an archive may write, decided from its entries alone.
 */
import { refuse, type Entry } from './header.js'

/** Where an entry goes below the target directory. No parts: it is the directory itself. */
export function place(entry: Entry): string[] {
  const parts = entry.name.split('/').filter((part) => part !== '' && part !== '.')
  if (entry.name.startsWith('/') || parts.includes('..') || entry.name.includes('\0')) {
    throw refuse(`the archive holds ${JSON.stringify(entry.name)}, which leaves it`)
  }
  return parts
}

/**
 * Whether a symlink, so many real directories below the target, stays in it. It may climb
 * only at its start, where each step is a real directory. Further on, ".." would be applied
 * to what other symlinks lead to.
 */
export function staysIn(link: string, depth: number): boolean {
  if (link === '' || link.startsWith('/') || link.includes('\0')) return false
  let climbing = true
  for (const part of link.split('/')) {
    if (part !== '..') climbing &&= part === '.' || part === ''
    else if (!climbing || depth === 0) return false
    else depth--
  }
  return true
}

/** Takes the name of the copied directory away, so that its content goes into the target. */
export class Base {
  private base: string | undefined

  /** Returns the parts below the target, or undefined for the copied directory itself. */
  strip(parts: string[], type: Entry['type']): string[] | undefined {
    if (this.base === undefined) {
      if (parts.length > 1 || type === 'symlink') throw refuse('the archive does not begin with what was copied')
      if (type === 'file' && parts.length === 0) throw refuse('the archive holds a file without a name')
      this.base = type === 'directory' ? (parts[0] ?? '') : ''
      return type === 'directory' ? undefined : parts
    }
    if (this.base !== '' && parts.shift() !== this.base) throw refuse('the archive holds more than what was copied')
    if (parts.length === 0) throw refuse('the archive holds what was copied twice')
    return parts
  }
}
