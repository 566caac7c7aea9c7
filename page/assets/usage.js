// What requests by routes took, and the secrets that routes use. Values of secrets are nowhere.

import { html } from './vendor/preact-htm.js';
import { age, bytes, plural } from './format.js';
import { useList } from './lists.js';

const sums = ['requests', 'bytes', 'input_tokens', 'output_tokens', 'cost', 'estimated_requests'];

/** byRoute adds up what sandboxes took. */
function byRoute(usages) {
  const routes = new Map();
  for (const u of usages) {
    const sum = routes.get(u.route) ?? { route: u.route };
    for (const key of sums) sum[key] = (sum[key] ?? 0) + Number(u[key] ?? 0);
    routes.set(u.route, sum);
  }
  return [...routes.values()].sort((a, b) => (a.route < b.route ? -1 : 1));
}

function took(u) {
  const about = u.estimated_requests > 0 ? '~' : '';
  const parts = [plural(u.requests, 'request'), bytes(u.bytes)];
  if (u.input_tokens + u.output_tokens > 0) parts.push(`${about}${u.input_tokens} tokens in, ${about}${u.output_tokens} out`);
  if (u.cost > 0) parts.push(`cost ${about}${u.cost.toFixed(4)}`);
  return parts.join(' · ');
}

/** Usage is of one sandbox, or of all that the daemon knows of. */
export function Usage({ sandbox }) {
  const usages = useList('/v1/usage', 'usages').filter((u) => u.scope === 'sandbox' && (!sandbox || u.sandbox_id === sandbox));
  if (usages.length === 0) return null;
  return html`<section class="panel feed" aria-label="Usage"><h2>Requests by routes</h2>
    <ul>${byRoute(usages).map((u) => html`<li key=${u.route}><b class="mono">${u.route}</b><div class="muted">${took(u)}</div></li>`)}</ul>
  </section>`;
}

const ago = (time) => (time ? `${age(Date.parse(time))} ago` : 'never');

export function Secrets() {
  const list = useList('/v1/secrets', 'secrets');
  if (list.length === 0) return null;
  return html`<section class="panel feed" aria-label="Secrets"><h2>Secrets <span class="muted">${list.length}</span></h2>
    <ul>${list.map((s) => html`<li key=${s.name}>
      <div><b class="mono">${s.name}</b><span class="muted when">read ${ago(s.read_at)}, used ${ago(s.used_at)}</span></div>
      <div class="muted">${s.source}${s.routes?.length > 0 && ` · ${s.routes.join(', ')}`}</div>
      ${s.error && html`<div class="needs">${s.error}</div>`}</li>`)}</ul>
  </section>`;
}
