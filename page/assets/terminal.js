// A terminal in a sandbox, where the operator allows it: a shell whose output is a stream,
// and whose input goes out in order.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { call, lines, sandboxPath } from './api.js';
import { tell } from './parts.js';

/** allowStyles lets xterm's styles pass the content policy. It refuses style elements and
 * style attributes, and allows the same through the object model. */
function allowStyles() {
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => {
    if (name !== 'style') return create(name, options);
    const element = create('span');
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(element, 'textContent', { set: (text) => sheet.replaceSync(text) });
    const remove = element.remove.bind(element);
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
      remove();
    };
    return element;
  };
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function setAttribute(name, value) {
    if (name === 'style') this.style.cssText = value;
    else set.call(this, name, value);
  };
}

let loaded = null;

/** load brings xterm when it is needed for the first time. */
const load = () => (loaded ??= (async () => {
  allowStyles();
  const [{ Terminal }, { FitAddon }] = await Promise.all([import('./vendor/xterm.js'), import('./vendor/xterm-fit.js')]);
  return { Terminal, FitAddon };
})());

const encode = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(''));
const decode = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

/** sender sends input in order, one call at a time: what comes meanwhile goes with the next. */
function sender(send) {
  let waiting = [];
  let busy = false;
  return async (bytes) => {
    waiting.push(...bytes);
    if (busy) return;
    busy = true;
    while (waiting.length > 0) {
      const next = waiting.splice(0, 64 * 1024);
      await send(next);
    }
    busy = false;
  };
}

const theme = { background: '#10161b', foreground: '#e2e8ee', cursor: '#3fb8ab', selectionBackground: '#2b4a55' };

// bestShell becomes bash where there is one.
const bestShell = 'command -v bash >/dev/null && exec bash; exec sh';

/** run runs a shell on the terminal until it ends or signal aborts. */
async function run(id, term, signal) {
  const encoder = new TextEncoder();
  const exec = { args: ['/bin/sh', '-c', bestShell], stdin: true, env: { TERM: 'xterm-256color' }, tty: { rows: term.rows, cols: term.cols } };
  let path = null; // of the command, once it runs
  const quietly = (promise) => promise.catch((failure) => { if (!signal.aborted) tell(failure); });
  const send = sender((bytes) => quietly(call('POST', `${path}/input`, { body: { data: encode(bytes) } })));
  term.onData((text) => { if (path) send(encoder.encode(text)); });
  term.onBinary((text) => { if (path) send(Array.from(text, (c) => c.charCodeAt(0))); });
  term.onResize(({ rows, cols }) => { if (path) quietly(call('POST', `${path}/resize`, { body: { size: { rows, cols } } })); });
  signal.addEventListener('abort', () => { if (path) call('POST', `${path}/signal`, { body: { signal: 'HUP', all: true } }).catch(() => {}); }); // it may have ended
  for await (const answer of lines(sandboxPath(id, 'execs'), { body: { exec, attach: true }, signal })) {
    if (answer.started) path = sandboxPath(id, 'execs', answer.started.exec.id);
    const part = answer.stdout ?? answer.stderr;
    if (part) await new Promise((done) => { term.write(part.data ? decode(part.data) : encoder.encode(part.text ?? ''), done); });
    if (answer.exit) {
      path = null;
      term.write(`\r\n\x1b[2mThe shell has ended with ${answer.exit.exit_code ?? 0}.\x1b[0m\r\n`);
    }
  }
}

export function Shell({ id, onClose }) {
  const box = useRef(null);
  const close = useRef(null);
  const [ended, setEnded] = useState(false);
  useEffect(() => {
    const end = new AbortController();
    let term = null;
    let watcher = null;
    load().then(async ({ Terminal, FitAddon }) => {
      if (end.signal.aborted) return;
      term = new Terminal({ fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, monospace', fontSize: 13, cursorBlink: true, scrollback: 5000, theme });
      const fit = new FitAddon();
      term.loadAddon(fit);
      term.open(box.current);
      fit.fit();
      term.focus();
      term.attachCustomKeyEventHandler((e) => {
        if (e.key !== 'F6') return true;
        close.current?.focus();
        return false;
      });
      watcher = new ResizeObserver(() => fit.fit());
      watcher.observe(box.current);
      await run(id, term, end.signal);
    }).catch((failure) => { if (!end.signal.aborted) tell(failure); }).finally(() => setEnded(true));
    return () => { end.abort(); watcher?.disconnect(); term?.dispose(); };
  }, [id]);
  return html`<section class="panel shell" aria-label="Terminal">
    <div class="bartop"><h2>Terminal</h2><span class="muted"><kbd>F6</kbd> leaves it</span><button ref=${close} onClick=${onClose}>${ended ? 'Close' : 'End the shell'}</button></div>
    <div class="box" ref=${box}></div>
  </section>`;
}
