package initproto

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

var messages = []Message{
	Hello{Version: Version, PID: 1},
	Hello{Version: 1<<32 - 1, PID: MaxPID, Held: MaxHeld},
	Held{Exec: 7, PID: 2},
	Held{Exec: 7, PID: MaxPID, Stdio: allStdio},
	Welcome{},
	Welcome{OrphanGraceMillis: 1<<32 - 1, Ends: true},
	Adopt{},
	Start{Exec: 1},
	Start{Exec: 1<<32 - 1, Stdio: Stdin | Stdout | Stderr, Held: allStdio, Place: true},
	Start{Exec: 1, Stdio: Stdin, Held: Stdin | Staging},
	Start{Exec: 1, Place: true, Inputs: true},
	Start{Exec: 1, Stdio: Stdout, Tag: true},
	Held{Exec: 7, PID: 2, Stdio: allHeld},
	Start{Exec: 1, Stdio: Stdin | Stdout, Held: Stdin, Terminal: true, Rows: 24, Cols: 1<<16 - 1},
	Placed{Exec: 7, PID: 2},
	Proceed{Exec: 7},
	Abandon{Exec: 7},
	Started{Exec: 7, PID: 2},
	Failed{Exec: 7, Stage: StageExec, Errno: syscall.ENOENT},
	Failed{Exec: 7, Stage: StageRequest, Errno: maxErrno},
	Failed{Exec: 7, Stage: StageInput, Errno: syscall.EEXIST},
	Signal{Exec: 7, Signal: syscall.SIGKILL},
	Signal{Exec: 7, Signal: MaxSignal, Scope: ScopeAll},
	Signaled{Exec: 7},
	Signaled{Exec: 7, Errno: syscall.ESRCH},
	Signaled{Exec: 7, Count: MaxPID},
	CloseStdin{Exec: 7},
	Resize{Exec: 7, Rows: 1, Cols: 300},
	Release{Exec: 1<<32 - 1},
	Exited{Exec: 7, Code: 255},
	Exited{Exec: 7, Signal: syscall.SIGSEGV, UserMicros: 1, SystemMicros: 1 << 50, MaxRSSKiB: 3, Remaining: -1},
	Exited{Exec: 7, Remaining: MaxPID},
}

func TestDecodeIsTheInverseOfEncode(t *testing.T) {
	for _, m := range messages {
		b := Encode(m)
		if len(b) > MaxPacket || len(b) != 1+m.size() {
			t.Errorf("Encode(%#v) has %d bytes", m, len(b))
		}
		got, err := Decode(b)
		if err != nil || got != m {
			t.Errorf("Decode(Encode(%#v)) = %#v, %v", m, got, err)
		}
	}
}

// The bytes are an interface: a daemon meets PID 1s of an older build.
func TestWireFormatIsFixed(t *testing.T) {
	for _, tc := range []struct {
		m    Message
		want string
	}{
		{Hello{Version: 2, PID: 1, Held: 3}, "\x40\x02\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00"},
		{Held{Exec: 1, PID: 2, Stdio: Stderr}, "\x45\x01\x00\x00\x00\x02\x00\x00\x00\x04"},
		{Welcome{OrphanGraceMillis: 258, Ends: true}, "\x03\x02\x01\x00\x00\x01"},
		{Adopt{}, "\x04"},
		{Start{Exec: 258, Stdio: Stdout | Stderr, Held: Stdout, Place: true}, "\x01\x02\x01\x00\x00\x06\x02\x01\x00\x00\x00\x00"},
		{Start{Exec: 1, Tag: true}, "\x01\x01\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00"},
		{Start{Exec: 1, Terminal: true, Rows: 2, Cols: 259}, "\x01\x01\x00\x00\x00\x00\x00\x02\x02\x00\x03\x01"},
		{Signal{Exec: 1, Signal: 15, Scope: ScopeAll}, "\x02\x01\x00\x00\x00\x0f\x01"},
		{Release{Exec: 1}, "\x05\x01\x00\x00\x00"},
		{CloseStdin{Exec: 1}, "\x06\x01\x00\x00\x00"},
		{Resize{Exec: 1, Rows: 2, Cols: 3}, "\x07\x01\x00\x00\x00\x02\x00\x03\x00"},
		{Proceed{Exec: 1}, "\x08\x01\x00\x00\x00"},
		{Abandon{Exec: 1}, "\x09\x01\x00\x00\x00"},
		{Placed{Exec: 1, PID: 2}, "\x46\x01\x00\x00\x00\x02\x00\x00\x00"},
		{Started{Exec: 1, PID: 2}, "\x41\x01\x00\x00\x00\x02\x00\x00\x00"},
		{Failed{Exec: 1, Stage: StageChdir, Errno: 2}, "\x42\x01\x00\x00\x00\x03\x02\x00\x00\x00"},
		{Signaled{Exec: 1, Errno: 3, Count: 4}, "\x43\x01\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00"},
		{
			Exited{Exec: 1, Code: 9, UserMicros: 1, SystemMicros: 2, MaxRSSKiB: 3, Remaining: -1},
			"\x44\x01\x00\x00\x00\x09\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" +
				"\x03\x00\x00\x00\x00\x00\x00\x00" + "\xff\xff\xff\xff",
		},
	} {
		if got := string(Encode(tc.m)); got != tc.want {
			t.Errorf("Encode(%#v) = %q, want %q", tc.m, got, tc.want)
		}
	}
}

func TestDecodeRefusesWhatIsOutOfRange(t *testing.T) {
	for _, m := range []Message{
		Hello{Version: 1, PID: 0},
		Hello{Version: 1, PID: MaxPID + 1},
		Hello{Version: 1, PID: -1},
		Start{Exec: 0},
		Hello{Version: 1, PID: 1, Held: MaxHeld + 1},
		Hello{Version: 1, PID: 1, Held: -1},
		Held{Exec: 0, PID: 2},
		Held{Exec: 1, PID: 1},
		Held{Exec: 1, PID: 2, Stdio: allHeld + 1},
		Held{Exec: 1, PID: 2, Stdio: Staging},
		Start{Exec: 1, Stdio: Stdin, Held: Staging},
		Placed{Exec: 0, PID: 2},
		Placed{Exec: 1, PID: 1},
		Start{Exec: 1, Stdio: allStdio + 1},
		Start{Exec: 1, Stdio: Stdout, Held: Stdin},
		Start{Exec: 1, Stdio: Stderr, Terminal: true},
		Start{Exec: 1, Rows: 1},
		Start{Exec: 1, Cols: 1},
		Proceed{},
		Abandon{},
		Release{},
		CloseStdin{},
		Resize{Rows: 1},
		Signal{Exec: 1, Signal: 1, Scope: scopeEnd},
		Signaled{Exec: 1, Count: MaxPID + 1},
		Signaled{Exec: 1, Count: -1},
		Started{Exec: 0, PID: 2},
		Started{Exec: 1, PID: 1},
		Started{Exec: 1, PID: MaxPID + 1},
		Failed{Exec: 0, Stage: StageExec, Errno: 1},
		Failed{Exec: 1, Stage: 0, Errno: 1},
		Failed{Exec: 1, Stage: stageEnd, Errno: 1},
		Failed{Exec: 1, Stage: StageExec, Errno: 0},
		Failed{Exec: 1, Stage: StageExec, Errno: maxErrno + 1},
		Signal{Exec: 0, Signal: 1},
		Signal{Exec: 1, Signal: 0},
		Signal{Exec: 1, Signal: MaxSignal + 1},
		Signaled{Exec: 0},
		Signaled{Exec: 1, Errno: maxErrno + 1},
		Exited{Exec: 0},
		Exited{Exec: 1, Signal: MaxSignal + 1},
		Exited{Exec: 1, Code: 1, Signal: 1},
		Exited{Exec: 1, UserMicros: -1},
		Exited{Exec: 1, SystemMicros: 1<<50 + 1},
		Exited{Exec: 1, MaxRSSKiB: -1},
		Exited{Exec: 1, Remaining: -2},
		Exited{Exec: 1, Remaining: MaxPID + 1},
	} {
		if got, err := Decode(Encode(m)); err != FormatError("value out of range") {
			t.Errorf("Decode(Encode(%#v)) = %#v, %v", m, got, err)
		}
	}
}

func TestDecodeRefusesOtherLengthsAndKinds(t *testing.T) {
	for _, m := range messages {
		b := Encode(m)
		for _, bad := range [][]byte{b[:max(len(b)-1, 1)], b[:1], append(b[:len(b):len(b)], 0)} {
			if len(bad) == len(b) {
				continue // it is nothing but a kind
			}
			if _, err := Decode(bad); err != FormatError("wrong length") {
				t.Errorf("Decode(%q): %v", bad, err)
			}
		}
	}
	for b, want := range map[string]FormatError{
		"":                       "empty packet",
		"\x00":                   "unknown kind",
		"\xff\x01\x02\x03":       "unknown kind",
		strings.Repeat("{", 200): "unknown kind",
	} {
		if _, err := Decode([]byte(b)); err != want {
			t.Errorf("Decode(%q): %v, want %v", b, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range messages {
		f.Add(Encode(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			if _, ok := err.(FormatError); !ok || m != nil {
				t.Fatalf("Decode: %#v, %T", m, err)
			}
			return
		}
		if got := Encode(m); !bytes.Equal(got, b) {
			t.Fatalf("Encode(Decode(%q)) = %q", b, got)
		}
	})
}

var payloads = []Payload{
	{Args: []string{"true"}, Cwd: "/"},
	{
		Args: []string{"sh", "-c", "", "echo \"$1\"\x00"}, Env: []string{"PATH=/bin", ""}, Cwd: "/workspace",
		UID: 1000, GID: 1<<32 - 1, Groups: []uint32{4, 1000},
		Rlimits: []Rlimit{{Resource: 7, Soft: 10, Hard: 1<<64 - 1}, {Resource: 15}},
		Inputs:  []Input{{Path: "/tmp/a", Mode: 0o400, Size: 1 << 20}, {Path: "/b"}},
	},
}

func TestPayloadRoundTrip(t *testing.T) {
	for _, p := range payloads {
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodePayload(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("DecodePayload(Encode(%#v)) = %#v, %v", p, got, err)
		}
		for n := range b {
			if _, err := DecodePayload(b[:n]); err == nil {
				t.Errorf("DecodePayload accepts %d of %d bytes", n, len(b))
			}
		}
		if _, err := DecodePayload(append(b, 0)); err == nil {
			t.Error("DecodePayload accepts a byte too many")
		}
	}
}

func TestPayloadIsBounded(t *testing.T) {
	p := Payload{Args: []string{""}, Cwd: "/"}
	p.Args[0] = strings.Repeat("x", MaxPayload-p.encodedSize())
	b, err := p.Encode()
	if err != nil || len(b) != MaxPayload {
		t.Fatalf("Encode at the limit: %d bytes, %v", len(b), err)
	}
	if _, err := DecodePayload(b); err != nil {
		t.Errorf("DecodePayload at the limit: %v", err)
	}
	if _, err := DecodePayload(append(b, 0)); err != FormatError("payload too long") {
		t.Errorf("DecodePayload above the limit: %v", err)
	}
	p.Args[0] += "x"
	if _, err := p.Encode(); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("Encode above the limit: %v", err)
	}
}

// A count that promises more than the bytes can hold must not be allocated.
func TestDecodePayloadDoesNotTrustCounts(t *testing.T) {
	for _, b := range []string{
		"\xff\xff\xff\xff",
		"\xff\xff\xff\x7f\x00\x00\x00\x00",
		"\x01\x00\x00\x00\xff\xff\xff\xff",
		"\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\xff\xff\xff\xff",
	} {
		if n := testing.AllocsPerRun(10, func() {
			if _, err := DecodePayload([]byte(b)); err == nil {
				t.Errorf("DecodePayload(%q) succeeds", b)
			}
		}); n > 5 {
			t.Errorf("DecodePayload(%q): %v allocations", b, n)
		}
	}
	for _, list := range [][]Rlimit{
		{{Resource: MaxRlimits}}, {{Soft: 2, Hard: 1}}, {{Resource: 3}, {Resource: 3}}, make([]Rlimit, MaxRlimits+1),
	} {
		b, _ := Payload{Args: []string{"true"}, Rlimits: list}.Encode()
		if _, err := DecodePayload(b); err != FormatError("resource limit out of range") {
			t.Errorf("DecodePayload with %v: %v", list, err)
		}
	}
	for _, list := range [][]Input{{{Path: "/a", Mode: 0o1000}}, {{}}, {{Path: "a"}}, make([]Input, MaxInputs+1)} {
		b, _ := Payload{Args: []string{"true"}, Inputs: list}.Encode()
		if _, err := DecodePayload(b); err != FormatError("input file out of range") {
			t.Errorf("DecodePayload with %v: %v", list, err)
		}
	}
	empty, _ := Payload{}.Encode()
	if _, err := DecodePayload(empty); err != FormatError("no command") {
		t.Errorf("DecodePayload without arguments: %v", err)
	}
}

func FuzzDecodePayload(f *testing.F) {
	for _, p := range payloads {
		b, _ := p.Encode()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePayload(b)
		if err != nil {
			return
		}
		if got, err := p.Encode(); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("Encode(DecodePayload(%q)) = %q, %v", b, got, err)
		}
	})
}

func TestStageNames(t *testing.T) {
	seen := map[string]bool{}
	for s := StageRequest; s < stageEnd; s++ {
		if s.String() == "" || seen[s.String()] {
			t.Errorf("stage %d is named %q", s, s)
		}
		seen[s.String()] = true
	}
	for _, s := range []Stage{0, stageEnd, 255} {
		if s.String() != "unknown" {
			t.Errorf("stage %d is named %q", s, s)
		}
	}
}

func TestStdioCount(t *testing.T) {
	for s, want := range map[Stdio]int{0: 0, Stdin: 1, Stdout: 1, Stderr: 1, Stdin | Stderr: 2, allStdio: 3, allHeld: 4} {
		if got := s.Count(); got != want {
			t.Errorf("Stdio(%b).Count() = %d, want %d", s, got, want)
		}
	}
}

func TestOtherVersion(t *testing.T) {
	for b, want := range map[string]uint32{
		"":                        0,
		"\x40\x01\x00\x00":        0,
		"\x41\x01\x00\x00\x00":    0,
		"\x40\x06\x00\x00\x00":    0, // ours
		"\x40\x01\x00\x00\x00":    1,
		"\x40\x07\x00\x00\x00etc": 7,
	} {
		if got, other := OtherVersion([]byte(b)); other != (want != 0) || other && got != want {
			t.Errorf("OtherVersion(%q) = %d, %v", b, got, other)
		}
	}
}
