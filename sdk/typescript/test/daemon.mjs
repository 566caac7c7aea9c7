// A daemon that answers as a test says, on a unix socket of its own.
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export class Daemon {
  requests = []

  static async make(t, answer) {
    const daemon = new Daemon()
    daemon.answer = answer
    daemon.dir = await mkdtemp(join(tmpdir(), 'caisson-daemon-'))
    daemon.socket = join(daemon.dir, 's')
    t.after(async () => {
      await daemon.stop()
      await rm(daemon.dir, { recursive: true, force: true })
    })
    return daemon
  }

  async start() {
    this.server = createServer(async (request, response) => {
      this.requests.push(`${request.method} ${request.url}`)
      await this.answer({ request, response, line: (message) => response.write(`${JSON.stringify(message)}\n`), count: this.requests.length })
    })
    await new Promise((resolve) => this.server.listen(this.socket, resolve))
  }

  async stop() {
    if (!this.server) return
    const closed = new Promise((resolve) => this.server.close(resolve))
    this.server.closeAllConnections()
    this.server = undefined
    await closed
  }
}

export async function bodyOf(request) {
  const parts = []
  for await (const part of request) parts.push(part)
  return Buffer.concat(parts).toString()
}
