package files

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/initproto"
)

// decode reads a body of any kind, and renders it again.
func decode(kind Kind, body []byte) (m any, frame []byte, err error) {
	switch kind {
	case KindRequest:
		r, err := DecodeRequest(body)
		return r, r.Frame(), err
	case KindEntry:
		i, err := DecodeInfo(body)
		return i, i.Frame(), err
	case KindDone:
		d, err := DecodeDone(body)
		return d, d.Frame(), err
	case KindFailure:
		f, err := DecodeFailure(body)
		return f, f.Frame(), err
	case KindEvent:
		e, err := DecodeEvent(body)
		return e, e.Frame(), err
	}
	return nil, Frame(kind), nil
}

type framer interface{ Frame() []byte }

var long = strings.Repeat("p", MaxPath)

var messages = []framer{
	Request{Op: OpStat, Flags: FlagFollow, Path: "/"},
	Request{Op: OpCopyIn, Flags: allFlags, Mode: 0o7777, Depth: MaxDepth, Offset: 1<<63 - 1, Limit: 1<<63 - 1, Path: long, To: long},
	Info{Type: TypeFile, Size: 7, Mode: 0o644, Mtime: -1, Nanos: 999999999, Path: "a/\xff"},
	Info{Type: TypeSymlink, Link: long, Path: long, UID: 1<<32 - 1, GID: 1, Size: 1<<63 - 1, Mode: 0o7777, Mtime: 1<<63 - 1},
	Done{}, Done{Truncated: true, Entries: 1, Bytes: 2},
	Failure{Errno: syscall.ENOENT, Path: "/x"}, Failure{Reason: ReasonVersion},
	Event{Type: EventOverflow}, Event{Type: EventCreate, Path: "a"},
}

func TestDecodeIsTheInverseOfFrame(t *testing.T) {
	for _, m := range messages {
		b := m.Frame()
		kind, n, err := ParseHeader(b[:HeaderSize])
		if err != nil || n != len(b)-HeaderSize {
			t.Fatalf("%#v: %v, body of %d bytes in a frame of %d", m, err, n, len(b))
		}
		got, again, err := decode(kind, b[HeaderSize:])
		if err != nil || !reflect.DeepEqual(got, any(m)) || !bytes.Equal(again, b) {
			t.Errorf("decode(%#v) = %#v, %v", m, got, err)
		}
		for _, bad := range [][]byte{b[HeaderSize : len(b)-1], append(bytes.Clone(b[HeaderSize:]), 0)} {
			if _, _, err := decode(kind, bad); !errors.Is(err, initproto.FormatError("wrong length")) {
				t.Errorf("%#v with another length: %v", m, err)
			}
		}
	}
}

func TestDecodeRefusesWhatIsOutOfRange(t *testing.T) {
	tooLong := long + "p"
	for _, m := range []framer{
		Request{Path: "/"},
		Request{Op: opEnd, Path: "/"},
		Request{Op: OpStat, Flags: allFlags + 1},
		Request{Op: OpStat, Mode: 0o10000},
		Request{Op: OpList, Depth: MaxDepth + 1},
		Request{Op: OpRead, Offset: -1},
		Request{Op: OpRead, Limit: -1},
		Request{Op: OpStat, Path: "/\x00"},
		Request{Op: OpStat, Path: tooLong},
		Request{Op: OpMove, Path: "/", To: "\x00"},
		Info{},
		Info{Type: typeEnd},
		Info{Type: TypeFile, Mode: 0o10000},
		Info{Type: TypeFile, Size: -1},
		Info{Type: TypeFile, Nanos: 1e9},
		Info{Type: TypeFile, Link: "x"},
		Info{Type: TypeFile, Path: "a\x00b"},
		Info{Type: TypeSymlink, Link: "a\x00b"},
		Info{Type: TypeSymlink, Link: tooLong},
		Done{Entries: -1},
		Done{Bytes: -1},
		Failure{},
		Failure{Errno: maxErrno + 1},
		Failure{Reason: reasonEnd},
		Failure{Reason: ReasonLink, Errno: 1},
		Failure{Errno: 1, Path: "\x00"},
		Event{},
		Event{Type: eventEnd},
		Event{Type: EventWrite, Path: tooLong},
	} {
		b := m.Frame()
		if got, _, err := decode(Kind(b[0]), b[HeaderSize:]); !errors.Is(err, initproto.FormatError("value out of range")) {
			t.Errorf("decode(%#v) = %#v, %v", m, got, err)
		}
	}
	b := Request{Op: OpStat}.Frame()
	b[HeaderSize] = Version + 1
	if _, err := DecodeRequest(b[HeaderSize:]); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
}

func TestParseHeaderBoundsTheBody(t *testing.T) {
	for _, tc := range []struct {
		kind Kind
		n    int
		want error
	}{
		{KindData, 1, nil},
		{KindData, MaxData, nil},
		{KindData, MaxData + 1, initproto.FormatError("wrong length")},
		{KindData, 0, initproto.FormatError("wrong length")},
		{KindData, 1<<32 - 1, initproto.FormatError("wrong length")},
		{KindEntry, maxBody, nil},
		{KindEntry, maxBody + 1, initproto.FormatError("wrong length")},
		{KindEnd, 0, nil},
		{KindEnd, 1, initproto.FormatError("wrong length")},
		{KindReady, 1, initproto.FormatError("wrong length")},
		{0, 0, initproto.FormatError("unknown kind")},
		{255, 0, initproto.FormatError("unknown kind")},
	} {
		b := make([]byte, HeaderSize)
		PutHeader(b, tc.kind, tc.n)
		kind, n, err := ParseHeader(b)
		if !errors.Is(err, tc.want) || err == nil && (kind != tc.kind || n != tc.n) {
			t.Errorf("ParseHeader(%d, %d) = %d, %d, %v", tc.kind, tc.n, kind, n, err)
		}
	}
	if _, _, err := ParseHeader(nil); err == nil {
		t.Error("a header without bytes is taken")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{"unknown": true}
	for v := TypeFile; v < typeEnd; v++ {
		if seen[v.String()] {
			t.Errorf("type %d is named %q", v, v)
		}
		seen[v.String()] = true
	}
	for v := EventCreate; v < eventEnd; v++ {
		if v.String() == "unknown" {
			t.Errorf("event %d has no name", v)
		}
	}
	if typeEnd.String() != "unknown" || eventEnd.String() != "unknown" || Type(0).String() != "unknown" {
		t.Error("what is out of range has a name")
	}
}

// The bytes are an interface: a daemon meets processes of an older build.
func TestWireFormatIsFixed(t *testing.T) {
	for _, tc := range []struct {
		m    framer
		want string
	}{
		{
			Request{Op: OpRead, Flags: FlagMode, Mode: 0o644, Depth: 1, Offset: 2, Limit: 3, Path: "/a", To: "b"},
			"\x01\x26\x00\x00\x00" + "\x01\x03\x04" + "\xa4\x01\x00\x00" + "\x01\x00\x00\x00" +
				"\x02\x00\x00\x00\x00\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00/a" + "\x01\x00\x00\x00b",
		},
		{Failure{Errno: 2, Path: "x"}, "\x23\x0a\x00\x00\x00" + "\x00\x02\x00\x00\x00\x01\x00\x00\x00x"},
		{Event{Type: EventRemove, Path: "x"}, "\x21\x06\x00\x00\x00" + "\x03\x01\x00\x00\x00x"},
		{Done{Truncated: true, Entries: 1, Bytes: 2}, "\x22\x11\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"},
	} {
		if got := string(tc.m.Frame()); got != tc.want {
			t.Errorf("%#v is %q, want %q", tc.m, got, tc.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range messages {
		b := m.Frame()
		f.Add(b[0], b[HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		header := make([]byte, HeaderSize)
		PutHeader(header, Kind(kind), len(body))
		k, n, err := ParseHeader(header)
		if err != nil || k == KindData {
			return
		}
		_, again, err := decode(k, body[:n])
		var format initproto.FormatError
		switch {
		case err != nil && !errors.As(err, &format):
			t.Fatalf("decode: %T", err)
		case err == nil && !bytes.Equal(again, append(header, body...)):
			t.Fatalf("%q is rendered as %q", body, again)
		}
	})
}
