package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// machineCalls are calls of this architecture alone.
var machineCalls []call

// notSwept are numbers that sweep leaves out.
var notSwept = []uintptr{
	unix.SYS_RT_SIGRETURN,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_SYNC, // writes back every file system of the host
}

// machineProbes enter the kernel by its other door: programs of 32 bits have calls of their own.
func machineProbes() []probe {
	return []probe{{id: "P027", name: "AArch32: getpid", try: runAArch32, want: []string{"SIGSYS", "ENOEXEC"}}} // the last where the kernel has no such entry
}

// runAArch32 runs a program of 32 bits that calls getpid and exits.
func runAArch32() string {
	fd, err := unix.MemfdCreate("aarch32", unix.MFD_CLOEXEC)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, aarch32()); err != nil {
		return outcome(err)
	}
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd))
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return outcome(err)
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	return outcome(err)
}

// aarch32 is the program: the headers of a static ELF (elf(5)) and its code.
func aarch32() []byte {
	code := []uint32{
		0xe3a07014, 0xef000000, // mov r7, #20; svc #0: getpid
		0xe3a00000, 0xe3a07001, 0xef000000, // mov r0, #0; mov r7, #1; svc #0: exit(0)
	}
	const headers, base = 52 + 32, 0x10000
	size := uint32(headers + 4*len(code))
	var out bytes.Buffer
	for _, part := range []any{
		[16]byte{0x7f, 'E', 'L', 'F', 1, 1, 1},         // 32 bits, little-endian
		[]uint16{2, 40},                                // an executable, for ARM
		[]uint32{1, base + headers, 52, 0, 0x05000000}, // its entry, where the program header is, EABI 5
		[]uint16{52, 32, 1, 0, 0, 0},
		[]uint32{1, 0, base, base, size, size, 5, 0x1000}, // one part to load, readable and executable
		code,
	} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes all
	}
	return out.Bytes()
}
