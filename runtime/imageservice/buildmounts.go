package imageservice

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/buildplan"
	"github.com/caisson-run/caisson/rootfs/layertar"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

// stepMounts are the mounts of a command.
type stepMounts struct {
	list    []plan.MountRequest
	content digest.Digest // of what can be read; empty: nothing
	points  []string      // names that the image lacks, which the runtime makes as mount points
}

// mounts finds what --mount of a command shows.
func (t *buildStage) mounts(ctx context.Context, list []buildplan.Mount) (s stepMounts, err error) {
	if len(list) == 0 || t.isEmpty() {
		return s, nil
	}
	into, err := t.service.view(ctx, t.img)
	if err != nil {
		return s, err
	}
	defer into.Close() // it was only read
	sum := sha256.New()
	for _, m := range list {
		at, missing, err := layertar.Find(into, m.Target)
		if err != nil {
			return s, err
		}
		s.points = append(s.points, missing...)
		r, content, err := t.mountOf(ctx, m)
		if err != nil {
			return s, fmt.Errorf("mount on %q: %w", m.Target, err)
		}
		if content != "" {
			fmt.Fprintln(sum, content)
			s.content = digest.NewDigest(digest.SHA256, sum)
		}
		r.Target = path.Join("/", at)
		s.list = append(s.list, r)
	}
	return s, nil
}

func (t *buildStage) mountOf(ctx context.Context, m buildplan.Mount) (r plan.MountRequest, content digest.Digest, err error) {
	switch m.Type {
	case "tmpfs":
		r.Type = m.Type
		if m.Size > 0 {
			r.SizeBytes = &m.Size
		}
		return r, "", nil
	case "secret":
		file := &mount.MemoryFile{Data: t.request.Secrets[m.ID], UID: uint32(m.UID), GID: uint32(m.GID), Mode: uint32(m.Mode)}
		return plan.MountRequest{Type: plan.FileType, Source: "secret", ReadOnly: true, File: file}, "", nil
	case "cache":
		return plan.MountRequest{Type: plan.VolumeType, Source: cacheVolume(m.ID), ReadOnly: m.ReadOnly}, "", nil
	}
	return t.tree(ctx, m)
}

// cacheVolume is the volume of the caller's that a cache is.
func cacheVolume(id string) string {
	return fmt.Sprintf("build-cache-%.16x", sha256.Sum256([]byte(id)))
}

// tree is a part of the context, a stage or an image.
func (t *buildStage) tree(ctx context.Context, m buildplan.Mount) (r plan.MountRequest, content digest.Digest, err error) {
	img, below, err := t.sourceImage(ctx, m.Stage, m.Image)
	if err != nil {
		return r, "", err
	}
	if len(img.Layers) == 0 {
		return r, "", sbxerr.New(sbxerr.Config, "images.build", "its source has no files")
	}
	root, err := t.openSource(ctx, img, below)
	if err != nil {
		return r, "", err
	}
	defer root.Close() // it was only read
	at, missing, err := layertar.Find(root, m.Source)
	if err == nil && len(missing) > 0 {
		err = sbxerr.WithRemedy(sbxerr.Config, "images.build", fmt.Errorf("there is no %q", m.Source), "look at the context's files and at its .dockerignore")
	}
	if err != nil {
		return r, "", err
	}
	if content, err = layertar.DigestOf(ctx, root, at); err != nil {
		return r, "", err
	}
	layers, err := t.service.Layers(ctx, img)
	return plan.MountRequest{Type: plan.TreeType, Source: path.Join("/", below, at), Layers: layers, ReadOnly: true}, content, err
}

// alone waits until no other build has one of the caches that a command wants for itself.
func (t *buildStage) alone(ctx context.Context, list []buildplan.Mount) (done func(), err error) {
	var held []func()
	done = func() {
		for _, free := range held {
			free()
		}
	}
	var names []string
	for _, m := range list {
		if m.Type == "cache" && m.Alone {
			names = append(names, fmt.Sprintf("%d+%s", t.grant.Owner().UID, cacheVolume(m.ID)))
		}
	}
	slices.Sort(names) // so that two commands never wait for each other
	for _, name := range slices.Compact(names) {
		free, err := t.service.caches.take(ctx, name)
		if err != nil {
			done()
			return nil, err
		}
		held = append(held, free)
	}
	return done, nil
}

// named are locks by name. The zero value holds none.
type named struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is free
}

// take waits for the lock of a name.
func (n *named) take(ctx context.Context, name string) (free func(), err error) {
	for {
		n.mu.Lock()
		busy, isHeld := n.held[name]
		if !isHeld {
			if n.held == nil {
				n.held = map[string]chan struct{}{}
			}
			n.held[name] = make(chan struct{})
		}
		n.mu.Unlock()
		if !isHeld {
			return func() { n.free(name) }, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (n *named) free(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.held[name])
	delete(n.held, name)
}
