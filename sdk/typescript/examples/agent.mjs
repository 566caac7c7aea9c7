// A session of an agent: many commands in one sandbox, found again by its name.
import { Client, Sandbox } from '@caisson-run/caisson'

const name = `agent-${process.pid}`
const settings = { name, ensure: true, idleTimeout: '10m', memory: '256M', env: { STAGE: 'test' } }

const first = await Sandbox.create(settings)
try {
  await first.run('echo "$STAGE" > /tmp/note', { check: true })

  // Another program, or this one after a crash, gets the same sandbox.
  const again = await Sandbox.create(settings)
  const note = await again.run(['cat', '/tmp/note'], { check: true })
  console.log(`same sandbox: ${again.id === first.id}, note: ${note.stdout.trim()}`)

  await again.update({ labels: { team: 'blue' }, ttl: '1h' })
  const found = await new Client().list({ labels: { team: 'blue' } })
  console.log(`found by label: ${found.some((box) => box.name === name)}`)

  const verdict = await again.policy.check('https://example.com')
  console.log(`may reach example.com: ${verdict.allowed}, it needs ${verdict.needs}`)
} finally {
  await first.remove()
}
