import { spawn } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { request as plainRequest, type RequestOptions } from 'node:http'
import { Agent, request as securedRequest } from 'node:https'
import { Duplex } from 'node:stream'
import { usage } from './wire.js'

/** Which daemon a client talks to. What is not given comes from the environment, as for the command line. */
export interface EndpointOptions {
  /** By default `$CAISSON_SOCKET`, else /run/caisson/caisson.sock. */
  socket?: string
  /** A daemon elsewhere: tcp://HOST:PORT, which is by TLS, or ssh://[USER@]HOST[:PORT]. */
  host?: string
  /** By which the client acts for a user: one of `caisson key create`. */
  key?: string
  /** File with the certificates that sign the daemon's. By default those of Node. */
  ca?: string
  /** File with the certificate of the client. */
  cert?: string
  /** File with the key of that certificate. */
  certKey?: string
}

/** How one daemon is reached. */
export interface Endpoint {
  /** For messages. */
  readonly name: string
  readonly secured: boolean
  readonly request: typeof plainRequest
  readonly options: RequestOptions
}

/** Returns where the daemon is. */
export function endpoint(options: EndpointOptions = {}): Endpoint {
  const { socket, key, ca, cert, certKey } = options
  if (socket && options.host) throw usage('socket and host exclude each other')
  const host = options.host || (socket ? undefined : process.env.CAISSON_HOST)
  if (!host) {
    if (key || ca || cert || certKey) throw usage('key, ca, cert and certKey need a host tcp://HOST:PORT')
    return local(socket || process.env.CAISSON_SOCKET || '/run/caisson/caisson.sock')
  }
  if (/^unix:\/\/\/./.test(host) && !(key || ca || cert || certKey)) return local(host.slice('unix://'.length))
  const login = /^ssh:\/\/(?:([A-Za-z0-9_][\w.-]*)@)?([A-Za-z0-9_][\w.-]*)(?::([0-9]{1,5}))?\/?$/.exec(host)
  if (login && !(key || ca || cert || certKey)) return overSSH(host, login[1], login[2]!, login[3])
  const place = /^tcp:\/\/(\[[0-9A-Fa-f:.%]+\]|[^\s/@:?#[\]]+):([0-9]{1,5})\/?$/.exec(host)
  if (!place) throw usage('the host is none of tcp://HOST:PORT, ssh://[USER@]HOST[:PORT] and unix:///PATH')
  return secured(host, place[1]!.replace(/^\[|\]$/g, ''), Number(place[2]), options)
}

function local(path: string): Endpoint {
  return { name: path, secured: false, request: plainRequest, options: { socketPath: path, agent: false } }
}

// Each connection is the user's own ssh, in a session of its own: an interrupt is for the caller
// alone. What it says is for a person.
function overSSH(name: string, user: string | undefined, host: string, port: string | undefined): Endpoint {
  const args = ['-T', ...(user ? ['-l', user] : []), ...(port ? ['-p', port] : []), '--', host, 'caisson', 'dial-stdio']
  const createConnection = (): Duplex => {
    const ssh = spawn('ssh', args, { stdio: ['pipe', 'pipe', 'inherit'], detached: true })
    const stream = Duplex.from({ writable: ssh.stdin, readable: ssh.stdout })
    ssh.once('error', (error) => stream.destroy(error))
    return stream
  }
  return { name, secured: false, request: plainRequest, options: { createConnection } }
}

// Connections are kept for some time: a handshake takes milliseconds.
function secured(name: string, host: string, port: number, given: EndpointOptions): Endpoint {
  const { CAISSON_TLS_CA, CAISSON_TLS_CERT, CAISSON_TLS_KEY } = process.env
  const [ca, cert, certKey] = [given.ca || CAISSON_TLS_CA, given.cert || CAISSON_TLS_CERT, given.certKey || CAISSON_TLS_KEY]
  const agent = new Agent({
    keepAlive: true,
    maxFreeSockets: 8,
    timeout: 60_000,
    minVersion: 'TLSv1.3',
    ...(ca && { ca: read(ca) }),
    ...(cert && { cert: read(cert) }),
    ...(certKey && { key: read(certKey) }),
  })
  const key = keyOf(given.key)
  return { name, secured: true, request: securedRequest, options: { host, port, agent, headers: key ? { Authorization: `Bearer ${key}` } : {} } }
}

function keyOf(given?: string): string {
  const file = process.env.CAISSON_KEY_FILE
  let key = given || process.env.CAISSON_KEY || ''
  if (!key && file) {
    key = read(file).trim()
    if (statSync(file).mode & 0o077) throw usage(`the key in ${file} can be read by others: chmod 600`)
  }
  if (key && !/^[!-~]+$/.test(key)) throw usage('the key is not one word')
  return key
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw usage(`the file ${file} cannot be read: ${(error as Error).message}`)
  }
}
