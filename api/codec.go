package api

import (
	"encoding/binary"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// codec is the binary codec of connect, but for messages that hold a piece of
// output: those come by the gigabyte, so their bytes are in a buffer that is
// used again. Whoever receives such a message calls release when the bytes are
// written.
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (codec) Marshal(m any) ([]byte, error) { return codec{}.MarshalAppend(nil, m) }

// MarshalAppend is what connect uses instead of Marshal where there is one.
func (codec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", m)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, message)
}

// Unmarshal implements connect.Codec.
func (codec) Unmarshal(data []byte, m any) error {
	switch m := m.(type) {
	case *caissonv1.StreamExecResponse:
		if tag, p, ok := onlyBytes(data); ok {
			switch tag {
			case 2:
				m.Kind = &caissonv1.StreamExecResponse_Stdout{Stdout: copied(p)}
				return nil
			case 3:
				m.Kind = &caissonv1.StreamExecResponse_Stderr{Stderr: copied(p)}
				return nil
			}
		}
	case *caissonv1.RunResponse:
		if tag, p, ok := onlyBytes(data); ok {
			switch tag {
			case 2:
				m.Kind = &caissonv1.RunResponse_Stdout{Stdout: copied(p)}
				return nil
			case 3:
				m.Kind = &caissonv1.RunResponse_Stderr{Stderr: copied(p)}
				return nil
			}
		}
	}
	message, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", m)
	}
	return proto.Unmarshal(data, message)
}

// onlyBytes reads a message that is one field of a number below 16, with a
// length: its number, and its bytes.
func onlyBytes(data []byte) (number int, p []byte, ok bool) {
	if len(data) < 2 || data[0]&0x87 != 2 {
		return 0, nil, false
	}
	size, n := binary.Uvarint(data[1:])
	if n <= 0 || size != uint64(len(data)-1-n) {
		return 0, nil, false
	}
	return int(data[0] >> 3), data[1+n:], true
}

// buffers are large enough for what the daemon sends at once.
var buffers = sync.Pool{New: func() any { return new([maxOutput]byte) }}

const (
	// maxOutput is the most that the daemon sends in one message, in bytes.
	maxOutput = 256 << 10
	// smallOutput is not worth a buffer of its own.
	smallOutput = 16 << 10
)

// copied returns p in memory of its own: data is connect's.
func copied(p []byte) []byte {
	if len(p) <= smallOutput || len(p) > maxOutput {
		return append(make([]byte, 0, len(p)), p...)
	}
	b, _ := buffers.Get().(*[maxOutput]byte) // there is nothing else in it
	return b[:copy(b[:], p)]
}

// release takes back the bytes of a message.
func release(p []byte) {
	if cap(p) == maxOutput {
		buffers.Put((*[maxOutput]byte)(p[:maxOutput]))
	}
}
