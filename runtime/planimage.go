package runtime

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sbxerr"
)

// user is who the command runs as, in the sandbox's own ids.
type user struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"`
}

// String renders u for comparing.
func (u user) String() string { return fmt.Sprintf("%d:%d %v", u.UID, u.GID, u.Groups) }

func (p *plan) planImage(pl planner, r CreateRequest) error {
	ref, find := r.Image, pl.image
	if ref == "" {
		ref, find = p.profile.Image, pl.rootImage
	}
	var err error
	if p.image, err = find(ref); err != nil {
		return err
	}
	if p.user, err = pl.chooseUser(p, r); err != nil {
		return err
	}
	p.user.Groups = slices.Concat(p.user.Groups, pl.slots)
	config := p.image.Config.Config
	if err := checkEnv(config.Env); err != nil {
		return sbxerr.Wrap(sbxerr.ImageContent, "runtime.plan", fmt.Errorf("image %q: %w", p.image.Name, err))
	}
	p.env = mergeEnv([]string{"PATH=" + defaultPath}, config.Env, []string{"HOME=" + homePath, "USER=caisson", "HOSTNAME=" + p.id}, p.profile.Env, r.Env, r.Nested.env())
	p.cwd = firstNonEmpty(workspaceCwd(r), imageCwd(config.WorkingDir), "/")
	return checkSize(nil, p.env)
}

// chooseUser takes the request's user, else the image's where it is not root,
// else the profile's. Root is not offered: no profile grants it yet.
func (pl planner) chooseUser(p *plan, r CreateRequest) (user, error) {
	if r.User != "" {
		return pl.checkedUser(p, r.User)
	}
	if name := p.image.Config.Config.User; name != "" {
		u, err := pl.user(p.image, name)
		if err != nil {
			return user{}, err
		}
		if u.UID != 0 {
			return u, u.check(name)
		}
	}
	return pl.checkedUser(p, p.profile.User)
}

func (pl planner) checkedUser(p *plan, name string) (user, error) {
	u, err := pl.user(p.image, name)
	if err != nil {
		return user{}, err
	}
	return u, u.check(name)
}

// maxID is the last id that a user inside can have; 65535 is "no id" where ids
// are 16 bits wide.
const maxID = 65534

// check refuses root, be it by a group only, and ids that cannot be mapped.
func (u user) check(name string) error {
	for _, id := range append([]uint32{u.UID, u.GID}, u.Groups...) {
		switch {
		case id == 0:
			return sbxerr.WithRemedy(sbxerr.ImageUser, "runtime.plan",
				fmt.Errorf("user %q is root inside the sandbox, or in its group, which no profile of this version grants", sbxerr.Clip(name)),
				"name another user, such as 1000:1000")
		case id > maxID:
			return sbxerr.New(sbxerr.ImageUser, "runtime.plan", "user %q: id %d is above %d", sbxerr.Clip(name), id, maxID)
		}
	}
	return nil
}

// checkOther refuses another user than u in a sandbox of u's: nothing in it has
// the capability to become one (setuid(2)), PID 1 included.
func (u user) checkOther(other user, name string) error {
	if other.UID == 0 || u.UID == other.UID && u.GID == other.GID && sameSet(u.Groups, other.Groups) { // root is refused by check
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Config, "runtime.plan",
		fmt.Errorf("user %q is %s, and every command of the sandbox runs as %s", sbxerr.Clip(name), other.text(), u.text()),
		"leave the user out, or make a sandbox of that user's: caisson create --user "+sbxerr.Clip(name))
}

// text names u, with the groups that it has besides.
func (u user) text() string {
	text := fmt.Sprintf("%d:%d", u.UID, u.GID)
	if len(u.Groups) > 0 {
		text += fmt.Sprintf(" with the groups %d", u.Groups)
	}
	return text
}

func sameSet(a, b []uint32) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

func workspaceCwd(r CreateRequest) string {
	if r.Workspace == nil {
		return ""
	}
	return workspacePath
}

// imageCwd tidies the working directory of an image, and drops one that a
// request could not name either: images are hostile input.
func imageCwd(cwd string) string {
	if cwd == "" {
		return ""
	}
	cwd = path.Clean(cwd)
	if checkCwd(cwd) != nil {
		return ""
	}
	return cwd
}

func firstNonEmpty(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// mergeEnv joins lists of NAME=VALUE; the last value of a name wins and keeps
// the place of the first.
func mergeEnv(lists ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, kv := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}
