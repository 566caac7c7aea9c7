package mount

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// FullTmpfs returns the points, in the mount namespace of a live sandbox, of the tmpfs that
// have no block or no inode left. For points, sandbox and the caller's rights see
// ResizeTmpfs.
func FullTmpfs(sandbox *os.File, points []string) (full []string, err error) {
	err = onThrowawayThread(func() error {
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		for _, point := range points {
			dir, err := openTmpfs(strings.TrimPrefix(point, "/"))
			if err != nil {
				return err
			}
			var st unix.Statfs_t
			if err := errors.Join(unix.Fstatfs(dir, &st), unix.Close(dir)); err != nil {
				return err
			}
			if st.Bavail == 0 || st.Ffree == 0 {
				full = append(full, point)
			}
		}
		return nil
	})
	return full, sbxerr.Wrap(sbxerr.Mount, "mount.full", err)
}
