package changes

import "golang.org/x/sys/unix"

// OpenBeneath opens name below the directory root, which nothing leaves: it follows no link and
// no mount (openat2(2)).
func OpenBeneath(root int, name string, flags uint64) (int, error) {
	return unix.Openat2(root, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
}
