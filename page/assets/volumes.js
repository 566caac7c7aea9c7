// The volumes of the host, and how full those with a size are.

import { html } from './vendor/preact-htm.js';
import { age, bytes } from './format.js';
import { useList } from './lists.js';
import { Bar } from './parts.js';

function Volume({ v }) {
  const users = v.used_by ?? [];
  return html`<li>
    <div><b class="mono">${v.owner ? `${v.owner}+` : ''}${v.name}</b><span class="muted when">${age(Date.parse(v.created_at))}</span></div>
    ${Number(v.size_bytes) > 0 && html`<div class="use"><span>${bytes(Number(v.used_bytes))} of ${bytes(Number(v.size_bytes))}</span><${Bar} value=${Number(v.used_bytes)} of=${Number(v.size_bytes)} label="of ${bytes(Number(v.size_bytes))}" /></div>`}
    <div class="muted">${users.length ? `used by ${users.join(', ')}` : 'no sandbox uses it'}</div></li>`;
}

export function Volumes() {
  const list = useList('/v1/volumes', 'volumes');
  if (list.length === 0) return null;
  return html`<section class="panel feed" aria-label="Volumes"><h2>Volumes <span class="muted">${list.length}</span></h2>
    <ul>${list.map((v) => html`<${Volume} key=${`${v.owner}+${v.name}`} v=${v} />`)}</ul>
  </section>`;
}
