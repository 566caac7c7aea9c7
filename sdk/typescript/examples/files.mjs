// A directory goes in, a command works on it, and the result comes out.
import { mkdtemp, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FileAbsentError, Sandbox } from '@caisson-run/caisson'

const dir = await mkdtemp(join(tmpdir(), 'caisson-example-'))
const box = await Sandbox.create()
try {
  await mkdir(join(dir, 'src'))
  await writeFile(join(dir, 'src', 'words'), 'b\na\nc\n')
  const copied = await box.files.copyIn(join(dir, 'src'), '/tmp/work')
  console.log(`copied in: ${copied.entries}`)

  const watch = await box.files.watch('/tmp/work')
  await box.run('sort words > sorted', { workdir: '/tmp/work', check: true })
  for await (const event of watch) {
    console.log(`${event.type} ${event.path}`)
    break
  }

  await box.files.copyOut('/tmp/work', join(dir, 'result'))
  console.log(`sorted: ${(await readFile(join(dir, 'result', 'sorted'), 'utf8')).split('\n').join(' ')}`)

  await box.files.read('/tmp/work/absent').catch((error) => {
    console.log(`absent: ${error instanceof FileAbsentError}, ${error.remedy}`)
  })
} finally {
  await box.remove()
  await rm(dir, { recursive: true })
}
