package seccomp

import "golang.org/x/sys/unix"

// fileRules allow calls on files, directories and descriptors. A filter cannot follow a
// pointer, so it cannot check paths. The mounts bound these.
var fileRules = []Rule{
	{
		Syscalls: fields(`read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2
			lseek close dup dup3 flock`),
		Allow: true,
		Why:   "use of open descriptors: every program",
	},
	{
		Syscalls: fields(`fcntl`),
		Args:     []Arg{{Index: 1, Name: "command & 0x3f", Mask: 0x3f, Not: true, Values: ofdLocks}}, // no other command has these bits
		Allow:    true,
		Why:      "flags and locks of descriptors; the daemon counts the locks of each sandbox, as no cgroup does",
	},
	{
		Syscalls: fields(`fcntl`),
		Args:     []Arg{{Index: 1, Name: "command", Mask: bits32, Values: ofdLocks}},
		Errno:    unix.EINVAL,
		Why: "locks that belong to an open file cannot be counted: the kernel does not tell whose they are. EINVAL is what Linux before 3.15 says," +
			" also to F_OFD_GETLK, by which programs find out whether there are such locks: etcd goes on with others",
	},
	{
		Syscalls: fields(`close_range`),
		Allow:    true,
		Why:      "closing of all descriptors before exec (Python, Go, systemd tools); without it they loop over thousands",
	},
	{
		Syscalls: fields(`sendfile copy_file_range splice tee`),
		Allow:    true,
		Why: "copies inside the kernel: cp, cat, Go's io.Copy, Rust's io::copy, Python's shutil; Go takes EPERM of splice for the copy's failure." +
			" The page-cache attacks that used splice (CVE-2022-0847, CVE-2026-31431) needed a kernel bug or AF_ALG, which the socket rules refuse; vmsplice stays refused",
	},
	{
		Syscalls: fields(`fsync fdatasync sync syncfs sync_file_range`),
		Allow:    true,
		Why:      "durability for databases, package managers and git; refusing it would lose data silently, as sync cannot report an error",
	},
	{
		Syscalls: fields(`truncate ftruncate fallocate fadvise64 readahead`),
		Allow:    true,
		Why:      "size of a file and hints on its use; quota and file size limits bound it",
	},
	{
		Syscalls: fields(`fstat newfstatat statx statfs fstatfs getdents64 readlinkat faccessat faccessat2`),
		Allow:    true,
		Why:      "looking at files and directories",
	},
	{
		Syscalls: fields(`getcwd chdir fchdir umask mkdirat unlinkat linkat symlinkat renameat renameat2 utimensat`),
		Allow:    true,
		Why:      "making, moving and removing directory entries: all builds",
	},
	{
		Syscalls: fields(`fchown fchownat`),
		Allow:    true,
		Why:      "tar, cp -a and install; without CAP_CHOWN only a change to the own ids succeeds",
	},
	{
		Syscalls: fields(`setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
			listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr`),
		Allow: true,
		Why:   "extended attributes: cp -a, tar, rsync; security.* and trusted.* need capabilities that are not held",
	},
	{
		Syscalls: fields(`setxattrat getxattrat listxattrat removexattrat`),
		Allow:    true,
		Optional: true,
		Why:      "the same relative to a directory (Linux 6.13), used by new tar and rsync",
	},
	{
		Syscalls: fields(`inotify_init1 inotify_add_watch inotify_rm_watch`),
		Allow:    true,
		Why:      "file watchers of development servers and test runners; limits are per host id and so per sandbox",
	},
	{
		Syscalls: fields(`epoll_create1 epoll_ctl epoll_pwait ppoll pselect6`),
		Allow:    true,
		Why:      "waiting for descriptors: every event loop",
	},
	{
		Syscalls: fields(`epoll_pwait2`),
		Allow:    true,
		Why:      "epoll with nanoseconds (Linux 5.11): newer event loops",
	},
	{
		Syscalls: fields(`eventfd2 signalfd4 pipe2`),
		Allow:    true,
		Why:      "descriptors that carry events, signals and bytes between processes",
	},
	{
		Syscalls: fields(`access stat lstat getdents readlink chown lchown mkdir rmdir link symlink unlink rename
			utime utimes futimesat dup2 pipe select poll epoll_create epoll_wait inotify_init eventfd signalfd`),
		Allow: true,
		Arch:  "amd64",
		Why:   "older forms of the calls above, which C libraries for x86-64 still use",
	},
	{
		Syscalls: fields(`ioctl`),
		// The kernel reads 32 bits. The upper 16 of these requests are 0; leaving them
		// out refuses a little more (requests of sound timers) by fewer comparisons.
		Args: []Arg{{Index: 1, Name: "request & 0xffff", Mask: 0xffff, Not: true, Values: []Value{
			{unix.TIOCSTI, "TIOCSTI"},
			{unix.TIOCSETD, "TIOCSETD"},
			{tioclinux, "TIOCLINUX"},
		}}},
		Allow: true,
		Why: "terminals, sockets and files. Not TIOCSTI and TIOCLINUX, which type into the terminal that a person may look at (CVE-2017-5226, CVE-2023-28100);" +
			" not TIOCSETD, which loads line discipline modules (CVE-2017-2636)",
	},
}

// ofdLocks are the commands about locks of open file descriptions.
var ofdLocks = []Value{{unix.F_OFD_GETLK, "F_OFD_GETLK"}, {unix.F_OFD_SETLK, "F_OFD_SETLK"}, {unix.F_OFD_SETLKW, "F_OFD_SETLKW"}}

// tioclinux is the console's command multiplexer (ioctl_console(2)); x/sys has no
// name for it. One of its commands pastes the selection as input.
const tioclinux = 0x541c
