package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api/apijson"
	_ "github.com/caisson-run/caisson/api/caisson/v1"
)

// filler gives each field of a message a value of its own.
type filler struct{ next int64 }

// messages are those of an answer with all fields filled: one, or one for each of its kinds.
func messages(d protoreflect.MessageDescriptor) (list []proto.Message) {
	kinds := 1
	if d.Oneofs().Len() > 0 && !d.Oneofs().Get(0).IsSynthetic() {
		kinds = d.Oneofs().Get(0).Fields().Len()
	}
	for kind := range kinds {
		t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			panic(err) // every message of the API is generated
		}
		m := t.New()
		(&filler{}).fill(m, kind)
		list = append(list, m.Interface())
	}
	return list
}

func (f *filler) fill(m protoreflect.Message, kind int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if one := d.ContainingOneof(); one != nil && !one.IsSynthetic() && one.Fields().Get(kind) != d {
			continue
		}
		switch {
		case d.IsMap():
			entry := m.Mutable(d).Map()
			entry.Set(protoreflect.ValueOfString(f.text()).MapKey(), f.value(d.MapValue(), entry.NewValue()))
		case d.IsList():
			list := m.Mutable(d).List()
			list.Append(f.value(d, list.NewElement()))
		default:
			m.Set(d, f.value(d, m.NewField(d)))
		}
	}
}

func (f *filler) text() string {
	f.next++
	return fmt.Sprintf("text-%d", f.next)
}

func (f *filler) value(d protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	f.next++
	n := 1000 + f.next
	switch d.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(f.text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(fmt.Appendf(nil, `{"%s":0}`, f.text()))
	case protoreflect.BoolKind: // one value of two tells nothing
		return protoreflect.ValueOfBool(true)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) + 0.5)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	}
	switch v.Message().Interface().(type) {
	case *timestamppb.Timestamp:
		return protoreflect.ValueOfMessage(timestamppb.New(time.Unix(n, 0)).ProtoReflect())
	case *durationpb.Duration:
		return protoreflect.ValueOfMessage(durationpb.New(time.Duration(n)*time.Second + time.Second/4).ProtoReflect())
	}
	f.fill(v.Message(), 0)
	return v
}

// answers are the messages that calls answer with, and those in them.
func answers() map[string]protoreflect.MessageDescriptor {
	found := map[string]protoreflect.MessageDescriptor{}
	var visit func(protoreflect.MessageDescriptor)
	visit = func(d protoreflect.MessageDescriptor) {
		name := string(d.Name())
		if d.ParentFile().Package() != "caisson.v1" || d.IsMapEntry() || found[name] != nil {
			return
		}
		found[name] = d
		for i := range d.Fields().Len() {
			if of := d.Fields().Get(i).Message(); of != nil {
				visit(of)
			}
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("caisson.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				visit(f.Services().Get(i).Methods().Get(j).Output())
			}
		}
		return true
	})
	return found
}

// TestMessages: testdata/messages.json has every message of an answer, with a value in every
// field, as the daemon writes it. The tests of the command line and of both SDKs look for these
// values. -update writes it again.
func TestMessages(t *testing.T) {
	const file = "testdata/messages.json"
	lines := []string{}
	all := answers()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var texts []string
		for _, m := range messages(all[name]) {
			text := apijson.Marshal(m)
			back := m.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal(text, back); err != nil || !proto.Equal(back, m) {
				t.Errorf("%s is read back as another message: %v", text, err)
			}
			texts = append(texts, string(text))
		}
		lines = append(lines, fmt.Sprintf("%q: [%s]", name, strings.Join(texts, ",\n  ")))
	}
	want := "{" + strings.Join(lines, ",\n ") + "}\n"
	if !json.Valid([]byte(want)) || len(lines) < 60 {
		t.Fatalf("%d messages: %s", len(lines), want)
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, []byte(want)) {
		t.Errorf("%s is not what the daemon writes: -update writes it again, %v", file, err)
	}
}
