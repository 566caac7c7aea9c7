package listener

const (
	ownArch    = 0xc00000b7 // AUDIT_ARCH_AARCH64, linux/audit.h
	sysSeccomp = 277        // package syscall does not know it
)
