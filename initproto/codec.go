package initproto

// FormatError says what is wrong with a packet or a payload.
type FormatError string

// Error renders the reason.
func (e FormatError) Error() string { return "malformed message: " + string(e) }

// Encode renders m as a packet.
func Encode(m Message) []byte {
	e := encoder{b: make([]byte, 0, 1+m.size())}
	e.u8(uint8(m.kind()))
	m.encode(&e)
	return e.b
}

// Decode reads the packet b. It accepts exactly what Encode can produce from
// values in range; the error is a FormatError.
func Decode(b []byte) (Message, error) {
	if len(b) == 0 {
		return nil, FormatError("empty packet")
	}
	d := decoder{b: b[1:]}
	m, ok := decodeKind(Kind(b[0]), &d)
	switch {
	case m == nil:
		return nil, FormatError("unknown kind")
	case d.short || len(d.b) != 0:
		return nil, FormatError("wrong length")
	case !ok:
		return nil, FormatError("value out of range")
	}
	return m, nil
}

func decodeKind(k Kind, d *decoder) (Message, bool) {
	if k < KindHello {
		return decodeRequest(k, d)
	}
	return decodeReport(k, d)
}

// encoder appends little-endian values.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = append(e.b, byte(v), byte(v>>8)) }
func (e *encoder) u32(v uint32) { e.b = append(e.b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24)) }
func (e *encoder) i64(v int64)  { e.u32(uint32(v)); e.u32(uint32(uint64(v) >> 32)) }

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

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
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

func (d *decoder) u16() uint16 {
	low := uint16(d.u8())
	return uint16(d.u8())<<8 | low
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

func (d *decoder) str() string {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)) { // also where an int has 32 bits
		d.take(-1)
		return ""
	}
	return string(d.take(int(n)))
}
