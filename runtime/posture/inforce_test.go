package posture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/initproto/listener"
	"github.com/caisson-run/caisson/seccomp"
	"github.com/caisson-run/caisson/tests/need"
)

// pid1 is the filter of PID 1.
var pid1 = listener.Bytes()

func declaredFilter(t testing.TB) *specs.LinuxSeccomp {
	t.Helper()
	profile, err := seccomp.Lookup(seccomp.DefaultProfile)
	must(t, err)
	filter, err := profile.Spec(seccomp.Options{})
	must(t, err)
	return filter
}

// asRunc compiles a filter and puts runc's check for newer calls in front of it.
func asRunc(t testing.TB, filter *specs.LinuxSeccomp) []byte {
	t.Helper()
	c, err := seccomp.CompileSpec(filter)
	must(t, err)
	var last uint32
	for _, number := range c.Numbers {
		last = max(last, number)
	}
	const x32 = 1 << 30
	newer := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: last, SkipTrue: 1},
		bpf.RetConstant{Val: 0x00050000 | uint32(unix.ENOSYS)},
	}
	if goruntime.GOARCH == "amd64" { // which alone has a second table of numbers
		newer = slices.Insert(newer, 1, bpf.Instruction(bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32, SkipTrue: 2}))
	}
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[goruntime.GOARCH]
	return append(encoded(t, append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: arch, SkipTrue: uint8(len(newer))},
	}, newer...)...), c.BPF...)
}

func encoded(t testing.TB, code ...bpf.Instruction) []byte {
	t.Helper()
	raw, err := bpf.Assemble(code)
	must(t, err)
	var out bytes.Buffer
	must(t, binary.Write(&out, binary.NativeEndian, raw))
	return out.Bytes()
}

// without returns filter without the entries about a call, and with others instead.
func without(filter *specs.LinuxSeccomp, name string, instead ...specs.LinuxSyscall) *specs.LinuxSeccomp {
	changed := *filter
	changed.Syscalls = nil
	for _, call := range filter.Syscalls {
		call.Names = slices.DeleteFunc(slices.Clone(call.Names), func(n string) bool { return n == name })
		if len(call.Names) > 0 {
			changed.Syscalls = append(changed.Syscalls, call)
		}
	}
	changed.Syscalls = append(changed.Syscalls, instead...)
	return &changed
}

// TestFiltersInForce: whatever decides a single call otherwise than declared is told, and
// a program that decides the same by other instructions is not.
func TestFiltersInForce(t *testing.T) {
	filter := declaredFilter(t)
	honest := asRunc(t, filter)
	c, err := seccomp.CompileSpec(filter)
	must(t, err)
	errno := uint(unix.EIO)
	allowAll := encoded(t, bpf.RetConstant{Val: 0x7fff0000})
	noReads := encoded(t,
		bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_READ, SkipFalse: 1},
		bpf.RetConstant{Val: 0x00050000 | uint32(unix.EPERM)}, bpf.RetConstant{Val: 0x7fff0000})
	secret := slices.Concat(encoded(t, // a way in for one value of 64 bits
		bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_KEYCTL, SkipFalse: 5},
		bpf.LoadAbsolute{Off: 24, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x12345678, SkipFalse: 3},
		bpf.LoadAbsolute{Off: 28, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x9abcdef0, SkipFalse: 1},
		bpf.RetConstant{Val: 0x7fff0000}), honest)
	anyArch := slices.Concat(encoded(t,
		bpf.LoadAbsolute{Off: 4, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AUDIT_ARCH_I386, SkipFalse: 1},
		bpf.RetConstant{Val: 0x7fff0000}), honest)
	for _, tt := range []struct {
		name string
		live [][]byte // below PID 1's
		want string   // part of what is told; "" if it is as declared
	}{
		{"the declared one", [][]byte{honest}, ""},
		{"one that allows everything beside it", [][]byte{allowAll, honest, allowAll}, ""},
		{"one that allows everything", [][]byte{allowAll}, "allow"},
		{"one without the check for newer calls", [][]byte{c.BPF}, "error 1, declared error 38"},
		{"a call too many", [][]byte{asRunc(t, without(filter, "keyctl", specs.LinuxSyscall{Names: []string{"keyctl"}, Action: specs.ActAllow}))}, "keyctl"},
		{"a missing rule", [][]byte{asRunc(t, without(filter, "getcwd"))}, "getcwd"},
		{"a missing condition", [][]byte{asRunc(t, without(filter, "socket", specs.LinuxSyscall{Names: []string{"socket"}, Action: specs.ActAllow}))}, "socket"},
		{"another error", [][]byte{asRunc(t, without(filter, "clone3", specs.LinuxSyscall{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &errno}))}, "clone3"},
		{"one value of one argument", [][]byte{secret}, "argument 1 = 0x9abcdef012345678: allow"},
		{"another architecture", [][]byte{anyArch}, "architecture 0x40000003"},
		{"another one that narrows", [][]byte{honest, noReads}, "read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // compared, then known
				var v verdicts
				r, err := v.of(filter, pid1, append(slices.Clone(tt.live), pid1))
				if err != nil || r.OK != (tt.want == "") || !strings.Contains(r.Live, tt.want) {
					t.Errorf("%+v, %v; want %q", r, err, tt.want)
				}
			}
		})
	}
}

// TestListenerInForce: where netlink sockets can be had, PID 1's filter is there, unchanged
// and the latest. Where they cannot, none is needed.
func TestListenerInForce(t *testing.T) {
	filter := declaredFilter(t)
	honest, changed := asRunc(t, filter), slices.Clone(pid1)
	changed[len(changed)-1] ^= 0x80 // allow, now to kill
	shut := without(filter, "socket")
	for _, tt := range []struct {
		name     string
		declared *specs.LinuxSeccomp
		listener []byte
		live     [][]byte
		want     string
	}{
		{"as it should be", filter, pid1, [][]byte{honest, pid1}, ""},
		{"none at all", filter, pid1, nil, none},
		{"none of PID 1", filter, pid1, [][]byte{honest}, noListener},
		{"that of PID 1 alone", filter, pid1, [][]byte{pid1}, none},
		{"another one", filter, pid1, [][]byte{honest, changed}, noListener},
		{"a part of it", filter, pid1, [][]byte{honest, pid1[:len(pid1)-instructionLen]}, noListener},
		{"one before the declared one", filter, pid1, [][]byte{pid1, honest}, noListener},
		{"a second one", filter, pid1, [][]byte{honest, pid1, pid1}, "notify"},
		{"one that nobody expects", filter, nil, [][]byte{honest, pid1}, noListener},
		{"none, and no netlink", shut, pid1, [][]byte{asRunc(t, shut)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := compareFilters(tt.declared, tt.listener, tt.live)
			if err != nil || !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// A verdict is of one declaration and one set of programs, and not for ever.
func TestVerdictsAreOfOneFilter(t *testing.T) {
	filter := declaredFilter(t)
	honest := asRunc(t, filter)
	var v verdicts
	if r, err := v.of(filter, pid1, [][]byte{honest, pid1}); err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := v.of(without(filter, "getcwd"), pid1, [][]byte{honest, pid1}); err != nil || r.OK {
		t.Errorf("another declaration: %+v, %v", r, err)
	}
	for i := range 2 * maxVerdicts {
		changed := encoded(t, bpf.RetConstant{Val: uint32(i)})
		if r, err := v.of(filter, pid1, [][]byte{changed, pid1}); err != nil || r.OK {
			t.Errorf("another program: %+v, %v", r, err)
		}
	}
	if len(v.known) > maxVerdicts {
		t.Errorf("%d verdicts are kept", len(v.known))
	}
}

// What cannot be compared is refused: a declaration of a form that is not ours, and one
// that is missing.
func TestFiltersThatCannotBeCompared(t *testing.T) {
	honest := asRunc(t, declaredFilter(t))
	traced, two := *declaredFilter(t), *declaredFilter(t)
	traced.DefaultAction = specs.ActTrace
	two.Architectures = append(slices.Clone(two.Architectures), specs.ArchX86)
	for name, filter := range map[string]*specs.LinuxSeccomp{"none": nil, "default action": &traced, "architectures": &two} {
		var v verdicts
		if _, err := v.of(filter, pid1, [][]byte{honest, pid1}); sbxerr.Of(err) != sbxerr.SeccompUnread || len(v.known) != 0 {
			t.Errorf("%s: %v; %d verdicts are kept", name, err, len(v.known))
		}
	}
	var v verdicts
	if _, err := v.of(declaredFilter(t), pid1, [][]byte{honest[:len(honest)-4], pid1}); sbxerr.Of(err) != sbxerr.SeccompUnread {
		t.Errorf("half an instruction: %v", err)
	}
}

// TestReadFilters reads the filters of a process back as they were put in force.
func TestReadFilters(t *testing.T) {
	need.Root(t, "only root reads the filters of others")
	need.Bin(t)
	must(t, ProbeFilters())
	allowAll := encoded(t, bpf.RetConstant{Val: 0x7fff0000})
	for _, count := range []int{0, 1, 3} {
		cmd, file, _ := startFiltered(t, allowAll, count)
		got, err := readFilters(cmd.Process.Pid, file)
		if count == 0 {
			if !errors.Is(err, errNoFilters) {
				t.Errorf("a process without filters: %v, %v", got, err)
			}
			continue
		}
		if err != nil || len(got) != count || !bytes.Equal(got[0], allowAll) {
			t.Errorf("%d filters: %v, %v", count, got, err)
		}
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)); err != nil || !strings.Contains(string(status), "TracerPid:\t0\n") {
			t.Errorf("the process is still traced: %v\n%s", err, status)
		}
	}
	cmd, file, _ := startFiltered(t, allowAll, 1)
	must(t, cmd.Process.Kill())
	_, err := cmd.Process.Wait()
	must(t, err)
	if _, err := readFilters(cmd.Process.Pid, file); !errors.Is(err, errEnded) {
		t.Errorf("a process that has ended: %v", err)
	}
}

// A signal that comes while filters are read is not lost.
func TestReadFiltersLosesNoSignal(t *testing.T) {
	need.Root(t, "only root reads the filters of others")
	need.Bin(t)
	cmd, file, out := startFiltered(t, encoded(t, bpf.RetConstant{Val: 0x7fff0000}), 1)
	const signals = 50
	answered := make(chan error, 1)
	go func() {
		for range signals {
			if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
				answered <- err
				return
			}
			if _, err := io.ReadFull(out, make([]byte, len(gotSignal))); err != nil {
				answered <- err
				return
			}
		}
		answered <- nil
	}()
	for {
		select {
		case err := <-answered:
			must(t, err)
			return
		default:
		}
		if _, err := readFilters(cmd.Process.Pid, file); err != nil {
			t.Fatal(err)
		}
	}
}

// filteredEnv makes the test program a process that puts filters on itself: how many, and
// the program.
const filteredEnv = "CAISSON_TEST_FILTERS"

func TestMain(m *testing.M) {
	if asked := os.Getenv(filteredEnv); asked != "" {
		fmt.Fprintln(os.Stderr, beFiltered(asked))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// gotSignal is what the process says once it is ready, and at each signal.
const gotSignal = "here\n"

// startFiltered starts a process under so many times the same filter.
func startFiltered(t testing.TB, filter []byte, count int) (*exec.Cmd, *os.File, io.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{fmt.Sprintf("%s=%d %x", filteredEnv, count, filter)}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed, or waited for already
	})
	if _, err := io.ReadFull(out, make([]byte, len(gotSignal))); err != nil {
		t.Fatalf("the process does not start: %v", err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	must(t, err)
	file := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { must(t, file.Close()) })
	return cmd, file, out
}

// beFiltered is the other side of startFiltered.
func beFiltered(asked string) error {
	var count int
	var filter []byte
	if _, err := fmt.Sscanf(asked, "%d %x", &count, &filter); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter) / instructionLen), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	for range count {
		const setFilter, allThreads = 1, 1
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, allThreads, uintptr(unsafe.Pointer(&prog))); errno != 0 {
			return errno
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	for {
		if _, err := os.Stdout.WriteString(gotSignal); err != nil {
			return err
		}
		<-signals
	}
}

func BenchmarkReadFilters(b *testing.B) {
	cmd, file, _ := startFiltered(b, asRunc(b, declaredFilter(b)), 1)
	for b.Loop() {
		if _, err := readFilters(cmd.Process.Pid, file); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKnownFilters(b *testing.B) {
	filter := declaredFilter(b)
	live := [][]byte{asRunc(b, filter), pid1}
	var v verdicts
	for b.Loop() {
		if r, err := v.of(filter, pid1, live); err != nil || !r.OK {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkFirstFilters(b *testing.B) {
	filter := declaredFilter(b)
	live := [][]byte{asRunc(b, filter), pid1}
	for b.Loop() {
		if _, err := compareFilters(filter, pid1, live); err != nil {
			b.Fatal(err)
		}
	}
}
