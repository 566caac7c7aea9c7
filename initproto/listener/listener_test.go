package listener

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"
)

// run is what the kernel does with the filter, for the instructions that it has.
func run(t *testing.T, call map[uint32]uint32) uint32 {
	t.Helper()
	var a uint32
	program := Program()
	for at := 0; at < len(program); at++ {
		switch i := program[at]; i.Code {
		case load:
			a = call[i.K]
		case result:
			return i.K
		default:
			holds := a == i.K
			if i.Code == meets {
				holds = a&i.K != 0
			}
			if holds {
				at += int(i.Jt)
			} else {
				at += int(i.Jf)
			}
		}
	}
	t.Fatal("the filter does not end")
	return 0
}

func TestProgram(t *testing.T) {
	const x32, i386 = 0x40000000, 0x40000003
	invalid := refuse | uint32(syscall.EINVAL)
	call := func(arch, number, a, b uint32) uint32 {
		return run(t, map[uint32]uint32{0: number, 4: arch, 16: a, 24: b, 20: 7, 28: 7}) // the upper halves count for nothing
	}
	for _, tt := range []struct {
		name                 string
		arch, number, a0, a1 uint32
		want                 uint32
	}{
		{"netlink", ownArch, syscall.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_RAW, notify},
		{"netlink of another type", ownArch, syscall.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_DGRAM | syscall.SOCK_CLOEXEC, notify},
		{"another family", ownArch, syscall.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_STREAM, allow},
		{"a family with more bits", ownArch, syscall.SYS_SOCKET, syscall.AF_NETLINK | 1<<16, 0, allow},
		{"a listener", ownArch, sysSeccomp, setFilter, flagListener, invalid},
		{"PID 1's own again", ownArch, sysSeccomp, setFilter, flagThreads | flagListener | flagThreadsError, invalid},
		{"a filter without", ownArch, sysSeccomp, setFilter, flagThreads, allow},
		{"a question", ownArch, sysSeccomp, 2, flagListener, allow},
		{"another call", ownArch, syscall.SYS_SOCKETPAIR, syscall.AF_NETLINK, setFilter, allow},
		{"none", ownArch, ^uint32(0), syscall.AF_NETLINK, 0, allow},
		{"another architecture", i386, syscall.SYS_SOCKET, syscall.AF_NETLINK, 0, killThread},
		{"x32, which the declared filter kills", ownArch, syscall.SYS_SOCKET | x32, syscall.AF_NETLINK, 0, allow},
	} {
		if got := call(tt.arch, tt.number, tt.a0, tt.a1); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

func TestBytes(t *testing.T) {
	b, program := Bytes(), Program()
	if len(b) != 8*len(program) {
		t.Fatalf("%d bytes for %d instructions", len(b), len(program))
	}
	for i, want := range program {
		got := syscall.SockFilter{Code: binary.NativeEndian.Uint16(b[8*i:]), Jt: b[8*i+2], Jf: b[8*i+3], K: binary.NativeEndian.Uint32(b[8*i+4:])}
		if got != want {
			t.Errorf("instruction %d: %+v, want %+v", i, got, want)
		}
	}
}

// The kernel takes the filter, and no second one.
func TestInstall(t *testing.T) {
	const again = "LISTENER_TEST_INSTALL"
	if os.Getenv(again) == "" {
		self, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], "-test.run=^TestInstall$"}, &os.ProcAttr{
			Env: append(os.Environ(), again+"=1"), Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err != nil {
			t.Fatal(err)
		}
		if state, err := self.Wait(); err != nil || !state.Success() {
			t.Errorf("%v, %v", state, err)
		}
		return
	}
	fd, err := Install()
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := Install(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a second time: %v", err)
	}
}
