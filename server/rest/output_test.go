package rest

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func stdout(o *caissonv1.Output) *caissonv1.ExecEvent {
	return &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: o}}
}

// FuzzOutputLine: a line is read back as the message that it was made of.
func FuzzOutputLine(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), []byte("a line\n"))
	f.Add(int64(1)<<53+1, int64(0), int64(1), []byte("\x00\x1f\"\\<&>\u2028ü\U0001f600"))
	f.Add(int64(7), int64(9), int64(1_700_000_000_123_456_000), []byte{0xff})
	f.Add(int64(-1), int64(-1), int64(-1), []byte{})
	f.Add(int64(0), int64(0), int64(1_700_000_000_000_000_000), []byte{})
	f.Fuzz(func(t *testing.T, offset, skipped, came int64, data []byte) {
		o := &caissonv1.Output{Offset: offset, Skipped: skipped}
		if came != 0 {
			o.Time = timestamppb.New(time.Unix(0, came))
		}
		if utf8.Valid(data) {
			o.Text = proto.String(string(data))
		} else {
			o.Data = data
		}
		for _, want := range []*caissonv1.ExecEvent{stdout(o), {Kind: &caissonv1.ExecEvent_Stderr{Stderr: o}}} {
			line, err := lineOf(want)
			if err != nil || bytes.ContainsAny(line, "\n") {
				t.Fatalf("%q, %v", line, err)
			}
			got := &caissonv1.ExecEvent{}
			if err := protojson.Unmarshal(line, got); err != nil || !proto.Equal(got, want) {
				t.Errorf("%s: %v is read back as %v: %v", line, want, got, err)
			}
		}
	})
}

func BenchmarkOutputLine(b *testing.B) {
	text := strings.Repeat("a line of a usual length, with \"quotes\"\n", 3000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := lineOf(stdout(&caissonv1.Output{Offset: 1, Text: &text})); err != nil {
			b.Fatal(err)
		}
	}
}

// TestControl: text that is mostly control characters, as zeros are, goes as bytes.
func TestControl(t *testing.T) {
	for data, text := range map[string]bool{
		"a\tb\r\n": true, "\x1b[31mred\x1b[0m\n": true, strings.Repeat("\n", 100): true,
		strings.Repeat("\x00", 512): false, "a\x00b\x00\x00": false,
	} {
		list := readable(stdout(&caissonv1.Output{Data: []byte(data)}))
		o := list[0].(*caissonv1.ExecEvent).GetStdout()
		if len(list) != 1 || (o.Text != nil) != text || string(o.Data)+o.GetText() != data {
			t.Errorf("%q: %v", data, list)
		}
	}
}
