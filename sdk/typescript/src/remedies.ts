/**
 * Remedies in the words of this package. The daemon's name commands and flags.
 */
import { calls, flags, lists, others, switches } from './generated/options.js'

const flagForm = /(?<![\w-])--([a-z][a-z-]*)((?:[ =])("[^"]*"|[^\s;()]*[^\s;(),.:]))?/g
const place = /^[A-Z][A-Z_]*$/ // a word that stands for a value
const value = /^(".*"|.*[.:*/\d].*|allow|open|none|bridge|base|rw)$/

/** Returns a remedy with calls in place of commands and options in place of flags. */
export function inTypeScript(remedy: string): string {
  for (const [command, call] of calls) remedy = remedy.replace(command, call)
  return remedy
    .replace(flagForm, option)
    .replace(/\0 (?=\w+: )/g, ', ')
    .replaceAll('\0', '')
}

function option(all: string, flag: string, after = '', word = ''): string {
  const name = flags[flag] ?? flag.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())
  if (switches.includes(name)) return `${name}: true${after}`
  if (!lists.includes(name) && !others.includes(name) && flags[flag] === undefined) return all // of another program
  if (!place.test(word)) {
    if (!value.test(word)) return name + after
    word = word.startsWith('"') ? `'${word.slice(1, -1)}'` : `'${word}'`
  }
  return lists.includes(name) ? `${name}: [${word}]\0` : `${name}: ${word}\0`
}
