package ctrd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/images"
)

const (
	snapshotter = "overlayfs"
	viewPrefix  = "view-"
	viewLabel   = "caisson.view"
	countLabel  = "caisson.layer-names" // of a view
)

// Layers returns the directories of an image's unpacked layers, the topmost first.
// They are read-only by agreement: containerd and other sandboxes use them too.
// They stay, even past the removal of the image, until ReleaseView. Layers from which
// files were deleted are unpacked again.
func (e *Engine) Layers(ctx context.Context, img images.Stored) ([]string, error) {
	if dirs := e.knownView(img.ChainID); dirs != nil {
		return dirs, nil
	}
	var l layers
	err := e.callUnbounded(ctx, "ctrd.layers", "find layers of image", img.Name, func(ctx context.Context) (err error) {
		l, err = e.wholeLayers(ctx, img)
		return err
	})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.views[img.ChainID] = l
	return slices.Clone(l.dirs), nil
}

// layers are the directories of a view, the topmost first.
type layers struct {
	dirs   []string
	stamps []stamp
}

// knownView returns the directories of a view that was made before, unless
// somebody changed them since.
func (e *Engine) knownView(chainID string) []string {
	e.mu.Lock()
	known, ok := e.views[chainID]
	e.mu.Unlock()
	if !ok || !unchanged(known.stamps) {
		return nil
	}
	return slices.Clone(known.dirs)
}

// wholeLayers finds an image's layers, and unpacks those that are not whole again.
func (e *Engine) wholeLayers(ctx context.Context, img images.Stored) (layers, error) {
	l, lost, err := e.findLayers(ctx, img)
	if err != nil || lost == nil {
		return l, err
	}
	e.repair.Lock()
	defer e.repair.Unlock()
	l, lost, err = e.findLayers(ctx, img) // another request may have repaired it
	if err != nil || lost == nil {
		return l, err
	}
	if err := e.unpackLost(ctx, img, lost.below); err != nil {
		return layers{}, err
	}
	l, lost, err = e.findLayers(ctx, img)
	if err == nil && lost != nil {
		err = lost.why
	}
	return l, err
}

// findLayers finds the layers of the image's view, or the lowest one that is not whole.
func (e *Engine) findLayers(ctx context.Context, img images.Stored) (layers, *loss, error) {
	mounts, err := e.view(ctx, img)
	if err != nil && lostParent(err) {
		return layers{}, &loss{len(img.Config.RootFS.DiffIDs) - 1, err}, nil
	}
	if err != nil {
		return layers{}, nil, err
	}
	dirs, err := layerDirs(mounts)
	if want := len(img.Config.RootFS.DiffIDs); err == nil && len(dirs) != want {
		err = sbxerr.New(sbxerr.Engine, "ctrd.layers", "read mounts of view: %d layers of %d", len(dirs), want)
	}
	if err != nil {
		return layers{}, nil, err
	}
	counts, stamps, lost := countLayers(dirs)
	if lost != nil {
		return layers{}, lost, nil
	}
	recorded, err := e.recordedCounts(ctx, img.ChainID, counts)
	if err != nil {
		return layers{}, nil, err
	}
	return layers{dirs, stamps}, compareCounts(dirs, counts, recorded), nil
}

// recordedCounts returns what the layers of a view were counted as when it was made.
// A view without the label gets it.
func (e *Engine) recordedCounts(ctx context.Context, chainID string, now []layerCount) ([]layerCount, error) {
	sn := e.client.SnapshotService(snapshotter)
	info, err := sn.Stat(ctx, viewPrefix+chainID)
	if err != nil {
		return nil, err
	}
	if value, ok := info.Labels[countLabel]; ok {
		return parseCounts(value, len(now))
	}
	info.Labels = map[string]string{countLabel: formatCounts(now)}
	_, err = sn.Update(ctx, info, "labels."+countLabel)
	return now, err
}

// view returns the mounts of the image's long-lived view, which it makes when it
// is absent, after unpacking the image when that is undone too.
func (e *Engine) view(ctx context.Context, img images.Stored) ([]mount.Mount, error) {
	sn := e.client.SnapshotService(snapshotter)
	key := viewPrefix + img.ChainID
	labels := snapshots.WithLabels(map[string]string{
		"containerd.io/gc.root": time.Now().UTC().Format(time.RFC3339),
		viewLabel:               img.ChainID,
	})
	mounts, err := sn.View(ctx, key, img.ChainID, labels)
	if errdefs.IsNotFound(err) {
		if err := e.unpackNamed(ctx, img); err != nil {
			return nil, err
		}
		mounts, err = sn.View(ctx, key, img.ChainID, labels)
	}
	if errdefs.IsAlreadyExists(err) {
		return sn.Mounts(ctx, key)
	}
	return mounts, err
}

func (e *Engine) unpackNamed(ctx context.Context, img images.Stored) error {
	record, err := e.find(ctx, img.Key(), "")
	if err != nil {
		return err
	}
	if err := e.unpackImage(ctx, record); err != nil {
		return e.whyUnread(ctx, img, err)
	}
	return nil
}

// layerDirs reads the layers' directories out of the mounts of a view: an overlay
// of several, or a bind of the only one.
func layerDirs(mounts []mount.Mount) ([]string, error) {
	if len(mounts) != 1 {
		return nil, sbxerr.New(sbxerr.Engine, "ctrd.layers", "read mounts of view: %d of them", len(mounts))
	}
	m := mounts[0]
	var dirs []string
	switch m.Type {
	case "bind":
		dirs = []string{m.Source}
	case "overlay":
		for _, o := range m.Options {
			if list, ok := strings.CutPrefix(o, "lowerdir="); ok {
				dirs = strings.Split(list, ":") // our paths hold no colon, see checkPath
			}
		}
	}
	if len(dirs) == 0 || slices.ContainsFunc(dirs, func(d string) bool { return !filepath.IsAbs(d) || strings.Contains(d, `\`) }) {
		return nil, sbxerr.New(sbxerr.Engine, "ctrd.layers", "read mounts of view: no layers in %q with %q", m.Type, m.Options)
	}
	return dirs, nil
}

// Views lists the chain IDs that Layers keeps, in order.
func (e *Engine) Views(ctx context.Context) ([]string, error) {
	var chains []string
	err := e.call(ctx, "ctrd.views", "list views of", e.cfg.Namespace, func(ctx context.Context) error {
		chains = chains[:0]
		return e.client.SnapshotService(snapshotter).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			if chain, ok := info.Labels[viewLabel]; ok && info.Name == viewPrefix+chain {
				chains = append(chains, chain)
			}
			return nil
		}, fmt.Sprintf("labels.%q", viewLabel))
	})
	slices.Sort(chains)
	return chains, err
}

// ReleaseView lets go of an image's layers. The caller knows that no sandbox uses
// them. The space is freed by the garbage collection that the removal of an image
// or the server itself runs. Absent is success.
func (e *Engine) ReleaseView(ctx context.Context, chainID string) error {
	e.mu.Lock()
	delete(e.views, chainID)
	e.mu.Unlock()
	return e.call(ctx, "ctrd.release_view", "remove view", chainID, func(ctx context.Context) error {
		err := e.client.SnapshotService(snapshotter).Remove(ctx, viewPrefix+chainID)
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// Unpacked adds up the snapshots of a chain.
func (e *Engine) Unpacked(ctx context.Context, chainID string) (total int64, err error) {
	err = e.call(ctx, "ctrd.unpacked", "measure image", chainID, func(ctx context.Context) error {
		total = 0
		sn := e.client.SnapshotService(snapshotter)
		for key := chainID; key != ""; {
			usage, err := sn.Usage(ctx, key)
			if err != nil {
				return err
			}
			info, err := sn.Stat(ctx, key)
			if err != nil {
				return err
			}
			total, key = total+usage.Size, info.Parent
		}
		return nil
	})
	return total, err
}
