package seccomp

import "golang.org/x/sys/unix"

// ownArch is what the kernel calls this architecture in struct seccomp_data.
const ownArch = unix.AUDIT_ARCH_AARCH64
