// The commands of a sandbox, and the output of one of them while it comes.

import { html, useEffect, useRef, useState } from './vendor/preact-htm.js';
import { call, lines, listAll, sandboxPath, sleep } from './api.js';
import { state } from './store.js';
import { age, bytes, command, plain, span } from './format.js';
import { tell } from './parts.js';

const shown = 64 * 1024; // of each stream, the newest bytes

// Much output must not hold up the page: after so much work there is a pause, in which the
// daemon waits. Both in milliseconds.
const work = 15;
const pause = 60;

function useCommands(sandbox) {
  const [list, setList] = useState(null);
  const mine = state.events.find((e) => e.data.sandbox_id === sandbox.id && e.type.startsWith('exec.'));
  useEffect(() => {
    let here = true;
    const asked = sandbox.state === 'removed' ? past(sandbox) : listAll(sandboxPath(sandbox.id, 'execs'), 'execs');
    asked.then((execs) => { if (here) setList(execs.reverse()); }, (failure) => { if (here && state.sandboxes.has(sandbox.id)) tell(failure); });
    return () => { here = false; };
  }, [sandbox.id, sandbox.state, mine?.id]);
  return list;
}

/** past are the commands of a sandbox that is gone: those that the daemon kept, else those of its events. */
async function past({ id }) {
  try {
    const { execs } = await call('GET', sandboxPath(id, 'history'));
    if (execs.length > 0) return execs;
  } catch (failure) {
    if (failure.status !== 404) throw failure;
  }
  const commands = new Map();
  for (const { type, time, data } of [...state.events].reverse()) {
    if (data.sandbox_id !== id) continue;
    if (type === 'exec.started') commands.set(data.exec_id, { id: data.exec_id, args: data.args ?? [], state: 'exited', started_at: time, stdout_bytes: 0, stderr_bytes: 0 });
    const begun = commands.get(data.exec_id);
    if (type === 'exec.ended' && begun) Object.assign(begun, { ended_at: time, result: { exit_code: data.exit_code, signal: data.signal, reason: data.reason, source: '' } });
  }
  return [...commands.values()];
}

function outcome(e) {
  if (e.state !== 'exited') return html`<span class="pill running">${e.state}</span>`;
  const r = e.result ?? {};
  const bad = r.exit_code || r.signal || r.source === 'runtime';
  const text = r.reason && r.reason !== 'exited' ? `${r.reason}${r.exit_code ? ` ${r.exit_code}` : ''}` : `exit ${r.exit_code ?? 0}`;
  return html`<span class="pill ${bad ? 'failed' : 'ok'}">${text}</span>`;
}

const took = (e) => span((e.ended_at ? Date.parse(e.ended_at) : Date.now()) - Date.parse(e.started_at));

/** Screen writes text into an element, keeps the newest, and stays at the end if it is there. */
class Screen {
  constructor(element) { this.element = element; this.length = 0; this.waiting = []; element.replaceChildren(); }

  add(stream, text) {
    const last = this.waiting[this.waiting.length - 1];
    if (last?.stream === stream) last.text = (last.text + text).slice(-shown);
    else if (text) this.waiting.push({ stream, text: text.slice(-shown) });
  }

  /** flush shows what was added. It is apart because each change is laid out. */
  flush() {
    const { element } = this;
    const scroller = element.parentElement;
    if (this.waiting.length === 0 || !scroller) return;
    const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
    for (const { stream, text } of this.waiting) {
      const span = document.createElement('span');
      span.className = stream;
      span.textContent = text;
      element.append(span);
      this.length += text.length;
    }
    this.waiting = [];
    while (this.length > 2 * shown && element.firstChild !== element.lastChild) {
      this.length -= element.firstChild.textContent.length;
      element.firstChild.remove();
    }
    if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  }
}

const raw = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

/** follow writes the output of a command to the screen until it ends. */
async function follow(sandbox, exec, screen, signal) {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const from = (n) => Math.max(0, Number(n) - shown);
  const begin = { stdout_offset: from(exec.stdout_bytes), stderr_offset: from(exec.stderr_bytes) };
  const left = begin.stdout_offset + begin.stderr_offset;
  if (left > 0) screen.add('note', `… ${bytes(left)} before this are not shown\n`);
  const timer = setInterval(() => screen.flush(), pause);
  signal.addEventListener('abort', () => clearInterval(timer));
  let begun = performance.now();
  for await (const answer of lines(sandboxPath(sandbox, 'logs'), { query: { exec_id: exec.id, follow: true, ...begin }, signal })) {
    for (const stream of ['stdout', 'stderr']) {
      const part = answer[stream];
      if (!part) continue;
      if (Number(part.skipped) > 0) screen.add('note', `\n… ${bytes(Number(part.skipped))} are not kept\n`);
      else screen.add(stream, plain(part.data ? decoders[stream].decode(raw(part.data), { stream: true }) : part.text ?? ''));
    }
    if (performance.now() - begun > work) {
      await sleep(pause, signal);
      begun = performance.now();
    }
  }
}

function Output({ sandbox, exec }) {
  const pre = useRef(null);
  const [wrap, setWrap] = useState(true);
  useEffect(() => {
    const end = new AbortController();
    const screen = new Screen(pre.current);
    follow(sandbox.id, exec, screen, end.signal)
      .catch((failure) => screen.add('note', `\n${failure.code ?? ''} ${failure.message}\n`))
      .then(() => { if (!end.signal.aborted) screen.flush(); });
    return () => end.abort();
  }, [sandbox.id, exec.id]);
  const size = Number(exec.stdout_bytes) + Number(exec.stderr_bytes);
  return html`<section class="panel output" aria-label="Output">
    <div class="bartop"><h2>Output <span class="muted">of command ${exec.id}</span></h2><span class="muted">${exec.state === 'exited' ? bytes(size) : 'live'}</span>
      <div class="tabs"><button aria-pressed=${wrap} onClick=${() => setWrap(!wrap)}>Wrap</button></div></div>
    <div class="screen" tabindex="0" role="log" aria-label="Output of command ${exec.id}"><pre class=${wrap ? 'wrap' : ''} ref=${pre}></pre></div>
  </section>`;
}

export function Commands({ sandbox }) {
  const list = useCommands(sandbox);
  const [picked, setPicked] = useState(null);
  const at = list?.find((e) => e.id === picked) ?? list?.find((e) => e.state === 'running') ?? list?.[0];
  useEffect(() => { if (at) setPicked(at.id); }, [at?.id]); // the end of a command shows no other one
  return html`<section class="panel" aria-label="Commands"><div class="bartop"><h2>Commands <span class="muted">${list?.length || ''}</span></h2></div>
    ${list?.length === 0 && html`<p class="empty muted">${sandbox.state === 'removed' ? 'No command is known.' : html`No command was run. <code>caisson exec ${sandbox.name || sandbox.id} -- COMMAND</code> runs one.`}</p>`}
    <ul class="commands">${(list ?? []).slice(0, 200).map((e) => html`<li key=${e.id}><button aria-pressed=${at?.id === e.id} onClick=${() => setPicked(e.id)}>
      <span class="muted id">${e.id}</span><span class="mono line" title=${command(e.args)}>${command(e.args)}</span>${outcome(e)}
      <span class="muted n">${took(e)}</span><span class="muted n">${age(Date.parse(e.started_at))} ago</span></button></li>`)}</ul>
  </section>
  ${sandbox.state === 'removed' && html`<p class="empty muted">Its output was removed with it. The audit log has what it did.</p>`}
  ${at && sandbox.state !== 'removed' && html`<${Output} key=${`${sandbox.id} ${at.id}`} sandbox=${sandbox} exec=${at} />`}`;
}
