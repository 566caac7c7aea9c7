// One sandbox: what it uses, its commands with their output, and what is done to it.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { call, sandboxPath, terminal } from './api.js';
import { refreshSoon, state } from './store.js';
import { age, bytes, count, cpus, moment, percent, plural, rate, visible } from './format.js';
import { Ask, Chart, Idle, Pill, tell } from './parts.js';
import { Activity, Alerts, Refusals } from './feed.js';
import { Commands } from './commands.js';
import { Usage } from './usage.js';
import { Shell } from './terminal.js';

const live = new Set(['running', 'paused']);

/** empty is a history without samples. */
const empty = { times: [], cpu: [], memory: [], pids: [], sent: [], received: [] };

function columnsOf(samples) {
  const c = structuredClone(empty);
  let before = NaN;
  for (const s of samples) {
    const at = Date.parse(s.time) / 1000;
    const took = at - before > 0 ? at - before : 1;
    add(c, { at, cpu: s.cpu_percent, memory: Number(s.memory_bytes), pids: Number(s.pids), sent: Number(s.sent_bytes) / took, received: Number(s.received_bytes) / took });
    before = at;
  }
  return c;
}

function add(c, { at, cpu, memory, pids, sent, received }) {
  c.times.push(at); c.cpu.push(cpu); c.memory.push(memory); c.pids.push(pids); c.sent.push(sent); c.received.push(received);
}

/** useHistory is the use of a sandbox over time: what the daemon kept, and each second one more. */
function useHistory(id) {
  const [history, setHistory] = useState({ ...empty, limits: {} });
  const last = useRef(null);
  useEffect(() => {
    call('GET', sandboxPath(id, 'history')).then((h) => setHistory({ ...columnsOf(h.samples), limits: h }), (failure) => { if (state.sandboxes.has(id)) tell(failure); });
  }, [id]);
  const use = state.stats.get(id);
  useEffect(() => {
    if (!use || !live.has(use.state)) return;
    const now = { at: Date.now() / 1000, cpu: use.cpu_percent, memory: Number(use.memory_bytes), pids: Number(use.pids), sent: Number(use.sent_bytes), received: Number(use.received_bytes) };
    const before = last.current;
    last.current = now;
    if (!before) return;
    const took = Math.max(0.1, now.at - before.at);
    setHistory((h) => {
      if (h.times.length > 0 && now.at <= h.times[h.times.length - 1]) return h;
      const next = { ...h };
      for (const name of Object.keys(empty)) next[name] = h[name].slice();
      add(next, { ...now, sent: Math.max(0, now.sent - before.sent) / took, received: Math.max(0, now.received - before.received) / took });
      return next;
    });
  }, [use]);
  return history;
}

const ranges = { '5 min': 300, '1 h': 3600, All: Infinity };

function Charts({ id }) {
  const h = useHistory(id);
  const [range, setRange] = useState('5 min');
  const from = (h.times[h.times.length - 1] ?? 0) - ranges[range];
  const first = Math.max(0, h.times.findIndex((t) => t >= from));
  const cut = (list) => list.slice(first);
  const times = cut(h.times);
  const { memory_limit_bytes: memory = 0, milli_cpu: milli = 0, pids_limit: pids = 0 } = h.limits;
  return html`<section aria-label="Use over time">
    <div class="bartop"><h2>Use</h2><div class="tabs" role="group" aria-label="Time">${Object.keys(ranges).map((r) => html`<button aria-pressed=${range === r} onClick=${() => setRange(r)}>${r}</button>`)}</div></div>
    ${times.length === 0 ? html`<p class="empty muted">The daemon keeps no samples of this sandbox.</p>` : html`<div class="charts">
      <${Chart} title="CPU" limit=${milli > 0 && cpus(Number(milli))} times=${times} series=${[{ label: 'CPU', values: cut(h.cpu) }]} format=${percent} />
      <${Chart} title="Memory" limit=${memory > 0 && bytes(Number(memory))} times=${times} series=${[{ label: 'Memory', values: cut(h.memory), colour: 2 }]} format=${bytes} bytes />
      <${Chart} title="Processes and threads" limit=${pids > 0 && count(Number(pids))} times=${times} series=${[{ label: 'Processes and threads', values: cut(h.pids), colour: 3 }]} format=${count} top=${4} />
      <${Chart} title="Network" times=${times} series=${[{ label: 'in', values: cut(h.received), colour: 1 }, { label: 'out', values: cut(h.sent), colour: 4 }]} format=${rate} top=${1024} bytes />
    </div>`}
  </section>`;
}

function Facts({ s }) {
  const list = [
    ['ID', html`<span class="mono">${s.id}</span>`], ['Image', s.image], ['Profile', s.profile], ['Network', s.network],
    ['Session', s.session], ['Task', s.task], ['Labels', Object.entries(s.labels ?? {}).map(([k, v]) => visible(`${k}=${v}`)).join(', ')],
    ['Workspace', s.workspace?.dir], ['Ports', (s.ports ?? []).map((p) => `${p.address}:${p.host_port} → ${p.port}`).join(', ')],
    ['Owner', s.owner_uid !== undefined && `uid ${s.owner_uid}`], ['Created', s.created_at && `${moment(s.created_at)} (${age(Date.parse(s.created_at))} ago)`],
    ['Ended', s.exited_at && moment(s.exited_at)], ['Why', s.reason ?? s.result?.reason], ['Ends', s.expires_at && moment(s.expires_at)],
    ['Warnings', (s.warnings ?? []).join('; ')],
  ];
  return html`<dl class="facts">${list.filter(([, v]) => v).map(([k, v]) => html`<div><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>`;
}

function Actions({ s, onTerminal }) {
  const [busy, setBusy] = useState('');
  const [ask, setAsk] = useState(null);
  const act = async (verb, method, path, query, done) => {
    setBusy(verb);
    try {
      await call(method, path, { query });
      tell(done);
      refreshSoon();
      return true;
    } catch (failure) {
      tell(failure);
      return false;
    } finally {
      setBusy('');
    }
  };
  const name = s.name || s.id;
  const running = live.has(s.state);
  const to = (verb, done) => () => act(verb, 'POST', sandboxPath(s.id, verb), {}, `${name} ${done}`);
  const remove = async () => {
    if (await act('remove', 'DELETE', sandboxPath(s.id), running ? { force: true } : {}, `${name} was removed`)) location.hash = '#/';
  };
  const button = (verb, title, onClick, danger) => html`<button class=${danger ? 'danger' : ''} disabled=${busy !== ''} aria-busy=${busy === verb} onClick=${onClick}>${title}</button>`;
  return html`<div class="actions">
    ${terminal && (s.state === 'running' || s.paused_by === 'idle') && button('terminal', 'Terminal', onTerminal)}
    ${s.state === 'running' && button('pause', 'Pause', to('pause', 'is paused'))}
    ${s.state === 'paused' && button('resume', 'Resume', to('resume', 'runs again'))}
    ${running && button('stop', 'Stop', () => setAsk({ question: `Stop ${name}?`, verb: 'Stop', detail: 'Its commands get TERM, then KILL. Their output stays until the sandbox is removed.', yes: to('stop', 'was stopped') }))}
    ${s.state !== 'removed' && button('remove', 'Remove', () => setAsk({ question: `Remove ${name}?`, verb: 'Remove', detail: `${running ? `It is ${s.state}, with ${plural(s.execs ?? 0, 'command')}. ` : ''}Its files and its output are removed with it.`, yes: remove }), true)}
    ${ask && html`<${Ask} ...${ask} onYes=${ask.yes} onNo=${() => setAsk(null)} />`}
  </div>`;
}

export function Sandbox({ id }) {
  const [shell, setShell] = useState(false);
  const s = state.sandboxes.get(id) ?? state.removed.get(id);
  const mine = (list) => list.filter((e) => e.data.sandbox_id === id);
  if (!s) {
    return html`<main><h1 class="unseen">Sandbox</h1><p><a href="#/">← Sandboxes</a></p><p class="empty muted">${state.loaded ? 'There is no such sandbox any more.' : 'Loading…'}</p>
      ${state.loaded && html`<${Activity} list=${mine(state.events)} />`}</main>`;
  }
  return html`<main>
    <p class="crumbs"><a href="#/">← Sandboxes</a></p>
    <div class="title"><h1>${s.name || s.id}</h1><${Pill} state=${s.state} /><${Idle} s=${s} /><${Actions} s=${s} onTerminal=${() => setShell(true)} /></div>
    <${Facts} s=${s} />
    ${shell && html`<${Shell} id=${id} onClose=${() => setShell(false)} />`}
    <${Charts} id=${id} />
    <div class="split">
      <div><${Commands} sandbox=${s} /></div>
      <aside>
        <${Refusals} list=${[...state.refusals.values()].reverse().filter((r) => r.sandbox === id)} />
        <${Alerts} list=${mine(state.alerts)} />
        <${Activity} list=${mine(state.events)} />
        <${Usage} sandbox=${id} />
      </aside>
    </div>
  </main>`;
}
