package ctrd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/sbxerr"
)

const (
	snapshotter = "overlayfs"
	viewPrefix  = "view-"
	viewLabel   = "caisson.view"
)

// Layers returns the directories of an image's unpacked layers, the topmost first.
// They are read-only by agreement: containerd and other sandboxes use them too.
// They stay, even past the removal of the image, until ReleaseView.
func (e *Engine) Layers(ctx context.Context, img images.Stored) ([]string, error) {
	if dirs := e.knownView(img.ChainID); dirs != nil {
		return dirs, nil
	}
	var dirs []string
	err := e.callUnbounded(ctx, "ctrd.layers", "find layers of image", img.Name, func(ctx context.Context) (err error) {
		dirs, err = e.viewDirs(ctx, img)
		if err == nil && checkDirs(dirs) == nil && !emptyLayers(dirs) || err != nil && !lostParent(err) {
			return err
		}
		if dirs, err = e.unpackLost(ctx, img, dirs); err != nil {
			return err
		}
		return checkDirs(dirs)
	})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.views[img.ChainID] = dirs
	return slices.Clone(dirs), nil
}

func (e *Engine) viewDirs(ctx context.Context, img images.Stored) ([]string, error) {
	mounts, err := e.view(ctx, img)
	if err != nil {
		return nil, err
	}
	return layerDirs(mounts)
}

// knownView returns the directories of a view that was made before, unless
// somebody removed them since.
func (e *Engine) knownView(chainID string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	dirs, ok := e.views[chainID]
	if !ok {
		return nil
	}
	if checkDirs(dirs) != nil {
		delete(e.views, chainID)
		return nil
	}
	return slices.Clone(dirs)
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
		return e.whyUnpacked(ctx, img, err)
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

// checkDirs fails if a layer is not where the server says: a host's containerd may
// run in a mount namespace of its own.
func checkDirs(dirs []string) error {
	for _, d := range dirs {
		if st, err := os.Lstat(d); err != nil {
			return fmt.Errorf("find layer: %w", err)
		} else if !st.IsDir() {
			return fmt.Errorf("find layer: %q is no directory", d)
		}
	}
	return nil
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
