import { Sandbox } from '@caisson-run/caisson'

const box = await Sandbox.create()
try {
  console.log('esm', (await box.run(['true'])).exitCode)
} finally {
  await box.remove()
}
