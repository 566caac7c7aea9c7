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
	if number, p, ok := onlyBytes(data); ok && holdsOutput(m, number) {
		setOutput(m, number, copied(p))
		return nil
	}
	message, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", m)
	}
	return proto.Unmarshal(data, message)
}

// The fields of RunResponse and of StreamExecResponse that hold a piece of
// output.
const stdoutField, stderrField = 2, 3

// Those of LogsResponse.
const stdoutLogField, stderrLogField = 1, 2

// holdsOutput reports whether m is a message whose field of that number holds a
// piece of output.
func holdsOutput(m any, number int) bool {
	switch m.(type) {
	case *caissonv1.StreamExecResponse, *caissonv1.RunResponse:
		return number == stdoutField || number == stderrField
	case *caissonv1.LogsResponse:
		return number == stdoutLogField || number == stderrLogField
	}
	return false
}

// setOutput makes p what m holds.
func setOutput(m any, number int, p []byte) {
	switch m := m.(type) {
	case *caissonv1.StreamExecResponse:
		if number == stdoutField {
			m.Kind = &caissonv1.StreamExecResponse_Stdout{Stdout: p}
		} else {
			m.Kind = &caissonv1.StreamExecResponse_Stderr{Stderr: p}
		}
	case *caissonv1.RunResponse:
		if number == stdoutField {
			m.Kind = &caissonv1.RunResponse_Stdout{Stdout: p}
		} else {
			m.Kind = &caissonv1.RunResponse_Stderr{Stderr: p}
		}
	case *caissonv1.LogsResponse:
		if number == stdoutLogField {
			m.Kind = &caissonv1.LogsResponse_Stdout{Stdout: p}
		} else {
			m.Kind = &caissonv1.LogsResponse_Stderr{Stderr: p}
		}
	}
}

// onlyBytes reads a message that is one field of a number below 16, with a
// length: its number, and its bytes.
func onlyBytes(data []byte) (number int, p []byte, ok bool) {
	number, head, ok := headOfBytes(data, len(data))
	if !ok {
		return 0, nil, false
	}
	return number, data[head:], true
}

// headOfBytes is onlyBytes for the first bytes of a message of that size: the
// number of its field, and where the field's bytes begin.
func headOfBytes(data []byte, size int) (number, head int, ok bool) {
	if len(data) < 2 || data[0]&0x87 != 2 {
		return 0, 0, false
	}
	length, n := binary.Uvarint(data[1:])
	if n <= 0 || size < 1+n || length != uint64(size-1-n) {
		return 0, 0, false
	}
	return int(data[0] >> 3), 1 + n, true
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
	b := buffer(len(p))
	copy(b, p)
	return b
}

// buffer returns memory for n bytes of output.
func buffer(n int) []byte {
	if n <= smallOutput || n > maxOutput {
		return make([]byte, n)
	}
	b, _ := buffers.Get().(*[maxOutput]byte) // there is nothing else in it
	return b[:n]
}

// release takes back the bytes of a message.
func release(p []byte) {
	if cap(p) == maxOutput {
		buffers.Put((*[maxOutput]byte)(p[:maxOutput]))
	}
}
