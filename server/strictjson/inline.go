package strictjson

import (
	"bytes"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// UnmarshalInline reads m from an object that has the fields of m's message field inline
// beside those of m. Its errors are [sbxerr.APIUsage].
func UnmarshalInline(data []byte, m proto.Message, inline string) error {
	outer := m.ProtoReflect()
	field := outer.Descriptor().Fields().ByName(protoreflect.Name(inline))
	inner := outer.Mutable(field).Message().Interface()
	if err := checkElements(data); err != nil {
		return err
	}
	list, err := membersOf(data)
	if err != nil { // the errors of any other body
		return Unmarshal(data, inner)
	}
	for _, one := range list {
		if one.name == inline {
			return refuse("there is no field %q: give its fields in the outermost object, as %s", inline, example(field.Message()))
		}
		if hasField(outer.Descriptor(), one.name) || hasField(field.Message(), one.name) {
			continue
		}
		if near := misspelt(one.name, outer.Descriptor(), field); near != "" {
			return refuse("unknown field %q; did you mean %q?", sbxerr.Clip(one.name), near)
		}
		return Unmarshal(only(data, list, func(m member) bool { return m == one }), inner) // which refuses it
	}
	own := func(one member) bool { return hasField(outer.Descriptor(), one.name) }
	if err := Unmarshal(only(data, list, func(one member) bool { return !own(one) }), inner); err != nil {
		return err
	}
	if !slices.ContainsFunc(list, own) {
		return nil
	}
	rest := outer.New().Interface()
	if err := Unmarshal(only(data, list, own), rest); err != nil {
		return err
	}
	proto.Merge(m, rest)
	return nil
}

// example is an object with the first field of d.
func example(d protoreflect.MessageDescriptor) string {
	return `{"` + string(d.Fields().Get(0).Name()) + `": …}`
}

// misspelt is the field of outer that an unknown name means; empty where a field in inline is
// nearer, or none is near.
func misspelt(name string, outer protoreflect.MessageDescriptor, inline protoreflect.FieldDescriptor) string {
	var names []string
	for i := range outer.Fields().Len() {
		if f := outer.Fields().Get(i); f != inline {
			names = append(names, string(f.Name()))
		}
	}
	near := sbxerr.Nearest(name, append(slices.Clone(names), FieldNames(inline.Message())...))
	if slices.Contains(names, near) {
		return near
	}
	return ""
}

// hasField reports whether name is one of the two names of a field of d.
func hasField(d protoreflect.MessageDescriptor, name string) bool {
	return d.Fields().ByName(protoreflect.Name(name)) != nil || d.Fields().ByJSONName(name) != nil
}

// member is one name and value of an object, by its place in the text.
type member struct {
	name       string
	begin, end int // of both
	comma      int // before them; of the first member: none
}

// membersOf returns those of an object.
func membersOf(data []byte) (list []member, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, errNoObject
	}
	for d.More() {
		from := int(d.InputOffset())
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		begin := from + bytes.IndexByte(data[from:], '"')
		list = append(list, member{name.(string), begin, int(d.InputOffset()), from + max(0, bytes.IndexByte(data[from:begin], ','))})
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data[d.InputOffset():])) > 0 {
		return nil, errNoObject
	}
	return list, nil
}

var errNoObject = refuse("the body is no object")

// only is data with some members of its object. All else is blank, so that an error tells
// the right line and column.
func only(data []byte, list []member, takes func(member) bool) []byte {
	out := blank(data)
	out[bytes.IndexByte(data, '{')], out[bytes.LastIndexByte(data, '}')] = '{', '}'
	first := true
	for _, one := range list {
		if !takes(one) {
			continue
		}
		copy(out[one.begin:], data[one.begin:one.end])
		if !first {
			out[one.comma] = ','
		}
		first = false
	}
	return out
}

// blank is as much white space as data, with the same lines.
func blank(data []byte) []byte {
	out := bytes.Repeat([]byte{' '}, len(data))
	for i, c := range data {
		if c == '\n' {
			out[i] = c
		}
	}
	return out
}
