// Lists of what happened: refusals, alerts, and all else.

import { html, useEffect } from './vendor/preact-htm.js';
import { learnNeeds, state } from './store.js';
import { age, bytes, clock, command, span, title } from './format.js';

const sandboxLink = (id, name) => id && html`<a href="#/sandboxes/${encodeURIComponent(id)}">${title(name, id)}</a>`;
const copy = (text) => navigator.clipboard?.writeText(text);

function Refusal({ r, named }) {
  useEffect(() => { learnNeeds(r); }, [r.key, state.sandboxes.has(r.sandbox)]);
  const host = r.host.includes(':') ? `[${r.host}]` : r.host;
  return html`<li>
    <div><b class="mono">${host || 'a connection'}${r.port ? `:${r.port}` : ''}</b>${r.count > 1 && html` <span class="muted">× ${r.count}</span>`}<span class="muted when">${age(r.time)}</span></div>
    <div class="muted">${named && html`${sandboxLink(r.sandbox, r.name)} · `}${r.reason || (r.rule ? `by the rule ${r.rule}` : r.host ? 'no rule allows it' : 'its network is "none"')} <span class="code">${r.code}</span></div>
    ${r.needs && html`<div class="needs">would be allowed by <button class="copy mono" title="Copy the rule" onClick=${() => copy(r.needs)}>${r.needs}</button></div>`}
    ${r.needs === '' && r.host && html`<div class="muted">no rule can allow it</div>`}
  </li>`;
}

export function Refusals({ list, named }) {
  return html`<section class="panel feed" aria-label="Refused"><h2>Refused <span class="muted">${list.length || ''}</span></h2>
    ${list.length === 0 ? html`<p class="empty muted">Nothing was refused.</p>` : html`<ul class="refusals">${list.slice(0, 40).map((r) => html`<${Refusal} key=${r.key} r=${r} named=${named} />`)}</ul>`}
  </section>`;
}

const alertText = {
  'alert.raised': (d) => `${d.limit ?? ''}: ${d.reason ?? 'a threshold was passed'}`,
  'limit.hit': (d) => `the limit of ${(d.limit ?? '').replaceAll('_', ' ')} was hit${d.reason ? `: ${d.reason}` : ''}`,
  'engine.down': (d) => `containerd ended: ${d.message ?? d.code ?? ''}`,
  'audit.broken': (d) => `the audit log was changed: ${d.message ?? ''}`,
  'pool.failed': (d) => `a ready sandbox could not be made ${d.code ?? ''}`,
};

export function Alerts({ list, named }) {
  return html`<section class="panel feed" aria-label="Alerts"><h2>Alerts <span class="muted">${list.length || ''}</span></h2>
    ${list.length === 0 ? html`<p class="empty muted">No alert, and no limit was hit.</p>` : html`<ul>${list.slice(0, 30).map((e) => html`<li key=${e.id}>
      <div><b>${alertText[e.type]?.(e.data) ?? e.type}</b><span class="muted when" title=${clock(e.time)}>${age(e.time)}</span></div>
      <div class="muted">${named && sandboxLink(e.data.sandbox_id, e.data.name)}${e.data.exec_id && ` command ${e.data.exec_id}`}</div></li>`)}</ul>`}
  </section>`;
}

function outcome(d) {
  const parts = [d.reason && d.reason !== 'exited' ? d.reason : `exit ${d.exit_code ?? 0}`];
  if (d.duration) parts.push(span(1000 * parseFloat(d.duration)));
  if (d.peak_memory_bytes) parts.push(bytes(Number(d.peak_memory_bytes)));
  return parts.join(', ');
}

const activityText = {
  'sandbox.created': (d) => `created from ${d.image ?? 'an image'}`,
  'sandbox.adopted': () => 'adopted after a restart of the daemon',
  'sandbox.ended': (d) => `ended${d.reason ? `: ${d.reason}` : ''}`,
  'sandbox.removed': () => 'removed',
  'exec.started': (d) => html`<span class="mono">${command(d.args)}</span>`,
  'exec.ended': (d) => `command ${d.exec_id ?? ''}: ${outcome(d)}`,
  'exec.failed': (d) => `command did not start ${d.code ?? ''}`,
  'exec.signaled': (d) => `signal ${d.signal ?? ''} to command ${d.exec_id ?? ''}`,
  'call.refused': (d) => `${(d.call ?? '').split('/').pop()} was refused ${d.code ?? ''}`,
  'daemon.started': (d) => `the daemon started, version ${d.version ?? ''}`,
};

export function Activity({ list, named, most = 60 }) {
  return html`<section class="panel feed" aria-label="Activity"><h2>Activity</h2>
    ${list.length === 0 ? html`<p class="empty muted">Nothing in the last 30 minutes.</p>` : html`<ol class="activity">${list.slice(0, most).map((e) => html`<li key=${e.id}>
      <time class="muted" dateTime=${new Date(e.time).toISOString()}>${clock(e.time)}</time>
      <span>${named && e.data.sandbox_id && html`${sandboxLink(e.data.sandbox_id, e.data.name)} `}${(activityText[e.type] ?? alertText[e.type])?.(e.data) ?? e.type.replace('.', ' ')}</span></li>`)}</ol>`}
  </section>`;
}

