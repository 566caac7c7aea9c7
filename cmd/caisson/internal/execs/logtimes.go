package execs

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// stampFormat is RFC 3339 with a width of its own, so that lines are in columns.
const stampFormat = "2006-01-02T15:04:05.000000000Z"

// dated begins each line with the time at which its first byte came, or - where nobody
// knows it.
type dated struct{ prefixed }

// Place implements api.Placer.
func (d *dated) Place(_ int64, came time.Time) error {
	d.prefix = append(d.prefix[:0], "- "...)
	if !came.IsZero() {
		d.prefix = append(came.UTC().AppendFormat(d.prefix[:0], stampFormat), ' ')
	}
	return nil
}

// Skip implements api.Skipper. What comes next is not the rest of the line that has begun.
func (d *dated) Skip(n int64) error {
	if err := d.end(); err != nil {
		return err
	}
	return skip(d.w, n)
}

// datedLines is w, or what writes dated lines to it.
func datedLines(w io.Writer, timestamps bool) io.Writer {
	if timestamps {
		return &dated{prefixed{w: w}}
	}
	return w
}

// logTime is when the bytes of a stream from an offset on came, up to the next time; null
// is that nobody knows.
type logTime struct {
	Offset int64      `json:"offset"`
	Time   *time.Time `json:"time"`
}

// timedLogs is the output of a command with its times.
type timedLogs struct {
	output cli.Message
	times  struct {
		Stdout []logTime `json:"stdout_times"`
		Stderr []logTime `json:"stderr_times"`
	}
}

// MarshalJSON implements json.Marshaler: the fields of all in one object.
func (l timedLogs) MarshalJSON() ([]byte, error) {
	output, err := l.output.MarshalJSON()
	times, err2 := json.Marshal(l.times)
	return append(append(output[:len(output)-1], ','), times[1:]...), errors.Join(err, err2)
}

// datedKept keeps a stream with its times.
type datedKept struct {
	*keptStream
	times []logTime
}

// Place implements api.Placer.
func (d *datedKept) Place(offset int64, came time.Time) error {
	d.beginAt(offset)
	t := logTime{Offset: offset}
	if !came.IsZero() {
		came = came.UTC()
		t.Time = &came
	}
	if n := len(d.times); n == 0 || !SameTime(d.times[n-1].Time, t.Time) {
		d.times = append(d.times, t)
	}
	return nil
}

func SameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
