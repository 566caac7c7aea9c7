package initproto

import "syscall"

// What PID 1 says.

// Hello is PID 1's first message.
type Hello struct {
	Version uint32
	PID     int // as PID 1 sees it: 1, unless a test runs it without a namespace
	Held    int // how many commands it has to hand over, up to MaxHeld
}

// Held hands over a command that was started for an earlier connection, with
// the outside ends that PID 1 holds. They come in the order of their numbers;
// whether the command has ended is told after the Welcome.
type Held struct {
	Exec  uint32
	PID   int // in the sandbox's pid namespace; free for another once the command has ended
	Stdio Stdio
}

// Placed answers a Start with Place: PID is there and waits.
type Placed struct {
	Exec uint32
	PID  int // in the sandbox's pid namespace, above 1; stays the command's
}

// Started answers a Start whose command runs.
type Started struct {
	Exec uint32
	PID  int // in the sandbox's pid namespace, above 1
}

// Failed answers a Start whose command does not run.
type Failed struct {
	Exec  uint32
	Stage Stage
	Errno syscall.Errno // never 0
}

// Signaled answers a Signal. ESRCH says that there was nothing to signal,
// EAGAIN that new processes came faster than they could be found.
type Signaled struct {
	Exec  uint32
	Errno syscall.Errno // 0: delivered
	Count int           // how many processes were signalled; 0 for a ScopeGroup
}

// Exited says how a command ended. Either Code or Signal is 0.
type Exited struct {
	Exec         uint32
	Code         uint8
	Signal       syscall.Signal
	UserMicros   int64 // of the command and the children that it waited for
	SystemMicros int64
	MaxRSSKiB    int64 // of the largest of these
	// Remaining counts the processes that outlive the command: all in the
	// sandbox but PID 1, zombies, and the sessions of other running commands.
	// It is taken as the command ends: some may be about to end too.
	// -1 says that they could not be counted.
	Remaining int
}

func (Hello) kind() Kind    { return KindHello }
func (Held) kind() Kind     { return KindHeld }
func (Placed) kind() Kind   { return KindPlaced }
func (Started) kind() Kind  { return KindStarted }
func (Failed) kind() Kind   { return KindFailed }
func (Signaled) kind() Kind { return KindSignaled }
func (Exited) kind() Kind   { return KindExited }

func (Hello) size() int    { return 12 }
func (Held) size() int     { return 9 }
func (Placed) size() int   { return 8 }
func (Started) size() int  { return 8 }
func (Failed) size() int   { return 9 }
func (Signaled) size() int { return 12 }
func (Exited) size() int   { return 34 }

func (m Hello) encode(e *encoder)    { e.u32(m.Version); e.u32(uint32(m.PID)); e.u32(uint32(m.Held)) }
func (m Held) encode(e *encoder)     { e.u32(m.Exec); e.u32(uint32(m.PID)); e.u8(uint8(m.Stdio)) }
func (m Placed) encode(e *encoder)   { e.u32(m.Exec); e.u32(uint32(m.PID)) }
func (m Started) encode(e *encoder)  { e.u32(m.Exec); e.u32(uint32(m.PID)) }
func (m Signaled) encode(e *encoder) { e.u32(m.Exec); e.u32(uint32(m.Errno)); e.u32(uint32(m.Count)) }

func (m Failed) encode(e *encoder) {
	e.u32(m.Exec)
	e.u8(uint8(m.Stage))
	e.u32(uint32(m.Errno))
}

func (m Exited) encode(e *encoder) {
	e.u32(m.Exec)
	e.u8(m.Code)
	e.u8(uint8(m.Signal))
	e.i64(m.UserMicros)
	e.i64(m.SystemMicros)
	e.i64(m.MaxRSSKiB)
	e.u32(uint32(int32(m.Remaining)))
}

func decodeReport(k Kind, d *decoder) (Message, bool) {
	switch k {
	case KindHello:
		m := Hello{Version: d.u32(), PID: int(d.u32()), Held: int(d.u32())}
		return m, validPID(m.PID) && m.Held >= 0 && m.Held <= MaxHeld
	case KindHeld:
		m := Held{Exec: d.u32(), PID: int(d.u32()), Stdio: Stdio(d.u8())}
		return m, m.Exec != 0 && validChild(m.PID) && m.Stdio.holdsWith(allStdio)
	case KindPlaced:
		m := Placed{Exec: d.u32(), PID: int(d.u32())}
		return m, m.Exec != 0 && validChild(m.PID)
	case KindStarted:
		m := Started{Exec: d.u32(), PID: int(d.u32())}
		return m, m.Exec != 0 && validChild(m.PID)
	case KindFailed:
		m := Failed{Exec: d.u32(), Stage: Stage(d.u8()), Errno: syscall.Errno(d.u32())}
		return m, m.Exec != 0 && m.Stage != 0 && m.Stage < stageEnd && m.Errno != 0 && m.Errno <= maxErrno
	case KindSignaled:
		m := Signaled{Exec: d.u32(), Errno: syscall.Errno(d.u32()), Count: int(d.u32())}
		return m, m.Exec != 0 && m.Errno <= maxErrno && m.Count >= 0 && m.Count <= MaxPID
	case KindExited:
		return decodeExited(d)
	}
	return nil, false
}

func decodeExited(d *decoder) (Exited, bool) {
	m := Exited{
		Exec: d.u32(), Code: d.u8(), Signal: syscall.Signal(d.u8()),
		UserMicros: d.i64(), SystemMicros: d.i64(), MaxRSSKiB: d.i64(),
		Remaining: int(int32(d.u32())),
	}
	return m, m.Exec != 0 && m.Signal <= MaxSignal && (m.Code == 0 || m.Signal == 0) &&
		validAmount(m.UserMicros) && validAmount(m.SystemMicros) && validAmount(m.MaxRSSKiB) &&
		m.Remaining >= -1 && m.Remaining <= MaxPID
}

func validPID(pid int) bool { return pid > 0 && pid <= MaxPID }

func validChild(pid int) bool { return pid > 1 && pid <= MaxPID }

// validAmount keeps sums and unit changes of what PID 1 claims far from an
// overflow: 2^50 µs are 35 years, 2^50 KiB more than any address space. A
// thousand times either still fits an int64.
func validAmount(n int64) bool { return n >= 0 && n <= 1<<50 }

// OtherVersion returns the version that the packet b, which may be of any
// version, announces as a Hello, and whether that is another than this build's.
func OtherVersion(b []byte) (version uint32, other bool) {
	if len(b) < 5 || Kind(b[0]) != KindHello {
		return 0, false
	}
	d := decoder{b: b[1:]}
	version = d.u32()
	return version, version != Version
}
