package dockerfile

import (
	"cmp"
	"path"
	"slices"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// ownScratch are directories that every command has of its own.
var ownScratch = []string{"/tmp", "/var/tmp", "/run", "/dev/shm"}

// mounts plans what RUN --mount asks for.
func (p *planner) mounts(i instruction, c *instructions.RunCommand) (list []Mount, err error) {
	for _, asked := range instructions.GetMounts(c) {
		m := Mount{Type: string(asked.Type), Stage: -1, ReadOnly: asked.ReadOnly, Size: asked.SizeLimit}
		m.Target = path.Clean(p.absolute(asked.Target)) // empty: the working directory
		refuse := func(format string, args ...any) error {
			return lineError(i.line, "--mount=type="+m.Type+": "+format, args...)
		}
		switch asked.Type {
		case instructions.MountTypeBind:
			m.Source = path.Join("/", asked.Source)
			if asked.From != "" {
				m.Stage, m.Image, err = p.source(i, asked.From)
			}
			if err == nil && !m.ReadOnly {
				err = refuse("it can only be read: leave rw out, and copy the files in the command")
			}
		case instructions.MountTypeCache:
			m.ID, m.Alone = asked.CacheID, asked.CacheSharing != "" && asked.CacheSharing != instructions.MountSharingShared
			if m.ID == "" {
				m.ID = m.Target
			}
			if asked.From != "" {
				err = refuse("a cache begins empty: leave from out")
			}
		case instructions.MountTypeTmpfs:
		case instructions.MountTypeSecret:
			var given bool
			if given, err = p.secret(&m, asked, refuse); err == nil && !given {
				continue
			}
		default:
			err = refuse("it is not supported: there are bind, cache, tmpfs and secret")
		}
		if err == nil && m.Target == "/" {
			err = refuse("target %q: name a directory below the root", sbxerr.Clip(asked.Target))
		}
		if err != nil {
			return nil, err
		}
		if asked.Type != instructions.MountTypeBind && asked.Type != instructions.MountTypeSecret && slices.Contains(ownScratch, m.Target) {
			continue // it is empty, and no part of the image
		}
		list = append(list, m)
	}
	return list, nil
}

// secret completes the mount of a secret. One that the build was not given is not mounted.
func (p *planner) secret(m *Mount, asked *instructions.Mount, refuse func(string, ...any) error) (given bool, err error) {
	m.ID = cmp.Or(asked.Source, asked.CacheID, path.Base(asked.Target))
	if asked.Target == "" {
		m.Target = "/run/secrets/" + path.Base(m.ID)
	}
	m.Mode = 0o400
	for to, from := range map[*int64]*uint64{&m.Mode: asked.Mode, &m.UID: asked.UID, &m.GID: asked.GID} {
		if from != nil {
			*to = int64(*from)
		}
	}
	given = slices.Contains(p.options.Secrets, m.ID)
	switch {
	case asked.Env != nil:
		return false, refuse("env is not supported: read the file in the command")
	case m.Mode > 0o777 || m.UID > maxID || m.GID > maxID:
		return false, refuse("mode is at most 0777, uid and gid at most %d", maxID)
	case !given && asked.Required:
		return false, refuse("the build has no secret %q: give it with --secret", sbxerr.Clip(m.ID))
	}
	return given, nil
}

// maxID is the highest id inside a sandbox.
const maxID = 65534
