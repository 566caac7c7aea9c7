package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// machineCalls exist on x86-64 only.
var machineCalls = []call{
	{id: "P039", name: "iopl", nr: unix.SYS_IOPL, args: []uintptr{99}},
	{id: "P039", name: "ioperm", nr: unix.SYS_IOPERM, args: []uintptr{badFD, 1, 1}},
	{id: "P039", name: "modify_ldt", nr: unix.SYS_MODIFY_LDT, args: []uintptr{0, badPointer, 0}},
	{id: "P039", name: "arch_prctl(ARCH_SHSTK_ENABLE)", nr: unix.SYS_ARCH_PRCTL, args: []uintptr{0x5001, badFlags}},
	{id: "P042", name: "uselib", nr: unix.SYS_USELIB, args: []uintptr{badPointer}},
	{id: "P042", name: "ustat", nr: unix.SYS_USTAT, args: []uintptr{badFlags, badPointer}},
	{id: "P042", name: "sysfs", nr: unix.SYS_SYSFS, args: []uintptr{99}},
	{id: "P042", name: "create_module", nr: unix.SYS_CREATE_MODULE},
}

// notSwept are numbers that sweep leaves out.
var notSwept = []uintptr{
	unix.SYS_RT_SIGRETURN,
	unix.SYS_PAUSE,
	unix.SYS_FORK, unix.SYS_VFORK,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_SYNC, // writes back every file system of the host
	335, 336,      // uretprobe, uprobe: for the kernel's own trampolines; newer kernels look at them before the filter
}

// x32 marks the numbers of the x32 ABI (asm/unistd.h, __X32_SYSCALL_BIT).
const x32 = 0x40000000

// killed: the filter of another architecture's entry ends the thread.
var killed = []string{"SIGSYS", "thread killed", "exit status 2"} // the last where the kernel has no such entry

// Numbers of the 32-bit table (asm/unistd_32.h).
const (
	getpid32     = 20
	socketcall32 = 102
	socket32     = 359
)

// machineProbes enter the kernel by its other doors.
func machineProbes() []probe {
	return []probe{
		{id: "P027", name: "int 0x80: getpid", try: func() string { return compat(getpid32, 0) }, want: killed, alone: true},
		{id: "P027", name: "int 0x80: socketcall", try: func() string { return compat(socketcall32, 0) }, want: killed, alone: true},
		{id: "P027", name: "int 0x80: socket(AF_VSOCK)", try: func() string { return compat(socket32, unix.AF_VSOCK) }, want: killed, alone: true},
		{id: "P027", name: "x32: getpid", try: func() string { return raw(x32 | unix.SYS_GETPID) }, want: killed, alone: true},
		{id: "P027", name: "x32: ptrace", try: func() string { return raw(x32|521, badFD, badFD) }, want: killed, alone: true},
	}
}

// compat makes a 32-bit system call with one argument, the others being
// invalid. It ends the process where the kernel has no such door.
func compat(nr, arg uintptr) string {
	if r := int32(int80(nr, arg, badFlags, badFlags)); r < 0 {
		return errnoName(syscall.Errno(-r))
	}
	return ok
}

// int80 enters the kernel by int $0x80.
func int80(nr, a, b, c uintptr) uintptr
