// The page: which view is shown, and the bar above it.

import { html, render, useEffect, useState } from './vendor/preact-htm.js';
import { setToken, takeToken, withKey } from './api.js';
import { start, state, stop, subscribe } from './store.js';
import { Messages } from './parts.js';
import { Overview } from './overview.js';
import { Sandbox } from './sandbox.js';

function route() {
  const found = /^#\/sandboxes\/([^/]+)/.exec(location.hash);
  return found ? { sandbox: decodeURIComponent(found[1]) } : {};
}

function useStore() {
  const [, turn] = useState(0);
  useEffect(() => subscribe(() => turn((n) => n + 1)), []);
}

function Link() {
  const text = { live: 'live', connecting: 'connecting', lost: 'not connected' }[state.link];
  const notReady = state.link === 'live' && state.ready && !state.ready.ready;
  return html`<span class="link ${notReady ? 'lost' : state.link}" role="status">${notReady ? 'not ready' : text}</span>`;
}

function Locked() {
  const [text, setText] = useState('');
  const enter = () => {
    if (!text.trim()) return;
    setToken(text);
    state.locked = false;
    state.link = 'connecting';
    start();
  };
  return html`<main class="locked">
    <h1>caisson</h1>
    ${withKey ? html`<p>${state.failure?.status === 401 ? 'This key does not count, or no longer.' : 'This page needs a key.'}</p>
    <p>An administrator of the host makes one with <code>caisson key create</code>. You see what its user may see.</p>` : html`
    <p>${state.failure?.status === 401 ? state.loaded ? 'The token is no longer valid: the daemon has a new one.' : 'This is not the token of this daemon.' : 'This page needs its token.'}</p>
    <p>Run <code>caisson page</code> as root on the host, and open the URL that it prints, or paste it here.</p>`}
    <label>${withKey ? 'Key' : 'URL or token'} <input type="password" autocomplete="off" spellcheck="false" value=${text}
      onInput=${(e) => setText(e.target.value)} onKeyDown=${(e) => e.key === 'Enter' && enter()} /></label>
    <button class="main" onClick=${enter}>Open</button>
    ${state.failure?.status === 401 && html`<p class="muted">${state.failure.code} ${state.failure.message}</p>`}
  </main>`;
}

function App() {
  useStore();
  const [at, setAt] = useState(route());
  useEffect(() => {
    const go = () => {
      if (takeToken() && state.locked) { state.locked = false; start(); }
      setAt(route());
      scrollTo(0, 0);
    };
    addEventListener('hashchange', go);
    return () => removeEventListener('hashchange', go);
  }, []);
  if (state.locked) return html`<${Locked} /><${Messages} />`;
  return html`
    <header class="top">
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="22" height="22" />caisson</a>
      <span class="muted where">${state.version && `${state.version.instance} · ${state.version.version}`}</span>
      <${Link} />
    </header>
    ${state.link === 'lost' && html`<p class="banner" role="alert">The daemon does not answer${state.failure?.code ? html`: <b>${state.failure.code}</b> ${state.failure.message}` : ''}. What you see may be old. Trying again each second.</p>`}
    ${state.link === 'live' && state.ready && !state.ready.ready && html`<p class="banner" role="alert">Nothing can be run now: ${state.ready.reason}</p>`}
    ${at.sandbox ? html`<${Sandbox} key=${at.sandbox} id=${at.sandbox} />` : html`<${Overview} />`}
    <footer class="muted">Keys: <kbd>/</kbd> filter, <kbd>j</kbd> <kbd>k</kbd> rows, <kbd>Enter</kbd> open, <kbd>Esc</kbd> back</footer>
    <${Messages} />`;
}

/** step moves the focus to the next or the previous row. */
function step(by) {
  const rows = [...document.querySelectorAll('a.row')];
  const next = rows[rows.indexOf(document.activeElement) + by] ?? rows[by > 0 ? 0 : rows.length - 1];
  next?.focus();
}

addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (e.target.closest('input, textarea, .terminal')) {
    if (e.key === 'Escape') e.target.blur();
    return;
  }
  const keys = { '/': () => document.querySelector('input.filter')?.focus(), j: () => step(1), k: () => step(-1), Escape: () => { location.hash = '#/'; } };
  if (keys[e.key]) {
    e.preventDefault();
    keys[e.key]();
  }
});

state.locked = !takeToken();
render(html`<${App} />`, document.getElementById('app'));
start();
addEventListener('pagehide', stop);
addEventListener('pageshow', start);
