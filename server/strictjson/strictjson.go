// Package strictjson reads the JSON of the API, which apijson writes: an unknown field is refused
// with the nearest right name, so that a misspelt limit does not become no limit.
package strictjson

import (
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// MaxElements is how much one message may hold, in fields, entries of lists and of
// maps. An empty one takes 2 bytes of the message, and decoded 50 times as much.
// Arguments and environment of a command may have 65536 each.
const MaxElements = 160 << 10

// maxNamed is how many of them may have a name in JSON: fields and entries of maps, which cost
// more to read.
const maxNamed = 72 << 10

// mostMisfit bounds the bodies, in bytes, that are read once more to say what is wrong.
const mostMisfit = 256 << 10

// SmallMessage is a length below which nothing has too many elements, in bytes.
const SmallMessage = 64 << 10

// ErrElements refuses a message that holds too much.
func ErrElements() error {
	return sbxerr.New(sbxerr.APIUsage, "strictjson.decode", "the message holds more than %d fields and entries", MaxElements)
}

// Unmarshal reads m. Its errors are [sbxerr.APIUsage].
func Unmarshal(data []byte, m proto.Message) error {
	if len(data) == 0 {
		return refuse("the body is empty, send a JSON object such as {}")
	}
	if err := checkElements(data); err != nil {
		return err
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		d := m.ProtoReflect().Descriptor()
		if len(data) <= mostMisfit {
			if text := misfit(data, d); text != "" {
				return refuse("%s", sbxerr.ClipTo(text, maxText))
			}
		}
		return refuse("%s", explain(err.Error(), data, d))
	}
	return nil
}

func refuse(format string, args ...any) error {
	return sbxerr.WithRemedy(sbxerr.APIUsage, "strictjson.decode", fmt.Errorf(format, args...),
		"docs/reference/routes.md shows a request of each route")
}

// checkElements refuses a JSON text that holds too much.
func checkElements(data []byte) error {
	if len(data) <= SmallMessage {
		return nil
	}
	n, named := elements(data)
	switch {
	case n > MaxElements:
		return ErrElements()
	case named > maxNamed:
		return sbxerr.New(sbxerr.APIUsage, "strictjson.decode", "the message holds more than %d fields and entries of maps", maxNamed)
	}
	return nil
}

// elements counts the commas of a JSON text, of which each is one more element, and the colons,
// of which each is one with a name.
func elements(data []byte) (n, named int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		case c == ':' && !quoted:
			named++
		}
	}
	return n, named
}

// protojsonError is how that package words its errors. The space is one of two, at random.
var protojsonError = regexp.MustCompile(`^proto:[\s\x{a0}]*(syntax error )?\(line (\d+):(\d+)\): (.*)$`)

// maxText bounds an error, in bytes: it quotes names of any length.
const maxText = 4 << 10

// explain says in our words why data, a message of type d, could not be read.
func explain(text string, data []byte, d protoreflect.MessageDescriptor) string {
	m := protojsonError.FindStringSubmatch(text)
	switch {
	case strings.HasSuffix(text, "unexpected EOF") && json.Valid(data):
		return `a string in the body has half of an escaped character (\ud800 to \udfff)`
	case strings.HasSuffix(text, "unexpected EOF"):
		return "the body is not JSON: it ends too early"
	case m == nil:
		text = strings.TrimLeft(strings.TrimPrefix(text, "proto:"), " \u00a0")
		return sbxerr.ClipTo("the body cannot be read: "+text, maxText)
	}
	where := fmt.Sprintf("line %s, column %s of the body", m[2], m[3])
	if m[1] != "" {
		where = "the body is not JSON: line " + m[2] + ", column " + m[3]
	}
	return sbxerr.ClipTo(where+": "+suggest(protoNames(m[4], d), d), maxText)
}

var fieldName = regexp.MustCompile(`\bfield (\w+)`)

// protoNames names the fields in text as the API does: the library takes JSON's own form.
func protoNames(text string, d protoreflect.MessageDescriptor) string {
	return fieldName.ReplaceAllStringFunc(text, func(match string) string {
		word := strings.TrimPrefix(match, "field ")
		for _, name := range FieldNames(d) {
			if strings.EqualFold(strings.ReplaceAll(name, "_", ""), word) {
				return "field " + name
			}
		}
		return match
	})
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

// suggest adds the nearest field that a message of type d can hold at any depth. The
// library says the unknown name, but not in which object it stood.
func suggest(text string, d protoreflect.MessageDescriptor) string {
	match := unknownField.FindStringSubmatch(text)
	if match == nil {
		return text
	}
	near := sbxerr.Nearest(match[1], FieldNames(d))
	if near == match[1] {
		return text + " here: it belongs " + place(near, d)
	}
	if near != "" {
		return fmt.Sprintf("%s; did you mean %q?", text, near)
	}
	return text
}

// place says into which object of a message of type d the field name belongs: of several
// the outermost, of these the first. A message of d has such a field.
func place(name string, d protoreflect.MessageDescriptor) string {
	for path, o := range objects(d) {
		switch {
		case o.Fields().ByName(protoreflect.Name(name)) == nil:
		case path == "":
			return "to the outermost object"
		default:
			return fmt.Sprintf("into %q", path)
		}
	}
	return "into another object"
}

// FieldNames are the names of the fields that a message of type d can hold at any depth.
func FieldNames(d protoreflect.MessageDescriptor) []string {
	var names []string
	for _, o := range objects(d) {
		for i := range o.Fields().Len() {
			names = append(names, string(o.Fields().Get(i).Name()))
		}
	}
	return names
}

// objects yields the messages of our own that one of type d can hold, each type once, by
// their paths: the outermost first, which has none.
func objects(d protoreflect.MessageDescriptor) iter.Seq2[string, protoreflect.MessageDescriptor] {
	type object struct {
		path string
		d    protoreflect.MessageDescriptor
	}
	return func(yield func(string, protoreflect.MessageDescriptor) bool) {
		seen := map[protoreflect.FullName]bool{d.FullName(): true}
		for queue := []object{{"", d}}; len(queue) > 0; queue = queue[1:] {
			o := queue[0]
			if !yield(o.path, o.d) {
				return
			}
			for i := range o.d.Fields().Len() {
				f := o.d.Fields().Get(i)
				m := f.Message()
				if m == nil || seen[m.FullName()] || m.ParentFile().Package() != d.ParentFile().Package() {
					continue
				}
				seen[m.FullName()] = true
				queue = append(queue, object{strings.TrimPrefix(o.path+"."+string(f.Name()), "."), m})
			}
		}
	}
}
