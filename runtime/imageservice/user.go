package imageservice

import (
	"context"
	"errors"
	"io"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/layerfs"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/plan"
)

// Account is a user as an image knows it.
func (s *Service) Account(ctx context.Context, img images.Stored, name string) (plan.Account, error) {
	layers, err := s.Layers(ctx, img)
	if err != nil {
		return plan.Account{}, err
	}
	u, err := userOf(layers, name)
	return plan.Account{User: plan.User{UID: u.UID, GID: u.GID, Groups: u.GIDs}, Name: u.Name, Home: u.Home, Layers: layers}, err
}

// userOf turns a user into ids by the passwd and group files of the image with these
// unpacked layers, topmost first. The files are hostile: image.ResolveUser bounds what it
// reads.
func userOf(layers layerfs.Layers, name string) (u image.User, err error) {
	err = withAccounts(layers, func(passwd, group io.Reader) error {
		u, err = image.ResolveUser(name, passwd, group)
		return err
	})
	return u, err
}

// withAccounts passes the image's passwd and group files to fn.
func withAccounts(layers layerfs.Layers, fn func(passwd, group io.Reader) error) error {
	passwd, err := layers.Open("etc/passwd")
	if err != nil {
		return sbxerr.Wrap(sbxerr.ImageUser, "images.user", err)
	}
	group, err := layers.Open("etc/group")
	if err != nil {
		return errors.Join(sbxerr.Wrap(sbxerr.ImageUser, "images.user", err), passwd.Close())
	}
	return errors.Join(fn(passwd, group), passwd.Close(), group.Close())
}

// AddAccount adds passwd and group files to those of a sandbox of p where the files of its
// image, with these unpacked layers, lack its user. A build shows the image's as they are.
func AddAccount(to mount.Files, layers layerfs.Layers, p *plan.Sandbox) error {
	if p.Request.Build {
		return nil
	}
	u, err := userOf(layers, p.User.IDs())
	if err != nil || u.Listed() {
		return err
	}
	err = withAccounts(layers, func(passwd, group io.Reader) error {
		newPasswd, newGroup, err := u.AddTo(passwd, group)
		if newPasswd != nil {
			to["etc/passwd"] = string(newPasswd)
		}
		if newGroup != nil {
			to["etc/group"] = string(newGroup)
		}
		return err
	})
	return sbxerr.Wrap(sbxerr.ImageUser, "images.user", err)
}
