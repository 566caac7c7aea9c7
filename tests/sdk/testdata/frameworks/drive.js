// Has the agent of each framework use its recipe, with a stand-in for the model.
import assert from 'node:assert/strict'
import { Sandbox } from '@caisson-run/caisson'

const inside = 'cat /proc/1/comm; echo to stderr >&2; exit 3'
const box = await Sandbox.create()

async function vercel() {
  const { generateText, stepCountIs } = await import('ai')
  const { MockLanguageModelV3 } = await import('ai/test')
  const { sandboxTools } = await import('./vercel.js')
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } }
  const steps = [
    ['bash', { command: inside }],
    ['writeFile', { path: '/tmp/d/x', content: 'text' }],
    ['readFile', { path: '/tmp/d/x' }],
  ]
  let n = 0
  const model = new MockLanguageModelV3({
    doGenerate: async () => {
      const step = steps[n++]
      return step
        ? { content: [{ type: 'tool-call', toolCallId: `c${n}`, toolName: step[0], input: JSON.stringify(step[1]) }], finishReason: { unified: 'tool-calls' }, usage, warnings: [] }
        : { content: [{ type: 'text', text: 'done' }], finishReason: { unified: 'stop' }, usage, warnings: [] }
    },
  })
  const { steps: made } = await generateText({ model, prompt: 'do it', tools: sandboxTools(box), stopWhen: stepCountIs(10) })
  const results = made.flatMap((s) => s.toolResults.map((r) => r.output))
  assert.deepEqual(results, [{ exitCode: 3, stdout: 'caisson-init\n', stderr: 'to stderr\n' }, '/tmp/d/x', 'text'])
}

async function openai() {
  const { Agent, run, setTracingDisabled, Usage } = await import('@openai/agents')
  const { sandboxShell } = await import('./openai.js')
  setTracingDisabled(true)
  let seen
  const model = {
    async getResponse({ input }) {
      seen = input
      const calls = input.filter?.((i) => i.type === 'shell_call_output') ?? []
      const output = calls.length
        ? [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'done' }] }]
        : [{ type: 'shell_call', callId: 'c1', status: 'completed', action: { commands: [inside, 'sleep 60'], timeoutMs: 500 } }]
      return { usage: new Usage(), output }
    },
    async *getStreamedResponse() {},
  }
  const agent = new Agent({ name: 'a', instructions: 'i', model, tools: [sandboxShell(box)] })
  assert.equal((await run(agent, 'do it')).finalOutput, 'done')
  const { output } = seen.find((i) => i.type === 'shell_call_output')
  assert.deepEqual(output[0], { stdout: 'caisson-init\n', stderr: 'to stderr\n', outcome: { type: 'exit', exitCode: 3 } })
  assert.equal(output[1].outcome.type, 'timeout')
}

async function deepagents() {
  const { CaissonSandbox } = await import('./deepagents.js')
  const backend = new CaissonSandbox(box)
  assert.deepEqual(await backend.execute(inside), { output: 'caisson-init\nto stderr\n', exitCode: 3, truncated: false })
  assert.equal((await backend.write('/tmp/deep.txt', 'one\ntwo\n')).error, undefined)
  assert.match(JSON.stringify(await backend.read('/tmp/deep.txt')), /two/)
  assert.equal((await backend.edit('/tmp/deep.txt', 'two', '2')).error, undefined)
  assert.equal(await box.files.readText('/tmp/deep.txt'), 'one\n2\n')
  assert.match(JSON.stringify(await backend.grep('one', '/tmp')), /deep\.txt/)
  assert.match(JSON.stringify(await backend.ls('/tmp')), /deep\.txt/)
  const [missing] = await backend.downloadFiles(['/tmp/none'])
  assert.equal(missing.error, 'file_not_found')
}

const recipes = { vercel, openai, deepagents }
await recipes[process.argv[2]]().finally(() => box.remove())
console.log('ok')
process.exit(0)
