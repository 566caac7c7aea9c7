// Writes src/generated, or the directory that is given, from the repository:
// the types of the messages, their fields for the decoder, and one class for each error code.
//   node tools/generate.mjs [OUT]
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const read = (path) => readFileSync(here(`../../../${path}`), 'utf8')
const head = (of) => `// Made from ${of} by tools/generate.mjs; do not edit.\n`

const scalars = ['Int64', 'OptionalInt64', 'OptionalNumber', 'Timestamp', 'Duration', 'Bytes']

// Scalars that may be strings in JSON, or absent, by what the OpenAPI document says of them.
function scalar(schema) {
  const optional = schema['x-optional'] === true
  if (optional && (schema.type === 'integer' || schema.type === 'number')) return 'OptionalNumber'
  if (Array.isArray(schema.type)) return optional ? 'OptionalInt64' : 'Int64' // integer or string
  if (schema.type !== 'string') return undefined
  if (schema.format === 'date-time') return 'Timestamp'
  if (schema.contentEncoding === 'base64') return 'Bytes'
  if (schema.pattern?.endsWith('s$')) return 'Duration'
  return undefined
}

// The callers' messages have no use for the types of what may be absent.
function schemas() {
  const { components, paths } = JSON.parse(read('api/openapi/openapi.json'))
  const bodies = Object.values(paths).flatMap((path) => Object.values(path).map((call) => call.requestBody ?? {}))
  const asked = new Set()
  const visit = (value) => {
    for (const [, name] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (asked.has(name)) continue
      asked.add(name)
      visit(components.schemas[name])
    }
  }
  visit(bodies)
  for (const name of asked) for (const field of Object.values(components.schemas[name].properties ?? {})) delete field['x-optional']
  return components.schemas
}

async function types(schemas) {
  const document = { openapi: '3.1.0', info: { title: 'caisson', version: 'v1' }, paths: {}, components: { schemas } }
  const nodes = await openapiTS(document, {
    transform(schema) {
      const name = scalar(schema)
      return name && ts.factory.createTypeReferenceNode(name)
    },
  })
  return `import type { ${scalars.join(', ')} } from '../scalars.js'\n\n${astToString(nodes)}`
}

// kind is how the decoder reads a field: a scalar or a message, "[]" for lists, "{}" for maps,
// "!" for a message that is always there.
function kind(schema) {
  if (schema.$ref) return schema.$ref.split('/').at(-1)
  if (schema.type === 'array') return `${kind(schema.items)}[]`
  if (schema.type === 'object') return `${kind(schema.additionalProperties)}{}`
  return scalar(schema) ?? { integer: 'number', number: 'number', string: 'string', boolean: 'boolean' }[schema.type]
}

function fields(schemas) {
  const lines = Object.entries(schemas)
    .filter(([name]) => name !== 'Error')
    .map(([name, schema]) => {
      const list = Object.entries(schema.properties ?? {}).map(([field, s]) => `    ${field}: '${kind(s)}${s.$ref && schema.required?.includes(field) ? '!' : ''}',\n`)
      return list.length === 0 ? `  ${name}: {},\n` : `  ${name}: {\n${list.join('')}  },\n`
    })
  return `/** The fields of each message, and how they are read. */\nexport const fields = {\n${lines.join('')}} as const\n`
}

function codes() {
  const names = Object.fromEntries(
    [...read('api/sbxerr/codes.go').matchAll(/^\t(\w+)\s+Code = "(SBX-\d+)"/gm)].map(([, name, code]) => [name, code]),
  )
  const row = /^\t\{(\w+), "((?:[^"\\]|\\.)*)", Class\w+, \d+, (?:true|false), ".*"\},$/gm
  const rows = [...read('api/sbxerr/table.go').matchAll(row)].map(([, name, summary]) => ({ name, summary }))
  const unread = Object.keys(names).filter((name) => !rows.some((row) => row.name === name))
  if (unread.length > 0 || rows.length !== Object.keys(names).length) {
    throw new Error(`codes.go and table.go differ, or were not understood: ${unread}`)
  }
  const classes = rows.map(({ name, summary }) => `/** ${names[name]}: ${summary}. */\nexport class ${name}Error extends CaissonError {}\n`)
  const map = rows.map(({ name }) => `  '${names[name]}': ${name}Error,\n`)
  return (
    `import { CaissonError } from '../errors.js'\n\n${classes.join('\n')}\n` +
    `/** The class of each code. */\nexport const byCode: Readonly<Record<string, typeof CaissonError>> = {\n${map.join('')}}\n`
  )
}

const out = process.argv[2] ?? here('../src/generated')
mkdirSync(out, { recursive: true })
const all = schemas()
const openapi = head('api/openapi/openapi.json')
writeFileSync(`${out}/openapi.ts`, openapi + (await types(all)))
writeFileSync(`${out}/fields.ts`, openapi + fields(all))
writeFileSync(`${out}/codes.ts`, head('api/sbxerr/codes.go and api/sbxerr/table.go') + codes())
