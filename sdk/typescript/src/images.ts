import type { Transport } from './http.js'
import { bodyOf } from './input.js'
import type { Data } from './spec.js'
import type { Image } from './types.js'
import { decode } from './wire.js'

/** The images of the daemon. */
export class Images {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  /** Returns all images. */
  async list(): Promise<Image[]> {
    return decode('ListImagesResponse', await this.transport.call({ method: 'GET', path: '/v1/images' })).images
  }

  /** Returns one image. */
  async get(name: string): Promise<Image> {
    const answer = await this.transport.call({ method: 'GET', path: imagePath(name) })
    return decode('Image', answer.image)
  }

  /**
   * Imports a tar: an OCI layout, a `docker save`, or a root file system. Without a name it
   * has the one that the archive states.
   */
  async load(archive: Data, name?: string): Promise<Image> {
    const body = bodyOf(archive)
    const answer = await this.transport.call(
      name ? { method: 'PUT', path: imagePath(name), body } : { method: 'POST', path: '/v1/images/import', body },
    )
    return decode('Image', answer.image)
  }

  /** Removes an image. */
  async remove(name: string): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: imagePath(name) })
  }
}

function imagePath(name: string): string {
  if (!name) throw new TypeError('the name of the image is empty')
  return `/v1/images/${name.split('/').map(encodeURIComponent).join('/')}`
}
