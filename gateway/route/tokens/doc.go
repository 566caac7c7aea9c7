// Package tokens counts what models read and wrote, from their answers as they pass: those of
// the APIs of OpenAI (chat completions, responses, embeddings) and Anthropic (messages), whole
// or as server-sent events. It holds nothing back, and its memory does not grow with an answer.
package tokens
