package initproto

import "syscall"

// Payload is what a command is started with. Limits that it does not name and
// the umask are those of PID 1, which the OCI runtime set.
type Payload struct {
	Args   []string // Args[0] is looked up in the PATH of Env unless it has a slash
	Env    []string // K=V, complete: nothing of PID 1's own is added
	Cwd    string   // absolute
	UID    uint32   // in the sandbox's user namespace
	GID    uint32
	Groups []uint32 // supplementary groups, complete

	Rlimits []Rlimit // at most one of a resource
	Inputs  []Input  // at most MaxInputs
}

// Rlimit is a resource limit for setrlimit(2). Soft is at most Hard; 1<<64 - 1
// is no limit.
type Rlimit struct {
	Resource uint32 // RLIMIT_*, below MaxRlimits
	Soft     uint64
	Hard     uint64
}

// Input is a file that exists as long as the command runs. Its content comes with the Start.
type Input struct {
	Path string // absolute and clean; nothing is there yet
	Mode uint32 // permission bits
	Size uint32 // in bytes
}

// Encode renders p, or returns E2BIG when that exceeds MaxPayload.
func (p Payload) Encode() ([]byte, error) {
	size := p.encodedSize()
	if size > MaxPayload {
		return nil, syscall.E2BIG
	}
	e := encoder{b: make([]byte, 0, size)}
	e.strs(p.Args)
	e.strs(p.Env)
	e.str(p.Cwd)
	e.u32(p.UID)
	e.u32(p.GID)
	e.u32(uint32(len(p.Groups)))
	for _, g := range p.Groups {
		e.u32(g)
	}
	e.u32(uint32(len(p.Rlimits)))
	for _, r := range p.Rlimits {
		e.u32(r.Resource)
		e.i64(int64(r.Soft))
		e.i64(int64(r.Hard))
	}
	e.u32(uint32(len(p.Inputs)))
	for _, f := range p.Inputs {
		e.str(f.Path)
		e.u32(f.Mode)
		e.u32(f.Size)
	}
	return e.b, nil
}

const rlimitSize = 4 + 8 + 8

func (p Payload) encodedSize() int {
	size := 4 + 4 + 4 + len(p.Cwd) + 4 + 4 + 4 + 4*len(p.Groups) + 4 + rlimitSize*len(p.Rlimits) + 4
	for _, s := range p.Args {
		size += 4 + len(s)
	}
	for _, s := range p.Env {
		size += 4 + len(s)
	}
	for _, f := range p.Inputs {
		size += 4 + len(f.Path) + 4 + 4
	}
	return size
}

// DecodePayload reads what Encode made. It allocates no more than a small
// multiple of len(b); the error is a FormatError.
func DecodePayload(b []byte) (Payload, error) {
	if len(b) > MaxPayload {
		return Payload{}, FormatError("payload too long")
	}
	d := decoder{b: b}
	p := Payload{Args: d.strs(), Env: d.strs(), Cwd: d.str(), UID: d.u32(), GID: d.u32()}
	if n := d.count(); n > 0 {
		p.Groups = make([]uint32, n)
		for i := range p.Groups {
			p.Groups[i] = d.u32()
		}
	}
	var limits, inputs bool
	p.Rlimits, limits = d.rlimits()
	p.Inputs, inputs = d.inputs()
	switch {
	case !limits:
		return Payload{}, FormatError("resource limit out of range")
	case !inputs:
		return Payload{}, FormatError("input file out of range")
	case d.short || len(d.b) != 0:
		return Payload{}, FormatError("wrong payload length")
	case len(p.Args) == 0:
		return Payload{}, FormatError("no command")
	}
	return p, nil
}

func (d *decoder) rlimits() (list []Rlimit, ok bool) {
	n := d.count()
	if n > MaxRlimits {
		return nil, false
	}
	var seen [MaxRlimits]bool
	for range n {
		r := Rlimit{Resource: d.u32(), Soft: uint64(d.i64()), Hard: uint64(d.i64())}
		if r.Resource >= MaxRlimits || seen[r.Resource] || r.Soft > r.Hard {
			return nil, false
		}
		seen[r.Resource] = true
		list = append(list, r)
	}
	return list, true
}

func (d *decoder) inputs() (list []Input, ok bool) {
	n := d.count()
	if n > MaxInputs {
		return nil, false
	}
	for range n {
		f := Input{Path: d.str(), Mode: d.u32(), Size: d.u32()}
		if f.Mode&^0o777 != 0 || f.Path == "" || f.Path[0] != '/' {
			return nil, d.short // the length is what is wrong then
		}
		list = append(list, f)
	}
	return list, true
}

func (e *encoder) strs(list []string) {
	e.u32(uint32(len(list)))
	for _, s := range list {
		e.str(s)
	}
}

func (d *decoder) strs() []string {
	n := d.count()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.str()
	}
	return list
}

// count takes a number of elements of at least four bytes each, so what is
// allocated for them is bounded by what was sent.
func (d *decoder) count() int {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)/4) {
		d.take(-1)
		return 0
	}
	return int(n)
}
