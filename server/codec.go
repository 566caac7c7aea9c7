package server

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/caisson-run/caisson/api/apijson"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/server/strictjson"
)

// markingJSON is strictjson for Connect, whose own error for what a codec refuses has
// no ErrorDetail: the message says itself that it could not be read, and the
// interceptor refuses it.
type markingJSON struct{ name string }

// Name implements [connect.Codec].
func (c markingJSON) Name() string { return c.name }

// Marshal implements [connect.Codec].
func (markingJSON) Marshal(message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return apijson.Marshal(m), nil
}

// unreadField is a number that no field of the API has.
const unreadField = protowire.MaxValidNumber

// Unmarshal implements [connect.Codec].
func (markingJSON) Unmarshal(data []byte, message any) error {
	m, err := protoMessage(message)
	if err != nil {
		return err
	}
	err = strictjson.Unmarshal(data, m)
	var refusal *sbxerr.Error
	if !errors.As(err, &refusal) {
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
