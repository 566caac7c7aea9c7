// Small parts that the views share.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { Failure } from './api.js';

/** Spark is a small graph of the newest values, from 0 to top. */
export function Spark({ values = [], top, label, wide = 84, high = 20, points = 60 }) {
  const most = Math.max(top ?? 0, ...values, 1e-9);
  const step = wide / (points - 1);
  const from = wide - (values.length - 1) * step;
  const at = values.map((v, i) => `${(from + i * step).toFixed(1)},${(high - 1 - (high - 2) * (v / most)).toFixed(1)}`);
  return html`<svg class="spark" viewBox="0 0 ${wide} ${high}" width=${wide} height=${high} preserveAspectRatio="none" role="img" aria-label=${label}>
    ${values.length > 1 && html`<polygon points="${from.toFixed(1)},${high} ${at.join(' ')} ${wide},${high}" /><polyline points=${at.join(' ')} />`}
  </svg>`;
}

/** Bar shows a share of a limit. */
export function Bar({ value, of, label }) {
  const share = of > 0 ? Math.min(1, value / of) : 0;
  return html`<svg class="bar ${share > 0.9 ? 'hot' : ''}" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="room" width="100" height="4" rx="2" /><rect class="taken" width=${(100 * share).toFixed(1)} height="4" rx="2" />
  </svg>`;
}

export const Pill = ({ state }) => html`<span class="pill ${state}">${state}</span>`;

/** Idle marks a sandbox that is paused because nothing worked in it. */
export const Idle = ({ s }) => s.paused_by === 'idle' && html` <span class="mark quiet" title="Paused because it was idle: whoever uses it wakes it">idle</span>`;

/** useResize calls f with the width of an element, now and after each change. */
export function useResize(ref, f) {
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => f(Math.floor(entry.contentRect.width)));
    watcher.observe(ref.current);
    return () => watcher.disconnect();
  }, []);
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const binary = [...Array(50).keys()].map((i) => 2 ** i);
const decimal = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000];

function options({ series, format, top, bytes, width, onHover }) {
  const axis = { stroke: colour('muted'), grid: { stroke: colour('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  const two = (n) => String(n).padStart(2, '0');
  return {
    width, height: 124, legend: { show: false }, padding: [8, 20, 0, 0],
    cursor: { points: { size: 6 }, y: false, drag: { x: false, y: false }, sync: { key: 'use' } },
    hooks: { setCursor: [(u) => onHover(u.cursor.idx)] },
    scales: { x: { range: (_, least, most) => [Math.min(least, most - 30), most] }, y: { range: (_, __, most) => [0, Math.max(most * 1.1, top ?? 0, 1e-6)] } },
    axes: [
      { ...axis, size: 26, space: 64, values: (_, list) => list.map((t) => { const d = new Date(t * 1000); return `${two(d.getHours())}:${two(d.getMinutes())}${d.getSeconds() ? `:${two(d.getSeconds())}` : ''}`; }) },
      { ...axis, size: 62, space: 24, incrs: bytes ? binary : decimal, values: (_, list) => list.map(format) },
    ],
    series: [{}, ...series.map((s, i) => ({
      label: s.label, stroke: colour(`graph-${s.colour ?? i + 1}`), width: 1.5, fill: i === 0 ? colour(`graph-${s.colour ?? 1}-fill`) : undefined, points: { show: false },
    }))],
  };
}

/** Chart draws series over time; it is redrawn where the data or the colours change. */
export function Chart({ title, limit, times, series, format, top, bytes }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [hover, setHover] = useState(null);
  const [scheme, setScheme] = useState(dark.matches);
  useResize(box, (width) => plot.current?.setSize({ width, height: 124 }));
  useEffect(() => {
    const turn = () => setScheme(dark.matches);
    dark.addEventListener('change', turn);
    return () => dark.removeEventListener('change', turn);
  }, []);
  useEffect(() => {
    plot.current = new uPlot(options({ series, format, top, bytes, width: box.current.clientWidth, onHover: setHover }), [times, ...series.map((s) => s.values)], box.current);
    return () => { plot.current.destroy(); plot.current = null; };
  }, [scheme, top]);
  useEffect(() => plot.current?.setData([times, ...series.map((s) => s.values)]), [times]);
  const at = hover ?? times.length - 1;
  const now = series.map((s) => format(s.values[at] ?? 0));
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      ${series.map((s, i) => html`<span class="reading"><i class="key k${s.colour ?? i + 1}"></i>${series.length > 1 && html`<span class="muted">${s.label} </span>`}<b>${now[i]}</b></span>`)}
      ${limit && html`<span class="muted limit">of ${limit}</span>`}
    </figcaption>
    <div ref=${box} role="img" aria-label="${title}: ${series.map((s, i) => `${s.label} ${now[i]}`).join(', ')}"></div>
  </figure>`;
}

/** Ask is a question that a person answers before something is lost. */
export function Ask({ question, detail, verb, onYes, onNo }) {
  const dialog = useRef(null);
  useEffect(() => { dialog.current.showModal(); }, []);
  return html`<dialog ref=${dialog} onClose=${onNo} aria-labelledby="question">
    <h2 id="question">${question}</h2><p>${detail}</p>
    <div class="actions"><button onClick=${() => dialog.current.close()}>Cancel</button>
    <button class="danger" onClick=${() => { onYes(); dialog.current.close(); }}>${verb}</button></div>
  </dialog>`;
}

/** tell shows a message for a while; a failure with its code and remedy. */
let show = () => {};
export const tell = (message) => show(message);

export function Messages() {
  const [list, setList] = useState([]);
  show = (m) => {
    const one = m instanceof Failure ? { bad: true, text: m.message, code: m.code, remedy: m.remedy } : m instanceof Error ? { bad: true, text: m.message } : { text: m };
    setList((l) => [...l, one].slice(-4));
    setTimeout(() => setList((l) => l.filter((o) => o !== one)), one.bad ? 12_000 : 4_000);
  };
  return html`<div class="messages" role="status" aria-live="polite">
    ${list.map((m) => html`<p class=${m.bad ? 'bad' : ''}>${m.code && html`<b>${m.code}</b> `}${m.text}${m.remedy && html`<span class="muted">${m.remedy}</span>`}</p>`)}
  </div>`;
}
