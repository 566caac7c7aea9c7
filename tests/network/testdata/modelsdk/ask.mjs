// The clients of two providers, as their documentation has them: no URL and no key.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'

const messages = [{ role: 'user', content: 'hello' }]
const parts = []
const stream = await new OpenAI().chat.completions.create({ model: 'm', messages, stream: true })
for await (const part of stream) parts.push(part.choices[0]?.delta?.content ?? '')
console.log(`openai: ${parts.join('|')}`)

const local = await new OpenAI().chat.completions.create({ messages, model: 'local-7b' })
console.log(`local: ${local.choices[0].message.content}`)

const message = await new Anthropic().messages.create({ model: 'm', max_tokens: 16, messages })
console.log(`anthropic: ${message.content[0].text}`)

try {
  await new OpenAI({ maxRetries: 0 }).files.list()
} catch (error) {
  console.log(`refused: ${error.status}`)
}
