const { Sandbox } = require('@caisson-run/caisson')

Sandbox.create().then(async (box) => {
  try {
    console.log('cjs', (await box.run(['true'])).exitCode)
  } finally {
    await box.remove()
  }
})
