package codex

import (
	"io"
	"sync"
)

// maxInput bounds the input that a process has not read yet, in bytes.
const maxInput = 1 << 20

// input is what Codex types, until the process takes it.
type input struct {
	mu   sync.Mutex
	data []byte
	ids  map[string]bool // of the writes that came
	more chan struct{}   // holds one where data may have come
	done chan struct{}   // closed: the process has ended
}

func newInput() *input {
	return &input{ids: map[string]bool{}, more: make(chan struct{}, 1), done: make(chan struct{})}
}

// add takes p, or says that there is no room. A write that Codex repeats, as it got no
// answer, is taken once.
func (in *input) add(id string, p []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ids[id] {
		return true
	}
	if len(in.data)+len(p) > maxInput {
		return false
	}
	in.ids[id] = true
	in.data = append(in.data, p...)
	select {
	case in.more <- struct{}{}:
	default:
	}
	return true
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	for {
		in.mu.Lock()
		n := copy(p, in.data)
		in.data = in.data[n:]
		in.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-in.more:
		case <-in.done:
			return 0, io.EOF
		}
	}
}
