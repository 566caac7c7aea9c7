package apijson_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api/apijson"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

func TestMarshal(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 2, 15, 4, 5, 120_000_000, time.UTC))
	for _, tt := range []struct {
		message proto.Message
		want    string
	}{
		{&caissonv1.Volume{}, `{"name":"","owner":0,"created_at":null,"used_by":[],"size_bytes":0,"inodes":0,"used_bytes":0,"used_inodes":0}`},
		{&caissonv1.Volume{Name: "a\xff<\u2028", CreatedAt: at, UsedBy: []string{"x", "y"}}, `{"name":"a�< ","owner":0,"created_at":"2026-01-02T15:04:05.12Z","used_by":["x","y"],"size_bytes":0,"inodes":0,"used_bytes":0,"used_inodes":0}`},
		{&caissonv1.Rlimit{Soft: 1<<53 - 1, Hard: math.MaxUint64}, `{"name":"","soft":9007199254740991,"hard":"18446744073709551615"}`},
		{&caissonv1.ExecLimits{MemoryBytes: proto.Int64(-1 << 53), Pids: proto.Int64(0)}, `{"memory_bytes":"-9007199254740992","milli_cpu":null,"pids":0}`},
		{&caissonv1.Stage{Name: "a", Duration: durationpb.New(90 * time.Second)}, `{"name":"a","duration":"90s"}`},
		{&caissonv1.Stage{Duration: durationpb.New(-1_000_050_000)}, `{"name":"","duration":"-1.00005s"}`},
		{&caissonv1.UsageSample{CpuPercent: 0.1}, `{"time":null,"cpu_percent":0.1,"memory_bytes":0,"pids":0,"io_read_bytes":0,"io_write_bytes":0,"sent_bytes":0,"received_bytes":0}`},
		{&caissonv1.InfoResponse{Sandboxes: map[string]int32{"b": 1, "a": 2}}, `{"sandboxes":{"a":2,"b":1},"execs":0,"queued":0,"pools":[],"networks":[],"capacity":null,"available":null}`},
		{&caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: &caissonv1.Output{Data: []byte("a")}}}, `{"started":null,"stdout":{"data":"YQ=="},"stderr":null,"exit":null,"finished":null}`},
		{&caissonv1.Event{Id: "1", Data: &caissonv1.EventData{Args: []string{}}}, `{"id":"1","data":{}}`},
		{&caissonv1.InspectImageResponse{ConfigJson: []byte(`{"User":"1"}`), Report: &caissonv1.ImportReport{}}, `{"image":null,"config_json":{"User":"1"},"layers":[],"report":{"entries":0,"bytes":0,"stripped":{}}}`},
		{&caissonv1.InspectImageResponse{ConfigJson: []byte(`{`)}, `{"image":null,"config_json":null,"layers":[],"report":null}`},
	} {
		if got := string(apijson.Form{Nulls: true, Documents: true}.Append(nil, tt.message)); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		got := tt.message.ProtoReflect().New().Interface()
		err := protojson.Unmarshal(apijson.Marshal(tt.message), got)
		if valid := proto.CheckInitialized(tt.message) == nil && !strings.Contains(tt.want, "\ufffd"); err != nil || valid && !proto.Equal(got, tt.message) {
			t.Errorf("%s is read back as %v: %v", apijson.Marshal(tt.message), got, err)
		}
	}
}

func stdout(o *caissonv1.Output) *caissonv1.ExecEvent {
	return &caissonv1.ExecEvent{Kind: &caissonv1.ExecEvent_Stdout{Stdout: o}}
}

// FuzzOutput: a line is read back as the message that it was made of.
func FuzzOutput(f *testing.F) {
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
			line := apijson.Marshal(want)
			if bytes.ContainsAny(line, "\n") {
				t.Fatalf("%q", line)
			}
			got := &caissonv1.ExecEvent{}
			if err := protojson.Unmarshal(line, got); err != nil || !proto.Equal(got, want) {
				t.Errorf("%s: %v is read back as %v: %v", line, want, got, err)
			}
		}
	})
}

func BenchmarkOutput(b *testing.B) {
	text := strings.Repeat("a line of a usual length, with \"quotes\"\n", 3000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		apijson.Marshal(stdout(&caissonv1.Output{Offset: 1, Text: &text}))
	}
}
