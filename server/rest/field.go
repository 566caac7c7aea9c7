package rest

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/strictjson"
)

// setField sets a field of m from text. Dots lead into messages inside. A list takes
// one entry for each time that it is given, a map one KEY=VALUE.
func setField(m protoreflect.Message, name, value string) error {
	outer, inner, nested := strings.Cut(name, ".")
	f := m.Descriptor().Fields().ByName(protoreflect.Name(outer))
	if f == nil {
		return unknownField(m.Descriptor(), name)
	}
	if nested {
		if f.Message() == nil || f.IsList() || f.IsMap() {
			return unknownField(m.Descriptor(), name)
		}
		return setField(m.Mutable(f).Message(), inner, value)
	}
	switch {
	case f.IsMap():
		return setEntry(m.Mutable(f).Map(), f, value)
	case f.IsList():
		v, err := parse(f, value)
		if err != nil {
			return err
		}
		m.Mutable(f).List().Append(v)
		return nil
	case m.Has(f):
		return refuse("%s is given twice", f.Name())
	}
	v, err := parse(f, value)
	if err != nil {
		return err
	}
	m.Set(f, v)
	return nil
}

func unknownField(d protoreflect.MessageDescriptor, name string) error {
	if near := sbxerr.Nearest(name, strictjson.FieldNames(d)); near != "" && near != name {
		return refuse("there is no field %q, did you mean %q?", sbxerr.Clip(name), near)
	}
	return refuse("there is no field %q in this request", sbxerr.Clip(name))
}

func setEntry(m protoreflect.Map, f protoreflect.FieldDescriptor, value string) error {
	k, text, found := strings.Cut(value, "=")
	if !found {
		return refuse("%s is %q: give KEY=VALUE", f.Name(), sbxerr.Clip(value))
	}
	v, err := parse(f.MapValue(), text)
	if err != nil {
		return err
	}
	key := protoreflect.ValueOfString(k).MapKey()
	if m.Has(key) {
		return refuse("%s has the key %q twice", f.Name(), sbxerr.Clip(k))
	}
	m.Set(key, v)
	return nil
}

// parse reads a value as the query holds it. A boolean that stands alone is true.
func parse(f protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	v, err := parseKind(f, text)
	if err != nil {
		return v, refuse("%s is %q: give %s", f.Name(), sbxerr.Clip(text), wanted(f))
	}
	return v, nil
}

func parseKind(f protoreflect.FieldDescriptor, text string) (v protoreflect.Value, err error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		b := text == ""
		if !b {
			b, err = strconv.ParseBool(text)
		}
		return protoreflect.ValueOfBool(b), err
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(text, 10, 32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind:
		n, err := strconv.ParseInt(text, 10, 64)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(text, 10, 32)
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.Uint64Kind:
		n, err := strconv.ParseUint(text, 10, 64)
		return protoreflect.ValueOfUint64(n), err
	case protoreflect.MessageKind:
		return parseTime(f, text)
	}
	return v, refuse("not a value of a query")
}

// The messages that a query can hold.
var (
	durationName  = proto.MessageName((*durationpb.Duration)(nil))
	timestampName = proto.MessageName((*timestamppb.Timestamp)(nil))
)

func parseTime(f protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	switch f.Message().FullName() {
	case durationName:
		d, err := time.ParseDuration(text)
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), err
	case timestampName:
		t, err := time.Parse(time.RFC3339, text)
		return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), err
	}
	return protoreflect.Value{}, refuse("not a value of a query")
}

// wanted says what parse reads for f.
func wanted(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return "a whole number"
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return "a whole number of 0 or more"
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case durationName:
			return "a duration such as 10s or 1m30s"
		case timestampName:
			return "a time such as 2026-01-02T15:04:05Z"
		}
	}
	return "it in the JSON of the body"
}
