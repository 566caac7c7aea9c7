import { messages, type Transport } from './http.js'
import type { BuildProgress, Template } from './types.js'
import { broken, decode } from './wire.js'

/** How a template is built. */
export interface TemplateBuildOptions {
  /** Build it also where there is one, and all of it. */
  noCache?: boolean
  /** Is told of each step that begins, and of the output of its command. */
  onProgress?: (progress: BuildProgress) => void
  signal?: AbortSignal
}

/** The results of set-ups of profiles, with which their sandboxes begin. */
export class Templates {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Returns those of the profiles that this user may use, by profile, without logs. */
  async list(): Promise<Template[]> {
    return decode('ListTemplatesResponse', await this.transport.list('/v1/templates', 'templates')).templates
  }

  /** Returns the template of a profile, with the log of its last build. */
  async get(profile: string): Promise<Template> {
    return decode('Template', await this.transport.call({ method: 'GET', path: templatePath(profile) }))
  }

  /** Builds the template of a profile where there is none, for root. */
  async build(profile: string, { noCache = false, onProgress, signal }: TemplateBuildOptions = {}): Promise<Template> {
    const path = `${templatePath(profile)}/build`
    const answer = await this.transport.open({ method: 'POST', path, json: { no_cache: noCache }, signal })
    for await (const message of messages(answer, signal)) {
      if (message.template) return decode('Template', message.template)
      if (message.progress) onProgress?.(decode('BuildProgress', message.progress))
    }
    throw broken('the answer ended without a template')
  }

  /** Removes the templates of a profile, for root. The next request builds one. */
  async remove(profile: string): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: templatePath(profile) })
  }
}

function templatePath(profile: string): string {
  if (!profile) throw new TypeError('the name of the profile is empty')
  return `/v1/templates/${encodeURIComponent(profile)}`
}
