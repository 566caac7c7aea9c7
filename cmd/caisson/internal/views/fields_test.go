package views

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// filler gives each field of a message a value of its own, and notes how the CLI may print it.
type filler struct {
	next  int64
	forms map[string][]string // by the path of a field
}

func (f *filler) fill(path string, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		at := path + "." + string(d.Name())
		switch {
		case d.IsMap():
			entry := m.Mutable(d).Map()
			entry.Set(protoreflect.ValueOfString(f.text(at)).MapKey(), f.value(at, d.MapValue(), entry.NewValue()))
		case d.IsList():
			list := m.Mutable(d).List()
			list.Append(f.value(at, d, list.NewElement()))
		case d.Message() != nil:
			m.Set(d, f.value(at, d, m.NewField(d)))
		default:
			m.Set(d, f.value(at, d, m.Get(d)))
		}
	}
}

func (f *filler) text(at string) string {
	f.next++
	text := fmt.Sprintf("text-%d-", f.next)
	f.forms[at] = append(f.forms[at], text)
	return text
}

func (f *filler) value(at string, d protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	f.next++
	n := 1000 + f.next
	switch d.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(f.text(at))
	case protoreflect.BytesKind:
		text := f.text(at)
		return protoreflect.ValueOfBytes([]byte(`{"` + text + `":0}`))
	case protoreflect.BoolKind: // one value of two tells nothing
		return protoreflect.ValueOfBool(true)
	case protoreflect.MessageKind:
		return f.message(at, v, n)
	case protoreflect.DoubleKind:
		f.forms[at] = []string{fmt.Sprint(float64(n) + 0.5)}
		return protoreflect.ValueOfFloat64(float64(n) + 0.5)
	}
	f.forms[at] = []string{fmt.Sprint(n)}
	switch d.Kind() {
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	}
	return protoreflect.ValueOfInt64(n)
}

func (f *filler) message(at string, v protoreflect.Value, n int64) protoreflect.Value {
	switch v.Message().Interface().(type) {
	case *timestamppb.Timestamp:
		moment := time.Unix(n, 0).UTC()
		f.forms[at] = []string{moment.Format(time.RFC3339)}
		return protoreflect.ValueOfMessage(timestamppb.New(moment).ProtoReflect())
	case *durationpb.Duration:
		f.forms[at] = []string{fmt.Sprint(n, "000"), fmt.Sprint(n * 1000), fmt.Sprintf("%ds", n)}
		return protoreflect.ValueOfMessage(durationpb.New(time.Duration(n) * time.Second).ProtoReflect())
	}
	f.fill(at, v.Message())
	return v
}

// Every field of an answer is in the JSON of its command.
func TestJSONHasAllFields(t *testing.T) {
	for _, tt := range []struct {
		message proto.Message
		view    func(proto.Message) any
	}{
		{&caissonv1.Sandbox{}, func(m proto.Message) any { return SandboxViewOf(m.(*caissonv1.Sandbox)) }},
		{&caissonv1.InspectResponse{}, func(m proto.Message) any { return InspectViewOf(m.(*caissonv1.InspectResponse)) }},
		{&caissonv1.Exec{}, func(m proto.Message) any { return ExecViewOf(m.(*caissonv1.Exec)) }},
		{&caissonv1.Result{}, func(m proto.Message) any { return ResultViewOf(m.(*caissonv1.Result)) }},
		{&caissonv1.Image{}, func(m proto.Message) any { return ImageViewOf(m.(*caissonv1.Image)) }},
		{&caissonv1.Volume{}, func(m proto.Message) any { return VolumeViewOf(m.(*caissonv1.Volume)) }},
		{&caissonv1.Egress{}, func(m proto.Message) any { return egressViewOf(m.(*caissonv1.Egress)) }},
		{&caissonv1.Capability{}, func(m proto.Message) any { return CapabilityViewOf(m.(*caissonv1.Capability)) }},
		{&caissonv1.DoctorCheck{}, func(m proto.Message) any { return checkViewOf(m.(*caissonv1.DoctorCheck)) }},
		{&caissonv1.PoolStats{}, func(m proto.Message) any { return PoolViewOf(m.(*caissonv1.PoolStats)) }},
		{&caissonv1.UsageSample{}, func(m proto.Message) any { return sampleViewOf(m.(*caissonv1.UsageSample)) }},
		{&caissonv1.HistoryResponse{}, func(m proto.Message) any { return HistoryViewOf(m.(*caissonv1.HistoryResponse)) }},
		{&caissonv1.TrafficResponse{}, func(m proto.Message) any { return TrafficViewOf(m.(*caissonv1.TrafficResponse)) }},
	} {
		f := &filler{forms: map[string][]string{}}
		name := string(tt.message.ProtoReflect().Descriptor().Name())
		f.fill(name, tt.message.ProtoReflect())
		printed, err := json.Marshal(tt.view(tt.message))
		if err != nil {
			t.Fatal(err)
		}
		for path, forms := range f.forms {
			there := slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(string(printed), form) })
			ofTrace := strings.Contains(path, "esult.stages.") // run --trace alone prints them
			if there == ofTrace {
				t.Errorf("%s: in the JSON: %v", path, there)
			}
		}
	}
}
