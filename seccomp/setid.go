package seccomp

import "golang.org/x/sys/unix"

// setIDRules allow files to be made and their modes to be changed, but not with a
// set-user-id or set-group-id bit. Inside, no_new_privs and nosuid make such a bit
// inert; on the host, a file in a writable workspace that belongs to root there would
// be a way up for any local user who can reach it. No mount option stops a bit from
// being stored, so the filter does.
//
// The price: a set-group-id directory cannot be made or kept by chmod either, where the
// bit is harmless. A filter sees a path or a descriptor, and not whether it is a
// directory; mkdir, which makes nothing else, ignores the bit (vfs_mkdir, fs/namei.c).
// Below such a directory the kernel still hands the bit down by itself. The profile
// compat has no such rule.
var setIDRules = []Rule{
	{
		Syscalls: fields(`fchmod`),
		Args:     []Arg{noSetID(1)},
		Allow:    true,
		Why:      "changing modes, except to set-id (see the workspace's owner on the host)",
	},
	{
		Syscalls: fields(`fchmodat`),
		Args:     []Arg{noSetID(2)},
		Allow:    true,
		Why:      "as fchmod",
	},
	{
		Syscalls: fields(`chmod`),
		Args:     []Arg{noSetID(1)},
		Allow:    true,
		Arch:     "amd64",
		Why:      "as fchmod",
	},
	{
		Syscalls: fields(`creat`),
		Args:     []Arg{noSetID(1)},
		Allow:    true,
		Arch:     "amd64",
		Why:      "making files, except with a set-id mode",
	},
	{
		Syscalls: fields(`openat`),
		Args:     []Arg{opensExisting(2)},
		Allow:    true,
		Why:      "opening files that exist; the kernel then ignores the mode, which may hold garbage",
	},
	{
		Syscalls: fields(`openat`),
		Args:     []Arg{noSetID(3)},
		Allow:    true,
		Why:      "making files, except with a set-id mode",
	},
	{
		Syscalls: fields(`open`),
		Args:     []Arg{opensExisting(1)},
		Allow:    true,
		Arch:     "amd64",
		Why:      "as openat for files that exist",
	},
	{
		Syscalls: fields(`open`),
		Args:     []Arg{noSetID(2)},
		Allow:    true,
		Arch:     "amd64",
		Why:      "as openat for new files",
	},
	{
		Syscalls: fields(`mknodat`),
		Args:     []Arg{plainNode(2)},
		Allow:    true,
		Why:      "mkfifo and sockets, except with a set-id mode; devices need a capability, and an overlay whiteout (device 0:0) needs none but is of no use here",
	},
	{
		Syscalls: fields(`mknod`),
		Args:     []Arg{plainNode(1)},
		Allow:    true,
		Arch:     "amd64",
		Why:      "as mknodat",
	},
	{
		Syscalls: fields(`openat2`),
		Errno:    unix.ENOSYS,
		Why:      "its mode lies behind a pointer, where a filter cannot look; ENOSYS makes callers use openat",
	},
	{
		Syscalls: fields(`fchmodat2`),
		Errno:    unix.ENOSYS,
		Optional: true,
		Why:      "ENOSYS on every libseccomp, also one that does not know it: callers then use fchmodat, which has a rule",
	},
}

// noSetID holds for a mode without set-id bits. The kernel reads 12 bits of it.
func noSetID(index uint) Arg {
	return Arg{Index: index, Name: "mode & 06000", Mask: unix.S_ISUID | unix.S_ISGID, Values: []Value{zero}}
}

// opensExisting holds for flags that make no file. O_TMPFILE is two bits of which
// one is O_DIRECTORY; the kernel decides by the other (build_open_flags, fs/open.c).
func opensExisting(index uint) Arg {
	const creates = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	return Arg{Index: index, Name: "flags & (O_CREAT|O_TMPFILE)", Mask: creates, Values: []Value{zero}}
}

// plainNode holds for a mode that makes a file, pipe or socket without set-id bits.
func plainNode(index uint) Arg {
	return Arg{
		Index: index, Name: "mode & (S_IFMT|06000)", Mask: unix.S_IFMT | unix.S_ISUID | unix.S_ISGID,
		Values: []Value{{0, "0"}, {unix.S_IFREG, "S_IFREG"}, {unix.S_IFIFO, "S_IFIFO"}, {unix.S_IFSOCK, "S_IFSOCK"}},
	}
}
