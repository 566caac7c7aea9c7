// All sandboxes, and what needs a person's eye.

import { html, useState } from './vendor/preact-htm.js';
import { state } from './store.js';
import { age, bytes, clock, percent, title } from './format.js';
import { Bar, Idle, Pill, Spark } from './parts.js';
import { Activity, Alerts, Refusals } from './feed.js';
import { Volumes } from './volumes.js';
import { Secrets, Usage } from './usage.js';

const gone = new Set(['exited', 'removing', 'removed']);

const columns = {
  name: { title: 'Sandbox', of: (s) => s.name },
  state: { title: 'State', of: (s) => s.state },
  execs: { title: 'Commands', of: (s) => -s.execs, number: true },
  cpu: { title: 'CPU', of: (s) => -(state.stats.get(s.id)?.cpu_percent ?? -1), number: true },
  memory: { title: 'Memory', of: (s) => -Number(state.stats.get(s.id)?.memory_bytes ?? -1), number: true },
  pids: { title: 'Processes', of: (s) => -Number(state.stats.get(s.id)?.processes ?? -1), number: true },
  age: { title: 'Age', of: (s) => -Date.parse(s.created_at ?? s.exited_at ?? 0), number: true },
};

function Tile({ label, value, of, spark, warn }) {
  return html`<div class="tile ${warn ? 'warn' : ''}"><span class="muted">${label}</span><b>${value}${of && html` <small class="muted">${of}</small>`}</b>${spark}</div>`;
}

function Tiles({ all }) {
  const number = (wanted) => all.filter((s) => s.state === wanted).length;
  const last = (list) => list[list.length - 1] ?? 0;
  const { cpu, memory } = state.fleet;
  const refused = [...state.refusals.values()].reduce((n, r) => n + r.count, 0);
  return html`<section class="tiles" aria-label="The host">
    <${Tile} label="Running" value=${number('running')} of=${number('paused') > 0 && `+ ${number('paused')} paused`} />
    <${Tile} label="Commands" value=${all.reduce((n, s) => n + (s.execs ?? 0), 0)} />
    <${Tile} label="CPU" value=${percent(last(cpu))} spark=${html`<${Spark} values=${cpu} label="CPU of the last minute" />`} />
    <${Tile} label="Memory" value=${bytes(last(memory))} spark=${html`<${Spark} values=${memory} label="Memory of the last minute" />`} />
    <${Tile} label="Refused" value=${refused} warn=${refused > 0} />
    <${Tile} label="Alerts" value=${state.alerts.length} warn=${state.alerts.length > 0} />
  </section>`;
}

function Row({ s }) {
  const use = gone.has(s.state) ? undefined : state.stats.get(s.id);
  const series = state.series.get(s.id);
  const flags = state.alerts.filter((a) => a.data.sandbox_id === s.id).length;
  const refused = [...state.refusals.values()].some((r) => r.sandbox === s.id);
  const when = s.exited_at && gone.has(s.state) ? s.exited_at : s.created_at;
  return html`<tr>
    <td class="name"><a class="row" href="#/sandboxes/${encodeURIComponent(s.id)}">${title(s.name, s.id)}</a>
      <span class="muted sub">${[s.session && `session ${s.session}`, s.task && `task ${s.task}`, s.image].filter(Boolean).join(' · ')}</span></td>
    <td><${Pill} state=${s.state} /><${Idle} s=${s} />${flags > 0 && html` <span class="mark" title="Alerts">${flags} alert${flags > 1 ? 's' : ''}</span>`}${refused && html` <span class="mark quiet" title="Some destinations were refused">refused</span>`}</td>
    <td class="n">${s.execs || html`<span class="muted">0</span>`}</td>
    <td class="n use">${use && html`<span>${percent(use.cpu_percent)}</span><${Spark} values=${series?.cpu} top=${100} label="CPU of the last minute" />`}</td>
    <td class="n use">${use && html`<span>${bytes(Number(use.memory_bytes))}</span><${Bar} value=${Number(use.memory_bytes)} of=${Number(use.memory_limit_bytes)} label="of ${bytes(Number(use.memory_limit_bytes))}" />`}</td>
    <td class="n">${use?.processes ?? ''}</td>
    <td class="n" title=${when && clock(when)}>${when ? age(Date.parse(when)) : ''}</td>
  </tr>`;
}

function chosen(all, shown, text, order) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (s) => {
    const hay = [s.id, s.name, s.session, s.task, s.image, s.state, s.profile, ...Object.entries(s.labels ?? {}).map((kv) => kv.join('='))].join(' ').toLowerCase();
    return words.every((w) => hay.includes(w));
  };
  const list = all.filter((s) => (shown === 'all' || gone.has(s.state) === (shown === 'ended')) && fits(s));
  const of = columns[order.by].of;
  const compare = (a, b) => { const x = of(a), y = of(b); return x < y ? -1 : x > y ? 1 : 0; };
  return list.sort((a, b) => (order.back ? compare(b, a) : compare(a, b)));
}

export function Overview() {
  const [shown, setShown] = useState('live');
  const [text, setText] = useState('');
  const [order, setOrder] = useState({ by: 'age', back: false });
  const all = [...state.sandboxes.values(), ...state.removed.values()];
  const list = chosen(all, shown, text, order);
  const ended = all.filter((s) => gone.has(s.state)).length;
  const tabs = { live: `Live ${all.length - ended}`, ended: `Ended ${ended}`, all: 'All' };
  const head = ([by, c]) => html`<th class=${c.number ? 'n' : ''} aria-sort=${order.by === by ? (order.back ? 'descending' : 'ascending') : 'none'}>
    <button class="sort" onClick=${() => setOrder({ by, back: order.by === by && !order.back })}>${c.title}</button></th>`;
  return html`<main>
    <h1 class="unseen">Sandboxes</h1>
    <${Tiles} all=${all} />
    <div class="split">
      <section class="panel" aria-label="Sandboxes">
        <div class="bartop"><div class="tabs" role="group" aria-label="Which sandboxes">${Object.entries(tabs).map(([key, title]) => html`<button aria-pressed=${shown === key} onClick=${() => setShown(key)}>${title}</button>`)}</div>
          <input class="filter" type="search" placeholder="Filter by name, session, image, label" aria-label="Filter" value=${text} onInput=${(e) => setText(e.target.value)} /></div>
        <div class="scroll"><table class="sandboxes"><thead><tr>${Object.entries(columns).map(head)}</tr></thead>
          <tbody>${list.map((s) => html`<${Row} key=${s.id} s=${s} />`)}</tbody></table></div>
        ${list.length === 0 && html`<p class="empty muted">${!state.loaded ? 'Loading…' : text ? 'No sandbox fits the filter.' : shown === 'ended' ? 'No sandbox has ended that the daemon knows of.' : html`No sandbox is live. <code>caisson create --name demo</code> makes one.`}</p>`}
      </section>
      <aside>
        <${Refusals} list=${[...state.refusals.values()].reverse()} named />
        <${Alerts} list=${state.alerts} named />
        <${Activity} list=${state.events} named />
        <${Volumes} />
        <${Usage} />
        <${Secrets} />
      </aside>
    </div>
  </main>`;
}
