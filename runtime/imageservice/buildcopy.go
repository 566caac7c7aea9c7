package imageservice

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	mode "github.com/tonistiigi/dchapes-mode"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/runtime/images"
)

// copyStep copies files of the context, a stage or an image.
func (t *buildStage) copyStep(ctx context.Context, s buildplan.Step, into *os.Root) error {
	c, err := t.copyOf(ctx, s.Copy)
	if err != nil {
		return err
	}
	if c.From != nil {
		defer c.From.Close() // it was only read
	}
	c.Into = into
	layer, err := c.Plan(ctx)
	if err != nil {
		return err
	}
	content, err := layer.Digest(ctx)
	if err != nil {
		return err
	}
	return t.addLayer(ctx, s, content, layer)
}

// copyOf finds what a step copies, and for whom.
func (t *buildStage) copyOf(ctx context.Context, s *buildplan.Copy) (c layertar.Copy, err error) {
	limits := t.service.settings().Limits
	c = layertar.Copy{
		Sources: s.Sources, Dest: s.Dest, Unpack: s.Unpack, Limits: layertar.Limits{Bytes: limits.Bytes, Entries: limits.Entries},
	}
	for _, text := range s.Texts {
		c.Texts = append(c.Texts, layertar.Text(text))
	}
	if c.DirMode, c.Mode, err = modeOf(s.Mode); err != nil {
		return c, err
	}
	if c.Owner, err = t.owner(ctx, s.Owner); err != nil {
		return c, err
	}
	if len(s.Sources) == 0 {
		return c, nil
	}
	if t.files != nil && s.Stage < 0 && s.Image == "" {
		c.From, err = t.files.OpenRoot(".")
		return c, sbxerr.Wrap(sbxerr.Internal, "images.build", err)
	}
	img, folder, err := t.sourceImage(ctx, s.Stage, s.Image)
	if err != nil {
		return c, err
	}
	c.From, err = t.openSource(ctx, img, folder)
	return c, err
}

// modeOf reads --chmod, which was checked. Letters say nothing of directories that no source
// has.
func modeOf(text string) (dir int64, apply func(fs.FileMode) fs.FileMode, err error) {
	if text == "" {
		return 0, nil, nil
	}
	if dir, err = strconv.ParseInt(text, 8, 32); err == nil {
		all := fs.FileMode(dir & 0o777)
		for bit, of := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
			if dir&bit != 0 {
				all |= of
			}
		}
		return dir, func(fs.FileMode) fs.FileMode { return all }, nil
	}
	set, err := mode.ParseWithUmask(text, 0)
	return 0, set.Apply, err
}

// owner resolves a user, with a group or without, for files. Nil is nobody's name. A number
// is the group, too, where none is given.
func (t *buildStage) owner(ctx context.Context, name string) (*layertar.Owner, error) {
	if name == "" {
		return nil, nil
	}
	user, group, _ := strings.Cut(name, ":")
	if user == "root" {
		user = "0"
	}
	if _, err := strconv.ParseUint(user, 10, 32); err == nil {
		group = cmp.Or(group, user)
	}
	if group == "root" {
		group = "0"
	}
	if group != "" {
		user += ":" + group
	}
	var layers []string
	if !t.isEmpty() {
		var err error
		if layers, err = t.service.Layers(ctx, t.img); err != nil {
			return nil, err
		}
	}
	found, err := userOf(layers, user)
	return &layertar.Owner{UID: int(found.UID), GID: int(found.GID)}, err
}

// sourceImage finds the image of which files are taken, and the folder in it.
func (t *buildStage) sourceImage(ctx context.Context, stage int, name string) (img images.Stored, folder string, err error) {
	switch {
	case stage >= 0:
		return t.stages[stage], "", nil
	case name != "":
		img, err = t.service.verified(t.service.Find(ctx, name))
		return img, "", err
	case t.request.Context == "":
		return img, "", sbxerr.WithRemedy(sbxerr.Config, "images.build", errors.New("the build has no context: there is nothing to copy from"),
			"put a COPY into the file, so that caisson image build sends the context")
	}
	img, err = t.service.Find(ctx, t.request.Context)
	return img, contextRoot, err
}

// openSource opens a folder of an image; empty is all of it.
func (t *buildStage) openSource(ctx context.Context, img images.Stored, folder string) (*os.Root, error) {
	root, err := t.service.view(ctx, img)
	if err != nil || folder == "" {
		return root, err
	}
	defer root.Close() // it was only read
	files, err := root.OpenRoot(folder)
	if err != nil {
		return nil, sbxerr.New(sbxerr.Config, "images.build", "the context has no folder %q: %w", folder, err)
	}
	return files, nil
}

// homeOf is the home of a user, as the image's passwd(5) has it.
func homeOf(layers []string, user string) (string, error) {
	u, err := userOf(layers, user)
	if u.Home == "" && u.UID == 0 {
		u.Home = "/root"
	}
	return cmp.Or(u.Home, "/"), err
}
