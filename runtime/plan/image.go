package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/base"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/runtime/images"
)

// User is the user of a command, in the ids of the sandbox's user namespace.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"`
}

// IDs names u as a request does: UID:GID.
func (u User) IDs() string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

// String renders u for comparing.
func (u User) String() string { return fmt.Sprintf("%d:%d %v", u.UID, u.GID, u.Groups) }

func (p *Sandbox) planImage(pl Planner, r CreateRequest) error {
	ref, find := r.Image, pl.Image
	if ref == "" {
		ref, find = p.Profile.Image, pl.RootImage
		if p.Profile.Setup != nil {
			find = func(string) (images.Stored, error) { return pl.template(p.ProfileName) }
		} else if named := pl.Languages[r.Language]; named != "" && ref == base.Name {
			ref = named
			p.Notes = append(p.Notes, languageNote(named, r))
			find = func(ref string) (images.Stored, error) { return pl.languageImage(ref, r) }
		}
	}
	var err error
	if p.Image, err = find(ref); err != nil {
		return err
	}
	account, err := pl.chooseUser(p, r)
	if err != nil {
		return err
	}
	p.User = account.User
	p.User.Groups = slices.Concat(p.User.Groups, pl.Slots)
	config := p.Image.Config.Config
	if err := checkEnv(config.Env); err != nil {
		return sbxerr.Wrap(sbxerr.ImageContent, "runtime.plan", fmt.Errorf("image %q: %w", p.Image.Name, err))
	}
	ofImage := image.MergeEnv([]string{"PATH=" + DefaultPath}, p.identityEnv(account), config.Env)
	p.Env = image.MergeEnv(ofImage, p.cacheEnv(), p.Profile.Env, p.routeEnv(pl, r), r.Env, r.Nested.env())
	p.Cwd = cmp.Or(p.workspaceCwd(r), imageCwd(config.WorkingDir), "/")
	home := ofImage[slices.IndexFunc(ofImage, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") })]
	return errors.Join(checkSize(nil, p.Env), p.checkSystemPoints(account.Layers), p.planHomes(account, strings.TrimPrefix(home, "HOME=")))
}

// languageImage finds the image of a language, or says why it was asked for.
func (pl Planner) languageImage(ref string, r CreateRequest) (images.Stored, error) {
	img, err := pl.RootImage(ref)
	switch {
	case errors.Is(err, sbxerr.ImageNotFound):
		err = sbxerr.WithRemedy(sbxerr.ImageNotFound, "runtime.plan", fmt.Errorf("%s: %w", languageNote(ref, r), err),
			"have root get it with caisson image pull, import or from-host, or choose an image: --image base")
	case err != nil:
		err = fmt.Errorf("%s: %w", languageNote(ref, r), err)
	}
	return img, err
}

// languageNote says which image was picked, and why.
func languageNote(image string, r CreateRequest) string {
	note := fmt.Sprintf("the image %q was picked for the language %q (images.languages)", image, r.Language)
	if r.LanguageReason != "" {
		note += ", because of " + sbxerr.Clip(r.LanguageReason)
	}
	return note
}

// chooseUser takes the user of the request, else of the image unless that is root,
// else of the profile. A build step and profiles with RootUser grant root. A profile that
// names root, which it grants, is before the image.
func (pl Planner) chooseUser(p *Sandbox, r CreateRequest) (Account, error) {
	if r.User != "" {
		return pl.checkedUser(p, r.User)
	}
	if name := p.Image.Config.Config.User; name != "" && (p.Profile.RootUser == RootNone || !slices.Contains(rootNames, p.Profile.User)) {
		u, err := pl.User(p.Image, name)
		if err != nil {
			return Account{}, err
		}
		if u.UID != 0 {
			return u, u.check(name)
		}
	}
	return pl.checkedUser(p, p.Profile.User)
}

// rootNames are how a profile names root.
var rootNames = []string{"root", "0", "0:0"}

func (pl Planner) checkedUser(p *Sandbox, name string) (Account, error) {
	u, err := pl.User(p.Image, name)
	if err != nil {
		return Account{}, err
	}
	if p.Request.Build || u.UID == 0 && u.GID == 0 && p.Profile.RootUser != RootNone {
		return u, nil // ids of an image are below 65536
	}
	return u, u.check(name)
}

// maxID is the highest id inside a sandbox. 65535 means "no id" where ids have 16 bits.
const maxID = 65534

// check refuses root, also as a group, and ids that cannot be mapped.
func (u User) check(name string) error {
	for _, id := range append([]uint32{u.UID, u.GID}, u.Groups...) {
		switch {
		case id == 0:
			return sbxerr.WithRemedy(sbxerr.ImageUser, "runtime.plan",
				fmt.Errorf("user %q is root inside the sandbox, or in its group, which its profile does not grant", sbxerr.Clip(name)),
				"name another user, such as 1000:1000, or a profile with root_user")
		case id > maxID:
			return sbxerr.New(sbxerr.ImageUser, "runtime.plan", "user %q: id %d is above %d", sbxerr.Clip(name), id, maxID)
		}
	}
	return nil
}

// checkOf is check for a command in a sandbox of that user.
func (u User) checkOf(of User, name string) error {
	if of.UID == 0 && u.UID == 0 && u.GID == 0 {
		return nil
	}
	return u.check(name)
}

// checkOther refuses a user other than u in a sandbox of u. No process in it, not even
// PID 1, has the capability to become another user (setuid(2)).
func (u User) checkOther(other User, name string) error {
	if other.UID == 0 && u.UID != 0 || u.UID == other.UID && u.GID == other.GID && sameSet(u.Groups, other.Groups) { // root is refused by check
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.Config, "runtime.plan",
		fmt.Errorf("user %q is %s, and every command of the sandbox runs as %s", sbxerr.Clip(name), other.text(), u.text()),
		"leave the user out, or make a sandbox of that user's: caisson create --user "+sbxerr.Clip(name))
}

// text names u and its supplementary groups.
func (u User) text() string {
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

func (p *Sandbox) workspaceCwd(r CreateRequest) string {
	switch {
	case r.Workspace != nil:
		return r.Workspace.Point()
	case p.OwnWorkspace:
		return WorkspacePath
	}
	return ""
}

// imageCwd cleans the working directory of an image. It drops one that a request could
// not name: images are hostile input.
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
