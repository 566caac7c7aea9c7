package mount

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// TmpfsUse says how full a tmpfs is.
type TmpfsUse struct {
	Point   string
	Percent float64 // of its size
	Full    bool    // it has no block or no inode left
}

// UsedTmpfs returns how full each tmpfs at points in the mount namespace of a live sandbox
// is. For points, sandbox and the caller's rights see ResizeTmpfs. An error names the points
// that are left out.
func UsedTmpfs(sandbox *os.File, points []string) (list []TmpfsUse, err error) {
	err = onThrowawayThread(func() error {
		if err := enterMounts(sandbox); err != nil {
			return err
		}
		var errs []error
		for _, point := range points {
			use, err := tmpfsUse(strings.TrimPrefix(point, "/"))
			if err != nil {
				errs = append(errs, fmt.Errorf("the tmpfs at %q: %w", point, err))
				continue
			}
			use.Point = point
			list = append(list, use)
		}
		return errors.Join(errs...)
	})
	return list, sbxerr.Wrap(sbxerr.Mount, "mount.tmpfs", err)
}

func tmpfsUse(name string) (TmpfsUse, error) {
	dir, err := openTmpfs(name)
	if err != nil {
		return TmpfsUse{}, err
	}
	var st unix.Statfs_t
	if err := errors.Join(unix.Fstatfs(dir, &st), unix.Close(dir)); err != nil {
		return TmpfsUse{}, err
	}
	use := TmpfsUse{Full: st.Bavail == 0 || st.Ffree == 0}
	if st.Blocks > 0 { // else it has no size
		use.Percent = 100 * float64(st.Blocks-st.Bfree) / float64(st.Blocks)
	}
	return use, nil
}
