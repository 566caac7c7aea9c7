// What the page knows of the host: kept current by one stream of events, and by the use of
// all sandboxes each second. A page that nobody sees asks for nothing.

import { call, dropToken, hasToken, lines, listAll, sleep } from './api.js';

const points = 60; // of the small graphs, one each second
const kept = 300; // events
const replay = '30m';

const types = ['sandbox.*', 'exec.*', 'limit.hit', 'alert.raised', 'network.tried', 'engine.*', 'daemon.*', 'call.refused', 'pool.failed', 'audit.*'];

export const state = {
  locked: !hasToken(),
  link: 'connecting', // "live", "lost"
  loaded: false,
  failure: null, // why the link is lost
  ready: null, // the answer to a ping
  version: null,
  sandboxes: new Map(), // that the daemon has, by ID
  removed: new Map(), // that it had
  stats: new Map(),
  series: new Map(), // by ID: {cpu, memory}
  fleet: { cpu: [], memory: [] },
  events: [], // newest first
  alerts: [],
  refusals: new Map(), // by sandbox and destination
  ticks: 0,
};

const listeners = new Set();
let due = false;

/** subscribe has f called after changes, at most once a frame. */
export function subscribe(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

export function changed() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; for (const f of listeners) f(); });
}

const push = (list, value, most) => { list.push(value); if (list.length > most) list.shift(); };
const unshift = (list, value, most) => { list.unshift(value); if (list.length > most) list.pop(); };

let stale = true; // the list of sandboxes
let past = false; // what is gone, of which a daemon kept the use, is known
let listed = 0; // when it was asked for

async function refreshList(signal) {
  stale = false;
  listed = Date.now();
  const sandboxes = await listAll('/v1/sandboxes', 'sandboxes', { signal });
  state.sandboxes = new Map(sandboxes.map((s) => [s.id, s]));
  if (!past) await rememberPast(signal);
  for (const id of state.sandboxes.keys()) state.removed.delete(id);
  for (const id of state.series.keys()) if (!state.sandboxes.has(id)) state.series.delete(id);
  state.loaded = true;
}

/** rememberPast adds what was gone before the events begin, such as before a restart of the daemon. */
async function rememberPast(signal) {
  const sandboxes = await listAll('/v1/sandboxes', 'sandboxes', { query: { states: 'removed' }, signal });
  past = true;
  const told = [...state.removed];
  state.removed = new Map([...sandboxes.slice(-kept).map((s) => [s.id, s]), ...told]);
}

async function refreshStats(signal) {
  const answers = lines('/v1/stats', { query: { no_stream: true }, signal });
  const { value } = await answers.next();
  await answers.return();
  state.stats = new Map(value.sandboxes.map((s) => [s.sandbox_id, s]));
  const total = { cpu: 0, memory: 0 };
  for (const [id, s] of state.stats) {
    if (!state.sandboxes.has(id)) stale = true;
    if (!state.series.has(id)) state.series.set(id, { cpu: [], memory: [] });
    const series = state.series.get(id);
    push(series.cpu, s.cpu_percent, points);
    push(series.memory, Number(s.memory_bytes), points);
    total.cpu += s.cpu_percent;
    total.memory += Number(s.memory_bytes);
  }
  push(state.fleet.cpu, total.cpu, points);
  push(state.fleet.memory, total.memory, points);
  state.ticks++;
}

/** poll keeps use and list current. */
async function poll(signal) {
  while (!signal.aborted) {
    const begun = Date.now();
    try {
      if (stale || begun - listed > 15_000) await refreshList(signal);
      await refreshStats(signal);
      if (state.ticks % 15 === 1) state.ready = await call('GET', '/v1/ping', { signal });
      state.version ??= await call('GET', '/v1/version', { signal });
    } catch (failure) {
      if (signal.aborted) return;
      lost(failure);
    }
    changed();
    await sleep(Math.max(100, 900 - (Date.now() - begun)), signal);
  }
}

function lost(failure) {
  if (failure.status === 401) {
    dropToken();
    state.locked = true;
    stop();
  }
  state.link = 'lost';
  state.failure = failure;
  stale = true;
  past = false; // the next daemon may know of more
}

let cursor = null; // ID of the newest event that was seen

/** watch follows the events, and goes on where it was after a break. */
async function watch(signal) {
  while (!signal.aborted) {
    try {
      const query = { follow: true, since: cursor ?? replay, filter: types.map((t) => `type=${t}`) };
      state.link = 'live';
      stale = true;
      changed();
      for await (const event of lines('/v1/events', { query, signal })) {
        if (event.id) cursor = event.id;
        apply(event);
        changed();
      }
    } catch (failure) {
      if (signal.aborted) return;
      if (failure.code === 'SBX-806') cursor = null; // a new daemon
      lost(failure);
      changed();
    }
    await sleep(1000, signal);
  }
}

const outlines = new Set(['sandbox', 'exec']);

function apply(event) {
  const type = event.type.replace('run.caisson.', '');
  const data = event.data ?? {};
  const entry = { id: event.id, type, time: Date.parse(event.time), data };
  if (outlines.has(type.split('.')[0])) stale = true;
  switch (type) {
    case 'network.tried':
      if (data.verdict !== 'refused') return;
      refuse(entry);
      return; // they have a list of their own
    case 'alert.raised': case 'limit.hit': case 'engine.down': case 'audit.broken': case 'pool.failed':
      unshift(state.alerts, entry, kept);
      break;
    case 'sandbox.ended':
      ended.set(data.sandbox_id, entry);
      if (ended.size > kept) ended.delete(ended.keys().next().value);
      break;
    case 'sandbox.removed':
      remove(entry);
      break;
  }
  if (!data.pooled) unshift(state.events, entry, kept);
}

const ended = new Map(); // the events, by ID of the sandbox

function remove({ time, data }) {
  const before = state.sandboxes.get(data.sandbox_id);
  const end = ended.get(data.sandbox_id);
  state.sandboxes.delete(data.sandbox_id);
  if (data.pooled && !before) return;
  state.removed.set(data.sandbox_id, {
    id: data.sandbox_id, name: data.name || data.sandbox_id, state: 'removed', image: before?.image ?? end?.data.image ?? '', session: data.session ?? '', task: data.task ?? '',
    created_at: before?.created_at, exited_at: new Date(end?.time ?? time).toISOString(), reason: end?.data.reason ?? '', execs: 0, network: before?.network ?? '', labels: before?.labels ?? {},
  });
  if (state.removed.size > kept) state.removed.delete(state.removed.keys().next().value);
}

function refuse({ time, data }) {
  const host = data.host || data.address || '';
  const id = [data.sandbox_id, host, data.port ?? 0].join(' ');
  const before = state.refusals.get(id);
  state.refusals.delete(id); // and so the newest is last
  state.refusals.set(id, {
    key: id, sandbox: data.sandbox_id, name: data.name || data.sandbox_id, host, port: data.port ?? 0, kind: data.kind, code: data.code, rule: data.rule ?? '', reason: data.reason ?? '',
    time, count: (before?.count ?? 0) + 1 + Number(data.skipped ?? 0), needs: before?.needs,
  });
  if (state.refusals.size > kept) state.refusals.delete(state.refusals.keys().next().value);
}

/** learnNeeds asks which rule would allow a refused destination, once. */
export async function learnNeeds(refusal) {
  if (refusal.needs !== undefined || !refusal.host || !state.sandboxes.has(refusal.sandbox)) return;
  refusal.needs = null; // asked
  const host = refusal.host.includes(':') ? `[${refusal.host}]` : refusal.host;
  try {
    const { needs } = await call('POST', '/v1/policy/check', {
      body: { policy: { ref: refusal.sandbox }, target: refusal.port ? `${host}:${refusal.port}` : host },
    });
    refusal.needs = refusal.port ? needs : needs.replace(/:443$/, ''); // a lookup is for no port
  } catch {
    refusal.needs = ''; // its sandbox has gone
  }
  changed();
}

/** refreshSoon has the list asked for with the next second. */
export const refreshSoon = () => { stale = true; };

let running = null;

export function start() {
  if (running || state.locked || document.hidden) return;
  running = new AbortController();
  watch(running.signal);
  poll(running.signal);
}

export function stop() {
  running?.abort();
  running = null;
}

document.addEventListener('visibilitychange', () => (document.hidden ? stop() : start()));
