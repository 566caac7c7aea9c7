package main

import "syscall"

const (
	sysFstatat   = syscall.SYS_NEWFSTATAT
	sysRenameat2 = 316 // <asm/unistd_64.h>
)
