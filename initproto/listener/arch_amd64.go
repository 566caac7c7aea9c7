package listener

const (
	ownArch    = 0xc000003e // AUDIT_ARCH_X86_64, linux/audit.h
	sysSeccomp = 317        // package syscall does not know it
)
