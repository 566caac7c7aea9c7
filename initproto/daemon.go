package initproto

import "syscall"

// What the daemon says.

// Welcome ends the greeting: from here on this connection is the one.
type Welcome struct {
	// OrphanGraceMillis is how long PID 1 goes on without a daemon once this
	// connection is lost, by CLOCK_BOOTTIME. 0: it exits at once.
	OrphanGraceMillis uint32
	// Ends says that a descriptor comes along: of the file that PID 1 fills
	// when the grace is over, see Ended. It takes the place of an earlier one.
	Ends bool
}

// Adopt asks for the Held of a Hello. Until then PID 1 may send no descriptor.
type Adopt struct{}

// Start asks for a command. Its descriptors are the payload, the content of the
// input files, the two files of Tag, the streams that Stdio names and the outside ends
// that Held names.
type Start struct {
	Exec     uint32 // chosen by the daemon, never 0, never twice in PID 1's life
	Stdio    Stdio
	Held     Stdio // PID 1 keeps the other ends of these until Release; all but Staging are in Stdio too
	Place    bool  // the command waits for a Proceed
	Inputs   bool  // the payload names input files, whose content comes along
	Tag      bool  // the command begins in a cgroup: the files by which a thread enters and leaves it come along
	Terminal bool  // the command gets a terminal, which PID 1 copies to and from the streams
	Rows     uint16
	Cols     uint16
}

// Proceed lets a command run that was Placed.
type Proceed struct{ Exec uint32 }

// Abandon ends the start of a command that was Placed; a Failed follows. It
// says nothing to a command that runs.
type Abandon struct{ Exec uint32 }

// Signal asks for a signal to what a command consists of.
type Signal struct {
	Exec   uint32
	Signal syscall.Signal // 1 to MaxSignal
	Scope  Scope
}

// CloseStdin closes the end of a command's input that PID 1 holds, and the staging pipe.
type CloseStdin struct{ Exec uint32 }

// Resize tells a command's terminal its size. What has ended or has no
// terminal is left alone.
type Resize struct {
	Exec       uint32
	Rows, Cols uint16
}

// Release closes what PID 1 holds of a command, and has it forget the command
// once its end has been reported. A number that PID 1 does not know is ignored.
type Release struct{ Exec uint32 }

func (Welcome) kind() Kind    { return KindWelcome }
func (Adopt) kind() Kind      { return KindAdopt }
func (Start) kind() Kind      { return KindStart }
func (Proceed) kind() Kind    { return KindProceed }
func (Abandon) kind() Kind    { return KindAbandon }
func (Signal) kind() Kind     { return KindSignal }
func (CloseStdin) kind() Kind { return KindCloseStdin }
func (Resize) kind() Kind     { return KindResize }
func (Release) kind() Kind    { return KindRelease }

func (Welcome) size() int    { return 5 }
func (Adopt) size() int      { return 0 }
func (Start) size() int      { return 11 }
func (Proceed) size() int    { return 4 }
func (Abandon) size() int    { return 4 }
func (Signal) size() int     { return 6 }
func (CloseStdin) size() int { return 4 }
func (Resize) size() int     { return 8 }
func (Release) size() int    { return 4 }

// The bits of a Start's flags.
const (
	flagPlace = 1 << iota
	flagTerminal
	flagInputs
	flagTag
	allFlags = flagPlace | flagTerminal | flagInputs | flagTag
)

func (m Start) encode(e *encoder) {
	e.u32(m.Exec)
	e.u8(uint8(m.Stdio))
	e.u8(uint8(m.Held))
	var flags uint8
	if m.Place {
		flags |= flagPlace
	}
	if m.Terminal {
		flags |= flagTerminal
	}
	if m.Inputs {
		flags |= flagInputs
	}
	if m.Tag {
		flags |= flagTag
	}
	e.u8(flags)
	e.u16(m.Rows)
	e.u16(m.Cols)
}

func decodeStart(d *decoder) (Start, bool) {
	m := Start{Exec: d.u32(), Stdio: Stdio(d.u8()), Held: Stdio(d.u8())}
	flags := d.u8()
	m.Place, m.Terminal = flags&flagPlace != 0, flags&flagTerminal != 0
	m.Inputs, m.Tag = flags&flagInputs != 0, flags&flagTag != 0
	m.Rows, m.Cols = d.u16(), d.u16()
	switch {
	case m.Exec == 0, m.Stdio&^allStdio != 0, !m.Held.holdsWith(m.Stdio), flags&^allFlags != 0:
		return m, false
	case m.Terminal: // whose output is one stream
		return m, m.Stdio&Stderr == 0
	}
	return m, m.Rows == 0 && m.Cols == 0
}

// holdsWith reports whether the ends s can be held of a command with these streams.
func (s Stdio) holdsWith(streams Stdio) bool {
	return s&^Staging&^streams == 0 && s&^allHeld == 0 && (s&Staging == 0 || s&Stdin != 0)
}

func (m Welcome) encode(e *encoder)    { e.u32(m.OrphanGraceMillis); e.u8(one(m.Ends)) }
func (Adopt) encode(*encoder)          {}
func (m Proceed) encode(e *encoder)    { e.u32(m.Exec) }
func (m Abandon) encode(e *encoder)    { e.u32(m.Exec) }
func (m Signal) encode(e *encoder)     { e.u32(m.Exec); e.u8(uint8(m.Signal)); e.u8(uint8(m.Scope)) }
func (m CloseStdin) encode(e *encoder) { e.u32(m.Exec) }
func (m Resize) encode(e *encoder)     { e.u32(m.Exec); e.u16(m.Rows); e.u16(m.Cols) }
func (m Release) encode(e *encoder)    { e.u32(m.Exec) }

func one(yes bool) uint8 {
	if yes {
		return 1
	}
	return 0
}

func decodeRequest(k Kind, d *decoder) (Message, bool) {
	switch k {
	case KindStart:
		return decodeStart(d)
	case KindWelcome:
		m := Welcome{OrphanGraceMillis: d.u32()}
		ends := d.u8()
		m.Ends = ends == 1
		return m, ends <= 1
	case KindAdopt:
		return Adopt{}, true
	case KindSignal:
		m := Signal{Exec: d.u32(), Signal: syscall.Signal(d.u8()), Scope: Scope(d.u8())}
		return m, m.Exec != 0 && m.Signal > 0 && m.Signal <= MaxSignal && m.Scope < scopeEnd
	case KindResize:
		m := Resize{Exec: d.u32(), Rows: d.u16(), Cols: d.u16()}
		return m, m.Exec != 0
	case KindProceed:
		m := Proceed{Exec: d.u32()}
		return m, m.Exec != 0
	case KindAbandon:
		m := Abandon{Exec: d.u32()}
		return m, m.Exec != 0
	case KindCloseStdin:
		m := CloseStdin{Exec: d.u32()}
		return m, m.Exec != 0
	case KindRelease:
		m := Release{Exec: d.u32()}
		return m, m.Exec != 0
	}
	return nil, false
}
