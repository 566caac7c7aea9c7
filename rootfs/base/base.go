// Package base makes the image "base": a root file system with busybox and
// little else, out of files that are embedded in the program. With it, the
// first run on a host needs no archive and no network.
//
// The image is the same to the byte whenever it is made from the same files,
// so its digest says whether a stored one is current.
package base

import (
	"archive/tar"
	"bytes"
	"context"
	"embed"
	"io"
	"io/fs"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
)

// Name is the image's name.
const Name = "base"

// assets holds busybox and the list of its applets when the build put them
// there; assets/README.md says how. The README is what makes this compile
// without them.
//
//go:embed assets
var assets embed.FS

// Build commits the image to sink. The code is Binary when the program was
// built without busybox or with one that cannot run here.
func Build(ctx context.Context, sink image.Sink) (image.Result, error) {
	return build(ctx, assets, sink)
}

// Digest returns the digest of the manifest that Build makes. A stored image
// with another one is out of date.
func Digest(ctx context.Context) (digest.Digest, error) {
	r, err := build(ctx, assets, image.Discard)
	return r.Manifest.Digest, err
}

func build(ctx context.Context, files fs.FS, sink image.Sink) (image.Result, error) {
	a, err := readAssets(files)
	if err != nil {
		return image.Result{}, sbxerr.WithRemedy(sbxerr.Binary, "base.assets", err,
			"build caisson with make, which puts busybox in place, or import an image: caisson image import")
	}
	return image.Build(ctx, image.BuildOptions{
		Name:   Name,
		Kind:   image.KindEmbedded,
		Config: config,
		Limits: image.DefaultLimits(),
	}, sink, a.layer)
}

// config is what a command gets when its caller says nothing.
var config = ocispec.ImageConfig{
	User:       "1000:1000",
	Env:        []string{"PATH=" + searchPath},
	Cmd:        []string{"/bin/sh"},
	WorkingDir: "/",
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// writer writes what image.Filter would leave as it is: it is a part of this program.
type writer struct {
	tar    *tar.Writer
	report image.Report
}

// layer writes the image's one layer.
func (a *asset) layer(to io.Writer) (image.Report, error) {
	w := &writer{tar: tar.NewWriter(to)}
	if err := a.write(w); err != nil {
		return image.Report{}, err
	}
	return w.report, w.tar.Close()
}

// write gives the image's entries, parents first.
func (a *asset) write(w *writer) error {
	for _, d := range dirs {
		if err := entry(w, &tar.Header{Typeflag: tar.TypeDir, Name: d.name, Mode: d.mode}, nil); err != nil {
			return err
		}
	}
	if err := file(w, "bin/busybox", 0o755, a.busybox); err != nil {
		return err
	}
	for _, applet := range a.applets {
		if err := symlink(w, "bin/"+applet, "busybox"); err != nil {
			return err
		}
	}
	for _, l := range links {
		if err := symlink(w, l.name, l.target); err != nil {
			return err
		}
	}
	for _, f := range texts {
		if err := file(w, f.name, 0o644, []byte(f.content)); err != nil {
			return err
		}
	}
	return nil
}

func file(w *writer, name string, mode int64, content []byte) error {
	return entry(w, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, bytes.NewReader(content))
}

func symlink(w *writer, name, target string) error {
	return entry(w, &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, nil)
}

// entry adds an entry that root owns. The time is fixed: it is part of the
// digest.
func entry(w *writer, h *tar.Header, content io.Reader) error {
	h.ModTime = time.Unix(0, 0)
	w.report.Entries++
	if err := w.tar.WriteHeader(h); err != nil || content == nil {
		return err
	}
	n, err := io.Copy(w.tar, content)
	w.report.Bytes += n
	return err
}
