// One streamed answer, as a client asks for it that does not care for its usage.
import OpenAI from 'openai'

try {
  const stream = await new OpenAI().chat.completions.create({ model: 'mini', messages: [{ role: 'user', content: 'hello' }], stream: true })
  const parts = []
  for await (const part of stream) parts.push(part.choices[0].delta.content)
  console.log(`answered: ${parts.join('|')}`)
} catch (error) {
  console.log(`refused: ${error.status} ${error.code} ${error.message}`)
}
