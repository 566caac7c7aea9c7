package plan

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/oci"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/layerfs"
)

// Account is the user of a sandbox as its image knows it.
type Account struct {
	User
	Name   string
	Home   string         // as passwd(5) says; empty: it has no entry there
	Layers layerfs.Layers // of the image
}

// Home is a directory of the image that the user may write to: nothing of it reaches the
// image.
type Home struct {
	Target string
	Mode   uint32   // permission bits
	Points []string // directories below it, as paths from it, on which something is mounted
}

// HomesDir is where the homes of a sandbox are attached on the host, below the sandbox's
// directory.
const HomesDir = "homes"

// HomePoint is where the home with that index is.
func HomePoint(i int) string { return filepath.Join(HomesDir, strconv.Itoa(i)) }

// homeDir is the host's path of /home, empty where a tmpfs is there.
func (p *Sandbox) homeDir(state string) string {
	i := slices.IndexFunc(p.Homes, func(h Home) bool { return h.Target == oci.HomeMount })
	if i < 0 {
		return ""
	}
	return filepath.Join(state, HomePoint(i))
}

// HomesText renders the homes for comparing. It is empty where there are none.
func (p *Sandbox) HomesText() string {
	if len(p.Homes) == 0 {
		return ""
	}
	return fmt.Sprint(p.Homes)
}

// homeForm keeps what overlayfs separates paths by out of them.
var homeForm = regexp.MustCompile(`^(/[A-Za-z0-9_.@+-]+)+$`)

// planHomes decides what of the image's home directories the user finds, and may write to:
// /home, and HOME elsewhere if it is the user's own. Where the image has nothing in /home,
// and no mount lies in HOME, a tmpfs is there, which costs less.
func (p *Sandbox) planHomes(u Account, home string) error {
	switch {
	case p.Request.Build: // the whole root can be written
		return nil
	case p.writesRoot(p.Request):
		return p.planRootDirs(u, home)
	}
	filled, err := u.Layers.HasEntries(oci.HomeMount[1:])
	if err != nil {
		return sbxerr.Wrap(sbxerr.ImageContent, "runtime.home", err)
	}
	mounted := slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Target == home || below(m.Target, home) })
	if filled || mounted && below(home, oci.HomeMount) {
		p.Homes = append(p.Homes, Home{Target: oci.HomeMount, Mode: 0o755})
	}
	mode, err := u.ownHome(home)
	if err != nil {
		return err
	}
	if mode != 0 && p.isFree(home) {
		p.Homes = append(p.Homes, Home{Target: home, Mode: mode})
		p.points = append(p.points, home[1:])
	}
	p.mountInHomes()
	return nil
}

// ownHome returns the mode of home outside of /home where it is the user's own directory,
// else 0.
func (u Account) ownHome(home string) (uint32, error) {
	if path.Clean(home) != home || !homeForm.MatchString(home) || home == oci.HomeMount || below(home, oci.HomeMount) || inSystem(home) || checkTarget("", home) != nil {
		return 0, nil
	}
	st, err := u.Layers.Lstat(home[1:])
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, sbxerr.Wrap(sbxerr.ImageContent, "runtime.home", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() || sys.Uid != u.UID {
		return 0, nil
	}
	return uint32(st.Mode().Perm()), nil
}

// isFree reports whether no mount of the request takes the place of home, or of what holds
// it, and no mount of every sandbox does.
func (p *Sandbox) isFree(home string) bool {
	for _, dir := range scratchDirs {
		if home == dir || below(home, dir) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Target == home || m.Holds(Mount{Target: home}) })
}

// mountInHomes has the daemon make the mounts that lie in a home, on directories that it
// makes there: those of the image may be links.
func (p *Sandbox) mountInHomes() {
	for i := range p.Homes {
		h := &p.Homes[i]
		for j := range p.Mounts {
			m := &p.Mounts[j]
			if m.Nested || !below(m.Target, h.Target) {
				continue
			}
			m.Nested = true
			h.Points = append(h.Points, strings.TrimPrefix(m.Target, h.Target+"/"))
			p.points = slices.DeleteFunc(p.points, func(point string) bool { return "/"+point == m.Target })
		}
	}
}

// below reports whether name lies in dir.
func below(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }

// identityEnv names the user and its home.
func (p *Sandbox) identityEnv(u Account) []string {
	home, name := cmp.Or(u.Home, image.DefaultHome), u.Name
	if p.User.UID == 0 {
		home, name = cmp.Or(u.Home, rootHome), cmp.Or(u.Name, "root")
	}
	if p.Request.Build {
		home, name = "/", p.Request.User
		if p.User.UID == 0 {
			home, name = "/root", "root"
		}
		home = cmp.Or(u.Home, home)
	}
	return []string{"HOME=" + home, "USER=" + name, "HOSTNAME=" + p.Hostname()}
}
