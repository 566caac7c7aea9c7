package tokens

import "encoding/json"

// most bounds each number that an answer may tell.
const most = 1 << 40

// Count is what a model read and wrote for one request or many.
type Count struct {
	Input     uint64 `json:"input,omitempty"`     // that it read
	Cached    uint64 `json:"cached,omitempty"`    // of Input: from its cache
	Stored    uint64 `json:"stored,omitempty"`    // of Input: that it put into its cache
	Output    uint64 `json:"output,omitempty"`    // that it wrote
	Reasoning uint64 `json:"reasoning,omitempty"` // of Output: that are not part of the answer
}

// Total is all that was read and written.
func (c Count) Total() uint64 { return c.Input + c.Output }

// Plus is c and d.
func (c Count) Plus(d Count) Count {
	return Count{c.Input + d.Input, c.Cached + d.Cached, c.Stored + d.Stored, c.Output + d.Output, c.Reasoning + d.Reasoning}
}

// told is a usage as an answer has it.
type told struct {
	Prompt     number  `json:"prompt_tokens"`
	Completion number  `json:"completion_tokens"`
	Input      number  `json:"input_tokens"`
	Output     number  `json:"output_tokens"`
	Read       number  `json:"cache_read_input_tokens"`
	Created    number  `json:"cache_creation_input_tokens"`
	PromptOf   details `json:"prompt_tokens_details"`
	InputOf    details `json:"input_tokens_details"`
	WroteOf    details `json:"completion_tokens_details"`
	OutputOf   details `json:"output_tokens_details"`
}

type details struct {
	Cached    number `json:"cached_tokens"`
	Reasoning number `json:"reasoning_tokens"`
}

// number is what a server says of a count. What is none counts as nothing.
type number uint64

// UnmarshalJSON never fails.
func (n *number) UnmarshalJSON(b []byte) error {
	var f float64
	if json.Unmarshal(b, &f) == nil && f > 0 {
		*n = number(min(f, most))
	}
	return nil
}

// more is the larger one of each number: events of a stream repeat and complete each other.
func (t told) more(u told) told {
	return told{
		max(t.Prompt, u.Prompt), max(t.Completion, u.Completion), max(t.Input, u.Input), max(t.Output, u.Output), max(t.Read, u.Read), max(t.Created, u.Created),
		t.PromptOf.more(u.PromptOf), t.InputOf.more(u.InputOf), t.WroteOf.more(u.WroteOf), t.OutputOf.more(u.OutputOf),
	}
}

func (d details) more(e details) details {
	return details{max(d.Cached, e.Cached), max(d.Reasoning, e.Reasoning)}
}

// count brings both styles into one form: what OpenAI reads includes its cache, what Anthropic
// reads does not.
func (t told) count() Count {
	return Count{
		Input:  uint64(max(t.Prompt, t.Input) + t.Read + t.Created),
		Cached: uint64(max(t.PromptOf.Cached, t.InputOf.Cached) + t.Read), Stored: uint64(t.Created),
		Output: uint64(max(t.Completion, t.Output)), Reasoning: uint64(max(t.WroteOf.Reasoning, t.OutputOf.Reasoning)),
	}
}
