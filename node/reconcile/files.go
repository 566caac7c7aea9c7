package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/caisson-run/caisson/node/pod"
)

// current is the link of a volume to the directory with its files. Each file is a link through
// it, so that all change at once.
const current = "..data"

func (r *Reconciler) filesOf(p *corev1.Pod) string { return filepath.Join(r.Files, string(p.UID)) }

// writeVolumes writes the files of a pod's ConfigMaps, Secrets and tokens, of as many volumes as can be.
func (r *Reconciler) writeVolumes(p *corev1.Pod, f pod.Facts) error {
	volumes, err := pod.Files(p, f)
	r.writing.Lock()
	defer r.writing.Unlock()
	for name, files := range volumes {
		err = errors.Join(err, writeFiles(filepath.Join(f.Files, name), files))
	}
	return err
}

// refresh writes the files of pods that run anew, where their ConfigMaps or Secrets have changed
// or their tokens get old.
func (r *Reconciler) refresh(ctx context.Context) {
	for {
		if sleep(ctx, r.Refresh); ctx.Err() != nil {
			return
		}
		known := &objects{client: r.Client}
		for _, p := range r.Pods() {
			if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || !hasFiles(p) {
				continue
			}
			f := pod.Facts{Files: r.filesOf(p)}
			err := errors.Join(known.fill(ctx, p, &f), r.fillTokens(ctx, p, &f))
			if err == nil {
				err = r.writeVolumes(p, f)
			}
			var missing *pod.Missing
			if err != nil && !errors.As(err, &missing) && ctx.Err() == nil { // files of what is gone stay
				r.Log.Warn("refresh files", "pod", p.Namespace+"/"+p.Name, "error", err)
			}
		}
	}
}

func hasFiles(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil })
}

// writeFiles makes dir have these files and no others, all at once. It writes below dir alone: a
// key of a ConfigMap is not trusted.
func writeFiles(dir string, files []pod.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	old, err := root.Readlink(current)
	if err == nil && same(root, old, files) {
		return nil
	}
	now := ".." + time.Now().UTC().Format("2006_01_02_15_04_05.") + rand.String(8)
	if err := fill(root, now, files); err != nil {
		return err
	}
	if err := replaceLink(root, now, current); err != nil {
		return err
	}
	if err := link(root, files); err != nil || old == "" {
		return err
	}
	return root.RemoveAll(old)
}

func fill(root *os.Root, dir string, files []pod.File) error {
	if err := root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if !filepath.IsLocal(f.Path) || strings.HasPrefix(f.Path, "..") {
			return fmt.Errorf("the name %q leads out of its volume", f.Path)
		}
		path, mode := filepath.Join(dir, f.Path), os.FileMode(f.Mode)&os.ModePerm
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := errors.Join(root.WriteFile(path, f.Data, mode), root.Chmod(path, mode)); err != nil {
			return err
		}
	}
	return nil
}

// same says that the files in dir are these.
func same(root *os.Root, dir string, files []pod.File) bool {
	have := map[string]bool{}
	err := fs.WalkDir(root.FS(), dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			have[strings.TrimPrefix(path, dir+"/")] = true
		}
		return err
	})
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		info, statErr := root.Stat(path)
		data, readErr := root.ReadFile(path)
		if statErr != nil || readErr != nil || info.Mode().Perm() != os.FileMode(f.Mode).Perm() || !bytes.Equal(data, f.Data) {
			return false
		}
		delete(have, filepath.Clean(f.Path))
	}
	return err == nil && len(have) == 0
}

// link makes the links of the files, and removes those of files that are gone.
func link(root *os.Root, files []pod.File) error {
	tops := map[string]bool{}
	for _, f := range files {
		top, _, _ := strings.Cut(f.Path, "/")
		tops[top] = true
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !tops[e.Name()] && !strings.HasPrefix(e.Name(), "..") {
			err = errors.Join(err, root.RemoveAll(e.Name()))
		}
	}
	for _, top := range slices.Sorted(maps.Keys(tops)) {
		if to, _ := root.Readlink(top); to != current+"/"+top {
			err = errors.Join(err, replaceLink(root, current+"/"+top, top))
		}
	}
	return err
}

func replaceLink(root *os.Root, to, name string) error {
	const next = "..next"
	if err := root.RemoveAll(next); err != nil {
		return err
	}
	if err := root.Symlink(to, next); err != nil {
		return err
	}
	return root.Rename(next, name)
}
