// Calls of the daemon's plain HTTP. The token comes in the URL's fragment, which no browser
// sends. It is kept for this tab alone.

const key = 'caisson-token';

/** takeToken moves the token from the address bar into the tab's storage. */
export function takeToken() {
  const found = /^#token=([!-~]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(key, decodeURIComponent(found[1]));
    history.replaceState(null, '', location.pathname + '#/');
  }
  return hasToken();
}

export const hasToken = () => sessionStorage.getItem(key) !== null;
export const setToken = (text) => sessionStorage.setItem(key, text.trim().replace(/^.*#token=/, ''));
export const dropToken = () => sessionStorage.removeItem(key);

/** Failure is an error of the daemon, with its code and remedy. */
export class Failure extends Error {
  constructor(status, { code = '', message = '', cause = '', remedy = '' }) {
    super(cause && !message.includes(cause) ? `${message}: ${cause}` : message);
    Object.assign(this, { status, code, remedy });
  }
}

/** withKey: served by TLS, where each user shows a key of the API. */
export const withKey = location.protocol === 'https:';

/** terminal says whether there is one: a key may run commands anyway; else the operator says so, known after the first call. */
export let terminal = withKey;

async function request(method, path, { query = {}, body, signal } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) url.searchParams.append(name, one);
  }
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(key)}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const answer = await fetch(url, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
  });
  if (answer.ok) {
    terminal = withKey || answer.headers.get('Caisson-Terminal') === 'true';
    return answer;
  }
  const told = await answer.json().catch(() => ({}));
  throw new Failure(answer.status, told.error ?? { message: `${answer.status} ${answer.statusText}` });
}

/** call makes a call of one answer. */
export const call = async (method, path, options) => (await request(method, path, options)).json();

/** listAll returns the entries of a list from all its pages. */
export async function listAll(path, field, { query, signal } = {}) {
  const entries = [];
  for (let next; next !== '';) {
    const answer = await call('GET', path, { query: next ? { ...query, next } : query, signal });
    entries.push(...(answer[field] ?? []));
    next = answer.next ?? '';
  }
  return entries;
}

/** lines yields the answers of a stream, one JSON object on each line. */
export async function* lines(path, options) {
  const answer = await request(options.body ? 'POST' : 'GET', path, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      if (message.error) throw new Failure(answer.status, message.error);
      yield message;
    }
  }
}

export const sandboxPath = (id, ...rest) => ['/v1/sandboxes', ...[id, ...rest].map(encodeURIComponent)].join('/');

/** sleep ends after so many milliseconds, or early with signal. */
export const sleep = (ms, signal) => new Promise((done) => {
  const end = () => { clearTimeout(timer); signal.removeEventListener('abort', end); done(); };
  const timer = setTimeout(end, ms);
  signal.addEventListener('abort', end);
});
