package api

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// inLane is m as a lane carries it.
func inLane(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.AppendUvarint(nil, uint64(len(data))), data...)
}

// messagesInLane are one of each kind, and output of sizes that are handled
// differently.
func messagesInLane() []*caissonv1.RunResponse {
	messages := []*caissonv1.RunResponse{
		{Kind: &caissonv1.RunResponse_StdoutSkipped{StdoutSkipped: 1 << 40}},
		{Kind: &caissonv1.RunResponse_StderrSkipped{StderrSkipped: 1}},
		{Kind: &caissonv1.RunResponse_Result{Result: &caissonv1.Result{SandboxId: "x"}}},
	}
	for _, n := range []int{0, 1, 127, 128, smallOutput, smallOutput + 1, maxOutput, maxOutput + 1} {
		messages = append(messages,
			&caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Stdout{Stdout: bytes.Repeat([]byte("o"), n)}},
			&caissonv1.RunResponse{Kind: &caissonv1.RunResponse_Stderr{Stderr: bytes.Repeat([]byte("e"), n)}})
	}
	return messages
}

// TestNextInLane reads back what the library wrote.
func TestNextInLane(t *testing.T) {
	var lane []byte
	for _, m := range messagesInLane() {
		lane = append(lane, inLane(t, m)...)
	}
	r := bufio.NewReader(bytes.NewReader(append(lane, 0)))
	for _, want := range messagesInLane() {
		got, err := nextInLane[caissonv1.RunResponse](r)
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("got %.60v, %v, want %.60v", got, err, want)
		}
	}
	if _, err := nextInLane[caissonv1.RunResponse](r); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

// TestTornLane ends at every byte of a message: none is the end that was said.
func TestTornLane(t *testing.T) {
	for _, m := range messagesInLane() {
		whole := inLane(t, m)
		for n := 0; n < len(whole); n += 1 + n/40 {
			_, err := nextInLane[caissonv1.RunResponse](bufio.NewReader(bytes.NewReader(whole[:n])))
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
			}
		}
	}
}

// FuzzNextInLane: whatever a daemon sends is a message of a bounded size or an
// error, and read as the library would read it.
func FuzzNextInLane(f *testing.F) {
	for _, m := range messagesInLane()[:8] {
		f.Add(inLane(f, m))
	}
	f.Add(binary.AppendUvarint(nil, maxLaneMessage+1))
	f.Add([]byte{3, 2<<3 | 2, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := nextInLane[caissonv1.RunResponse](bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return
		}
		size, n := binary.Uvarint(data)
		want := new(caissonv1.RunResponse)
		if err := proto.Unmarshal(data[n:n+int(size)], want); err != nil || !proto.Equal(got, want) {
			t.Errorf("got %v, the library %v, %v", got, want, err)
		}
	})
}
