// The official client, over HTTP: node client.mjs URL TOKEN legacy|auto
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [, , url, token, era] = process.argv;
const client = new Client({ name: 'test', version: '1' }, era === 'auto' ? { versionNegotiation: { mode: 'auto' } } : {});
await client.connect(
  new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }),
);
const version = client.getNegotiatedProtocolVersion?.() ?? client.getProtocolVersion?.();
console.log(`version ${version}`);
const bash = (command, more, options) => client.callTool({ name: 'bash', arguments: { command, ...more } }, options);
const r = await bash('echo out; echo err >&2; exit 3');
console.log(JSON.stringify([r.structuredContent.stdout, r.structuredContent.stderr, r.structuredContent.exit_code, !!r.isError]));

const progress = [];
await bash('echo working; sleep 2.5', { yield_ms: 10000 }, { onprogress: (p) => progress.push(p.message) });
console.log(`progress ${progress.some((m) => m.includes('working'))}`);

const abort = new AbortController();
setTimeout(() => abort.abort(), 500);
await bash('sleep 1001 & sleep 1002', { yield_ms: 30000 }, { signal: abort.signal }).then(
  () => console.log('not cancelled'),
  () => console.log('cancelled'),
);
for (let i = 0; i < 100; i++) {
  const left = await bash("ps | grep -c '[s]leep 100'");
  if (left.structuredContent.stdout === '0\n') {
    console.log('nothing left');
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
}
await client.close();
