// The output of a long command as it comes, and a command that one talks to.
import { Sandbox } from '@caisson-run/caisson'

const box = await Sandbox.create()
try {
  let lines = 0
  const result = await box.run('i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i; done', {
    onStdout: (text) => {
      lines += text.split('\n').length - 1
    },
  })
  console.log(`${lines} lines, exit code ${result.exitCode}`)

  const shell = await box.start(['sh'], { stdin: true })
  await shell.send('cd /tmp\n')
  await shell.send('pwd; exit 7\n')
  for await (const event of shell.events()) {
    if (event.type === 'stdout') console.log(`shell says ${event.text.trim()}`)
    if (event.type === 'exit') console.log(`shell ended with ${event.result.exitCode}`)
  }

  const stop = new AbortController()
  const running = box.run('echo ready; sleep 600', { signal: stop.signal, onStdout: () => stop.abort() })
  await running.catch((error) => console.log(`stopped: ${error.name}`))
} finally {
  await box.remove()
}
