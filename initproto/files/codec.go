package files

import (
	"syscall"

	"github.com/caisson-run/caisson/initproto"
)

// maxBody bounds what is not Data: an Info with two paths.
const maxBody = 2*(4+MaxPath) + 64

// ParseHeader reads the header of a frame: its first HeaderSize bytes. The error is
// an initproto.FormatError.
func ParseHeader(b []byte) (Kind, int, error) {
	if len(b) != HeaderSize {
		return 0, 0, initproto.FormatError("wrong header length")
	}
	d := decoder{b: b}
	kind, n := Kind(d.u8()), d.u32()
	most := uint32(0)
	switch kind {
	case KindData:
		most = MaxData
	case KindRequest, KindEntry, KindEvent, KindDone, KindFailure:
		most = maxBody
	case KindEnd, KindAbort, KindReady:
	default:
		return 0, 0, initproto.FormatError("unknown kind")
	}
	if n > most || n == 0 && kind == KindData {
		return 0, 0, initproto.FormatError("wrong length")
	}
	return kind, int(n), nil
}

// PutHeader writes the header of a frame with a body of n bytes into b.
func PutHeader(b []byte, kind Kind, n int) {
	b[0], b[1], b[2], b[3], b[4] = byte(kind), byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
}

// frame renders a whole frame.
func frame(kind Kind, size int, body func(*encoder)) []byte {
	e := encoder{b: make([]byte, HeaderSize, HeaderSize+size)}
	body(&e)
	PutHeader(e.b, kind, len(e.b)-HeaderSize)
	return e.b
}

// Frame renders a frame that has no body.
func Frame(kind Kind) []byte { return frame(kind, 0, func(*encoder) {}) }

// Frame renders r.
func (r Request) Frame() []byte {
	return frame(KindRequest, 40+len(r.Path)+len(r.To), func(e *encoder) {
		e.u8(Version)
		e.u8(uint8(r.Op))
		e.u8(uint8(r.Flags))
		e.u32(r.Mode)
		e.u32(r.Depth)
		e.i64(r.Offset)
		e.i64(r.Limit)
		e.str(r.Path)
		e.str(r.To)
	})
}

// ErrVersion is what DecodeRequest returns for a Request of another Version.
const ErrVersion = initproto.FormatError("unknown version")

// DecodeRequest reads the body of a KindRequest.
func DecodeRequest(b []byte) (Request, error) {
	d := decoder{b: b}
	if d.u8() != Version {
		return Request{}, ErrVersion
	}
	r := Request{
		Op: Op(d.u8()), Flags: Flags(d.u8()), Mode: d.u32(), Depth: d.u32(),
		Offset: d.i64(), Limit: d.i64(), Path: d.str(), To: d.str(),
	}
	ok := r.Op > 0 && r.Op < opEnd && r.Flags&^allFlags == 0 && r.Mode <= 0o7777 && r.Depth <= MaxDepth &&
		r.Offset >= 0 && r.Limit >= 0 && validPath(r.Path) && validPath(r.To)
	return r, d.end(ok)
}

// Frame renders i.
func (i Info) Frame() []byte {
	return frame(KindEntry, 48+len(i.Path)+len(i.Link), func(e *encoder) {
		e.u8(uint8(i.Type))
		e.u32(i.Mode)
		e.u32(i.UID)
		e.u32(i.GID)
		e.i64(i.Size)
		e.i64(i.Mtime)
		e.u32(i.Nanos)
		e.str(i.Path)
		e.str(i.Link)
	})
}

// DecodeInfo reads the body of a KindEntry.
func DecodeInfo(b []byte) (Info, error) {
	d := decoder{b: b}
	i := Info{
		Type: Type(d.u8()), Mode: d.u32(), UID: d.u32(), GID: d.u32(),
		Size: d.i64(), Mtime: d.i64(), Nanos: d.u32(), Path: d.str(), Link: d.str(),
	}
	ok := i.Type > 0 && i.Type < typeEnd && i.Mode <= 0o7777 && i.Size >= 0 && i.Nanos < 1e9 &&
		validPath(i.Path) && validPath(i.Link) && (i.Link == "" || i.Type == TypeSymlink || i.Type == TypeLink)
	return i, d.end(ok)
}

// Frame renders m.
func (m Done) Frame() []byte {
	return frame(KindDone, 17, func(e *encoder) {
		e.bool(m.Truncated)
		e.i64(m.Entries)
		e.i64(m.Bytes)
	})
}

// DecodeDone reads the body of a KindDone.
func DecodeDone(b []byte) (Done, error) {
	d := decoder{b: b}
	truncated := d.u8()
	m := Done{Truncated: truncated == 1, Entries: d.i64(), Bytes: d.i64()}
	return m, d.end(truncated <= 1 && m.Entries >= 0 && m.Bytes >= 0)
}

// Frame renders f.
func (f Failure) Frame() []byte {
	return frame(KindFailure, 16+len(f.Path), func(e *encoder) {
		e.u8(uint8(f.Reason))
		e.u32(uint32(f.Errno))
		e.str(f.Path)
	})
}

// DecodeFailure reads the body of a KindFailure.
func DecodeFailure(b []byte) (Failure, error) {
	d := decoder{b: b}
	f := Failure{Reason: Reason(d.u8()), Errno: syscall.Errno(d.u32()), Path: d.str()}
	ok := f.Reason < reasonEnd && f.Errno <= maxErrno && (f.Errno != 0) == (f.Reason == ReasonErrno) && validPath(f.Path)
	return f, d.end(ok)
}

// Frame renders v.
func (v Event) Frame() []byte {
	return frame(KindEvent, 8+len(v.Path), func(e *encoder) {
		e.u8(uint8(v.Type))
		e.str(v.Path)
	})
}

// DecodeEvent reads the body of a KindEvent.
func DecodeEvent(b []byte) (Event, error) {
	d := decoder{b: b}
	v := Event{Type: EventType(d.u8()), Path: d.str()}
	return v, d.end(v.Type > 0 && v.Type < eventEnd && validPath(v.Path))
}

// validPath bounds any path or target. What more it must be depends on who
// says it and about what.
func validPath(s string) bool {
	if len(s) > MaxPath {
		return false
	}
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return true
}

// encoder appends little-endian values.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = append(e.b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24)) }
func (e *encoder) i64(v int64)  { e.u32(uint32(v)); e.u32(uint32(uint64(v) >> 32)) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
		return
	}
	e.u8(0)
}

func (e *encoder) str(s string) {
	e.u32(uint32(len(s)))
	e.b = append(e.b, s...)
}

// decoder takes what encoder appended. Past the end it returns zeroes and
// remembers that it did.
type decoder struct {
	b     []byte
	short bool
}

func (d *decoder) take(n uint32) []byte {
	if uint64(n) > uint64(len(d.b)) { // also where an int has 32 bits
		d.short, d.b = true, nil
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	p := d.take(1)
	if p == nil {
		return 0
	}
	return p[0]
}

func (d *decoder) u32() uint32 {
	p := d.take(4)
	if p == nil {
		return 0
	}
	return uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24
}

func (d *decoder) i64() int64 {
	low := uint64(d.u32())
	return int64(uint64(d.u32())<<32 | low)
}

func (d *decoder) str() string { return string(d.take(d.u32())) }

// end is the verdict on a body: all of it was taken, and its values are ok.
func (d *decoder) end(ok bool) error {
	switch {
	case d.short || len(d.b) != 0:
		return initproto.FormatError("wrong length")
	case !ok:
		return initproto.FormatError("value out of range")
	}
	return nil
}
