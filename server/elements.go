package server

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/caisson-run/caisson/server/strictjson"
)

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
	if len(data) > strictjson.SmallMessage && elementsOf(data, m.ProtoReflect().Descriptor(), 0) > strictjson.MaxElements {
		return strictjson.ErrElements()
	}
	return proto.Unmarshal(data, m)
}

// elementsOf adds what a message of type d holds to n, until that is too much. What
// is malformed ends it: that is refused elsewhere.
func elementsOf(data []byte, d protoreflect.MessageDescriptor, n int) int {
	for len(data) > 0 && n <= strictjson.MaxElements {
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
		if kind == protowire.BytesType && f != nil && f.Message() != nil && !f.IsMap() { // of an entry only the last key and value are kept
			inner, _ := protowire.ConsumeBytes(data[head:])
			n = elementsOf(inner, f.Message(), n)
		}
		data = data[head+size:]
	}
	return n
}
