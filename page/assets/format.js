// How numbers and times are written.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(n) {
  if (n === undefined || n === null || Number.isNaN(n)) return '–';
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1024; i++; }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const rate = (n) => `${bytes(n)}/s`;
export const percent = (n) => (n >= 100 ? `${Math.round(n)} %` : `${n.toFixed(1)} %`);
export const cpus = (milli) => `${(milli / 1000).toFixed(milli % 1000 === 0 ? 0 : 1)} CPU`;
export const count = (n) => String(Math.round(n));
export const plural = (n, one) => `${n} ${one}${n === 1 ? '' : 's'}`;

/** span writes milliseconds with the largest unit that fits. */
export function span(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** age is how long ago a time was, in whole units. */
export function age(time, now = Date.now()) {
  const s = Math.max(0, (now - time) / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export const clock = (time) => new Date(time).toLocaleTimeString('sv');
export const moment = (time) => `${new Date(time).toLocaleDateString('sv')} ${clock(time)}`; // 2026-01-31 …

/** title is the name of a sandbox; the beginning of the ID of one without a name. */
export const title = (name, id = '') => (name && name !== id ? name : id.slice(0, 12));

// Marks of writing direction would show a text in another order than it has.
const direction = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
export const visible = (text) => text.replace(direction, '\ufffd');

/** command writes arguments as a shell would take them. */
export const command = (args = []) => args.map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", "'\\''")}'`)).map(visible).join(' ');

// Of a terminal's language only text and line ends are shown. A carriage return begins the
// line again, as progress bars do.
const controls = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
export const plain = (text) => visible(text).replace(controls, '').replaceAll('\r\n', '\n').replace(/[^\n]*\r(?=[^\n])/g, '').replaceAll('\r', '');
