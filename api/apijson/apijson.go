// Package apijson writes messages as the JSON of the API, on one line. Names are those of the
// proto, durations are "1.5s", times are RFC 3339 in UTC, and bytes are base64. A number is a
// JSON number, or a string from 2^53 on, which not every reader of JSON keeps exactly. Zeros and
// empty lists are written. Absent messages and optional fields are left out, and in an [Event]
// and an [Output], of which there are many, zeros too.
//
// [Event]: https://pkg.go.dev/github.com/caisson-run/caisson/api/caisson/v1#Event
// [Output]: https://pkg.go.dev/github.com/caisson-run/caisson/api/caisson/v1#Output
package apijson

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Form is how JSON for the CLI differs from that of the API.
type Form struct {
	Nulls     bool // absent fields are null
	Documents bool // a field of bytes whose name ends in _json holds the document itself
}

// Marshal writes m.
func Marshal(m proto.Message) []byte { return Form{}.Append(nil, m) }

// Append appends m to b.
func (f Form) Append(b []byte, m proto.Message) []byte {
	return f.message(b, m.ProtoReflect(), false)
}

func (f Form) message(b []byte, m protoreflect.Message, sparse bool) []byte {
	d := m.Descriptor()
	switch d.FullName() {
	case "google.protobuf.Timestamp":
		return appendTime(b, m)
	case "google.protobuf.Duration":
		return appendDuration(b, m)
	case "caisson.v1.Event", "caisson.v1.Output":
		sparse = true
	}
	b = append(b, '{')
	first := true
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		absent := field.HasPresence() && !m.Has(field)
		if sparse && !m.Has(field) || absent && !f.Nulls {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, string(field.Name())), ':')
		if absent {
			b = append(b, "null"...)
			continue
		}
		b = f.field(b, field, m.Get(field), sparse)
	}
	return append(b, '}')
}

func (f Form) field(b []byte, d protoreflect.FieldDescriptor, v protoreflect.Value, sparse bool) []byte {
	switch {
	case d.IsMap():
		return f.entries(b, d.MapValue(), v.Map(), sparse)
	case d.IsList():
		b = append(b, '[')
		for i := range v.List().Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = f.value(b, d, v.List().Get(i), sparse)
		}
		return append(b, ']')
	case f.Documents && d.Kind() == protoreflect.BytesKind && strings.HasSuffix(string(d.Name()), "_json"):
		return appendDocument(b, v.Bytes())
	}
	return f.value(b, d, v, sparse)
}

func (f Form) entries(b []byte, d protoreflect.FieldDescriptor, m protoreflect.Map, sparse bool) []byte {
	values := map[string]protoreflect.Value{}
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		values[k.String()] = v
		return true
	})
	b = append(b, '{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = f.value(append(appendString(b, key), ':'), d, values[key], sparse)
	}
	return append(b, '}')
}

func (f Form) value(b []byte, d protoreflect.FieldDescriptor, v protoreflect.Value, sparse bool) []byte {
	switch of := v.Interface().(type) {
	case protoreflect.Message:
		return f.message(b, of, sparse)
	case string:
		return appendString(b, of)
	case []byte:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), of), '"')
	case bool:
		return strconv.AppendBool(b, of)
	case float32, float64:
		return appendFloat(b, v.Float())
	case uint32, uint64:
		return quoted(strconv.AppendUint(b, v.Uint(), 10), len(b), v.Uint() >= exact)
	case protoreflect.EnumNumber: // of other services than ours
		if named := d.Enum().Values().ByNumber(of); named != nil {
			return appendString(b, string(named.Name()))
		}
		return strconv.AppendInt(b, int64(of), 10)
	}
	return quoted(strconv.AppendInt(b, v.Int(), 10), len(b), v.Int() <= -exact || exact <= v.Int())
}

// exact is the first whole number whose float64 is that of another one too.
const exact = 1 << 53

// quoted puts quotes around what b has from a place on, if is is set.
func quoted(b []byte, from int, is bool) []byte {
	if !is {
		return b
	}
	return append(slices.Insert(b, from, '"'), '"')
}

func appendFloat(b []byte, n float64) []byte {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return append(strconv.AppendFloat(append(b, '"'), n, 'g', -1, 64), '"')
	}
	if size := math.Abs(n); size != 0 && (size < 1e-6 || size >= 1e21) {
		return strconv.AppendFloat(b, n, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, n, 'f', -1, 64)
}

// secondsOf returns the two fields of a time or duration.
func secondsOf(m protoreflect.Message) (seconds, nanos int64) {
	fields := m.Descriptor().Fields()
	return m.Get(fields.ByNumber(1)).Int(), m.Get(fields.ByNumber(2)).Int()
}

func appendTime(b []byte, m protoreflect.Message) []byte {
	seconds, nanos := secondsOf(m)
	return append(time.Unix(seconds, nanos).UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func appendDuration(b []byte, m protoreflect.Message) []byte {
	seconds, nanos := secondsOf(m)
	b = append(b, '"')
	if seconds < 0 || nanos < 0 {
		b = append(b, '-')
	}
	b = strconv.AppendInt(b, max(seconds, -seconds), 10)
	if nanos != 0 {
		digits := strconv.FormatInt(1e9+max(nanos, -nanos), 10)
		b = append(append(b, '.'), strings.TrimRight(digits[1:], "0")...)
	}
	return append(b, `s"`...)
}

// appendDocument appends JSON as it is. What is none becomes null: all around it stays readable.
func appendDocument(b, document []byte) []byte {
	if !json.Valid(document) {
		return append(b, "null"...)
	}
	return append(b, document...)
}

const hex = "0123456789abcdef"

// appendString appends s as a JSON string (RFC 8259, section 7).
func appendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	b = append(slices.Grow(b, len(s)*5/4+128), '"') // with what follows it
	written := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[written:i]...)
		written = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\t':
			b = append(b, `\t`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[written:]...)
	return append(b, '"')
}
