/**
 * The names of the options, for callers without types: a misspelt limit is refused, not
 * ignored.
 */
import type { CreateOptions, ExecOptions, LimitOptions, LogsOptions, RunOptions, SandboxOptions, StartOptions, UpdateOptions } from './spec.js'

type Names<T> = Record<keyof T, true>

const limits: Names<Required<LimitOptions>> = { memory: true, cpus: true, pids: true }
const exec: Names<Required<ExecOptions>> = { ...limits, env: true, workdir: true, user: true, timeout: true, outputLimit: true }

const start: Names<Required<StartOptions>> = { ...exec, stdin: true, tty: true, signal: true }

const run: Names<Required<RunOptions>> = {
  ...exec,
  onStdout: true, onStderr: true, onStdoutData: true, onStderrData: true,
  check: true, signal: true, input: true,
}

const changes = { ...limits, ioReadBps: true, ioWriteBps: true, network: true, allow: true, deny: true } as const
const update: Names<Required<UpdateOptions>> = { ...changes, cpuShares: true, ttl: true, idleTimeout: true, labels: true }

const sandbox: Names<Required<SandboxOptions>> = {
  ...update,
  image: true, profile: true, user: true, env: true, workspace: true, mounts: true, openFiles: true, tmpfs: true,
  shmSize: true, hostname: true, publish: true, expose: true, links: true, dns: true, allowEch: true,
}

const create: Names<Required<CreateOptions>> = { ...sandbox, name: true, ensure: true, replace: true, client: true, signal: true }

const logs: Names<Required<LogsOptions>> = { follow: true, timestamps: true, since: true, until: true, signal: true }

const calls = { create, logs, run, start, update, runAlone: { ...sandbox, ...run } } satisfies Record<string, Record<string, true>>

/** Throws if options of a call has one that there is not. */
export function check(call: keyof typeof calls, options: object): void {
  const names: Record<string, true> = calls[call]
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && !Object.hasOwn(names, name)) {
      throw new TypeError(`there is no option ${JSON.stringify(name)}; there are: ${Object.keys(names).sort().join(', ')}`)
    }
  }
}
