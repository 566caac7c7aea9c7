package server

import (
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/sbxerr"
)

// strictJSON is the API's JSON: names as in the proto, absent values written
// out (an empty list is []), and unknown fields refused with the nearest right
// name, so that a misspelt limit does not become no limit.
type strictJSON struct{ name string }

func (c strictJSON) Name() string { return c.name }

func (strictJSON) Marshal(message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
}

func (strictJSON) Unmarshal(data []byte, message any) error {
	m, err := protoMessage(message)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return sbxerr.New(sbxerr.APIUsage, "server.decode", "the body is empty, send a JSON object such as {}")
	}
	if len(data) > smallMessage && jsonElements(data) > maxElements {
		return errElements()
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		err = suggestField(err, m.ProtoReflect().Descriptor())
		return sbxerr.New(sbxerr.APIUsage, "server.decode", "%s", clipped(err.Error())) // which quotes names of any length
	}
	return nil
}

// markingJSON is strictJSON for Connect, whose own error for what a codec refuses has
// no ErrorDetail: the message says itself that it could not be read, and the
// interceptor refuses it.
type markingJSON struct{ strictJSON }

// unreadField is a number that no field of the API has.
const unreadField = protowire.MaxValidNumber

func (c markingJSON) Unmarshal(data []byte, message any) error {
	err := c.strictJSON.Unmarshal(data, message)
	m, ok := message.(proto.Message)
	var refusal *sbxerr.Error
	if !ok || !errors.As(err, &refusal) {
		return err
	}
	proto.Reset(m)
	mark := protowire.AppendTag(nil, unreadField, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(mark, refusal.Err.Error()))
	return nil
}

// unread is why a message could not be read; nil: it was.
func unread(message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return nil
	}
	number, kind, head := protowire.ConsumeTag(m.ProtoReflect().GetUnknown())
	if head < 0 || number != unreadField || kind != protowire.BytesType {
		return nil
	}
	why, _ := protowire.ConsumeString(m.ProtoReflect().GetUnknown()[head:])
	return sbxerr.New(sbxerr.APIUsage, "server.decode", "%s", why)
}

func protoMessage(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, sbxerr.New(sbxerr.Internal, "server.codec", "%T is not a message", message)
	}
	return m, nil
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

// suggestField adds the nearest field that a message of type d can hold at any
// depth. The library says the unknown name, but not where it stood.
func suggestField(err error, d protoreflect.MessageDescriptor) error {
	match := unknownField.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	names := fieldNames(d, map[protoreflect.FullName]bool{})
	near := sbxerr.Nearest(match[1], names)
	if near == match[1] {
		return fmt.Errorf("%w: it belongs into another object of the request", err)
	}
	if near != "" {
		return fmt.Errorf("%w; did you mean %q?", err, near)
	}
	return err
}

func fieldNames(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) []string {
	if seen[d.FullName()] {
		return nil
	}
	seen[d.FullName()] = true
	var names []string
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		names = append(names, string(f.Name()))
		if f.Message() != nil && f.Message().ParentFile().Package() == d.ParentFile().Package() {
			names = append(names, fieldNames(f.Message(), seen)...)
		}
	}
	return names
}
