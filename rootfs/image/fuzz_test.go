package image

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func formatIDs(uid, gid uint32) string { return fmt.Sprintf("%d:%d", uid, gid) }

var (
	asksForRoot   = regexp.MustCompile(`^(0|root)(:|$)`)
	asksForGroup0 = regexp.MustCompile(`^(0|root)$|:(0|root)$|^(0|root):`)
	twoNumbers    = regexp.MustCompile(`^(0|[1-9][0-9]{0,4}):(0|[1-9][0-9]{0,4})$`)
)

// FuzzResolveUser holds whatever resolves to: ids that map, root only when
// asked for, numbers as they are written.
func FuzzResolveUser(f *testing.F) {
	for _, user := range []string{"root", "app", "app:staff", "1000:1000", "-1", "+0", "0x0", "4294967295", " 0", "1001", "a:b:c"} {
		f.Add(user, passwdFile, groupFile)
	}
	f.Fuzz(func(t *testing.T, user, passwd, group string) {
		u, err := ResolveUser(user, strings.NewReader(passwd), strings.NewReader(group))
		uid, gid, gids := u.UID, u.GID, u.GIDs
		if err != nil {
			if sbxerr.Of(err) != sbxerr.ImageUser || uid != 0 || gid != 0 || gids != nil {
				t.Errorf("%d:%d %d with %v", uid, gid, gids, err)
			}
			return
		}
		if uid > 65535 || gid > 65535 || uid == 0 && !asksForRoot.MatchString(user) || gid == 0 && !asksForGroup0.MatchString(user) {
			t.Errorf("%q became %d:%d", user, uid, gid)
		}
		if len(gids) > maxGroups || slices.Contains(gids, 0) || slices.Contains(gids, gid) || !slices.IsSorted(gids) || len(slices.Compact(slices.Clone(gids))) != len(gids) {
			t.Errorf("%q is in %d", user, gids)
		}
		if twoNumbers.MatchString(user) && formatIDs(uid, gid) != user {
			t.Errorf("%q became %d:%d", user, uid, gid)
		}
	})
}
