package main

import "syscall"

const (
	sysFstatat   = syscall.SYS_FSTATAT
	sysRenameat2 = syscall.SYS_RENAMEAT2
)
