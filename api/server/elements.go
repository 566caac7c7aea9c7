package server

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/sbxerr"
)

// maxElements is how much one message may hold, in fields, entries of lists and of
// maps. An empty one takes 2 bytes of the message, and decoded 50 times as much.
// Arguments and environment of a command may have 65536 each.
const maxElements = 160 << 10

// smallMessage is a length below which nothing has too many elements, in bytes.
const smallMessage = 64 << 10

func errElements() error {
	return sbxerr.New(sbxerr.APIUsage, "server.decode", "the message holds more than %d fields and entries", maxElements)
}

// plainProto is protobuf's own form of messages, of which none may hold too much.
type plainProto struct{}

// Name implements [connect.Codec].
func (plainProto) Name() string { return "proto" }

// Marshal implements [connect.Codec].
func (c plainProto) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is for Connect, which has buffers.
func (plainProto) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(to, m)
}

// Unmarshal implements [connect.Codec].
func (plainProto) Unmarshal(data []byte, message any) error {
	m, err := protoMessage(message)
	if err != nil {
		return err
	}
	if len(data) > smallMessage && elementsOf(data, m.ProtoReflect().Descriptor(), 0) > maxElements {
		return errElements()
	}
	return proto.Unmarshal(data, m)
}

// elementsOf adds what a message of type d holds to n, until that is too much. What
// is malformed ends it: that is refused elsewhere.
func elementsOf(data []byte, d protoreflect.MessageDescriptor, n int) int {
	for len(data) > 0 && n <= maxElements {
		number, kind, head := protowire.ConsumeTag(data)
		if head < 0 {
			return n
		}
		size := protowire.ConsumeFieldValue(number, kind, data[head:])
		if size < 0 {
			return n
		}
		n++
		f := d.Fields().ByNumber(number)
		if kind == protowire.BytesType && f != nil && f.Message() != nil {
			inner, _ := protowire.ConsumeBytes(data[head:])
			n = elementsOf(inner, f.Message(), n)
		}
		data = data[head+size:]
	}
	return n
}

// jsonElements counts the commas of a JSON text: each is one more element.
func jsonElements(data []byte) int {
	n := 0
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		}
	}
	return n
}
