package execs

import (
	"unicode/utf8"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/views"
)

type startLine struct {
	Type      string   `json:"type"`
	SandboxID string   `json:"sandbox_id"`
	Exec      string   `json:"exec_id"`
	PID       int64    `json:"pid"`
	Args      []string `json:"args"`
}

// dataLine is a piece of stdout or stderr at an offset of that stream, in
// bytes: as text where it is UTF-8, else as data in base64.
type dataLine struct {
	Type   string  `json:"type"`
	Text   *string `json:"text,omitempty"`
	Data   []byte  `json:"data,omitempty"`
	Offset int64   `json:"offset"`
}

// skippedLine says that bytes are left out, because the stream passed its limit.
type skippedLine struct {
	Type   string `json:"type"`
	Stream string `json:"stream"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

type usageLine struct {
	Type                string  `json:"type"`
	DurationMS          float64 `json:"duration_ms"`
	CPUMS               float64 `json:"cpu_ms"`
	MaxRSSBytes         int64   `json:"max_rss_bytes"`
	PeakMemoryBytes     *int64  `json:"peak_memory_bytes"`
	CPUThrottledPeriods int64   `json:"cpu_throttled_periods"`
}

type exitLine struct {
	Type string `json:"type"`
	Exec string `json:"exec_id"`
	views.ResultView
}

// output tells a command from the given offsets on.
func output(j cli.Jsonl, stdout, stderr int64, view func(*caissonv1.Result) views.ResultView) taskOutput {
	out := &jsonlStream{lines: j, name: "stdout", offset: stdout}
	errs := &jsonlStream{lines: j, name: "stderr", offset: stderr}
	return taskOutput{
		stdout: out, stderr: errs,
		start: func(e *caissonv1.Exec) { // a line that cannot be written shows with the next one
			_ = j.Line(startLine{"start", e.GetSandboxId(), e.GetId(), e.GetPid(), views.OrEmpty(e.GetArgs())})
		},
		end: func(r *caissonv1.Result) error { return cli.OwnOutput(end(j, r.GetExecId(), view(r), out, errs)) },
	}
}

func end(j cli.Jsonl, exec string, v views.ResultView, streams ...*jsonlStream) error {
	for _, s := range streams {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if err := j.Line(usageLine{"usage", v.DurationMS, v.CPUMS, v.MaxRSSBytes, v.PeakMemoryBytes, v.CPUThrottledPeriods}); err != nil {
		return err
	}
	return j.Line(exitLine{"exit", exec, v})
}

// jsonlStream is one stream of a command. A character that is cut by the end
// of a piece waits for its rest: text stays text.
type jsonlStream struct {
	lines  cli.Jsonl
	name   string
	offset int64 // of what was told
	cut    []byte
}

// Write implements io.Writer.
func (s *jsonlStream) Write(p []byte) (int, error) {
	data := p
	if len(s.cut) > 0 {
		data = append(s.cut, p...)
	}
	whole := len(data) - partial(data)
	if err := s.tell(data[:whole]); err != nil {
		return 0, err
	}
	s.cut = append([]byte(nil), data[whole:]...)
	return len(p), nil
}

// Skip implements api.Skipper.
func (s *jsonlStream) Skip(n int64) error {
	if err := s.flush(); err != nil {
		return err
	}
	line := skippedLine{"skipped", s.name, s.offset, n}
	s.offset += n
	return s.lines.Line(line)
}

// flush tells what waits for its rest.
func (s *jsonlStream) flush() error {
	cut := s.cut
	s.cut = nil
	return s.tell(cut)
}

func (s *jsonlStream) tell(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	line := dataLine{Type: s.name, Offset: s.offset}
	if utf8.Valid(p) {
		text := string(p)
		line.Text = &text
	} else {
		line.Data = p
	}
	s.offset += int64(len(p))
	return s.lines.Line(line)
}

// partial is how many bytes at the end of p begin a character that is not
// whole.
func partial(p []byte) int {
	for n := 1; n <= min(len(p), utf8.UTFMax-1); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
