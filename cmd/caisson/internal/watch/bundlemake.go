package watch

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/bundle"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
	"github.com/caisson-run/caisson/cmd/caisson/internal/images"
)

// maker gathers the parts of a bundle.
type maker struct {
	app    *cli.App
	client *api.Client
	parts  []bundle.Part
	files  []*os.File // with their content
}

func (m *maker) close() {
	for _, f := range m.files {
		f.Close() // images have no name any more
	}
}

// create writes a bundle beside file, and puts it in its place when it is whole.
func (m *maker) create(ctx context.Context, file string, key ed25519.PrivateKey, images, profiles []string) error {
	for _, name := range images {
		if err := m.image(ctx, filepath.Dir(file), name); err != nil {
			return err
		}
	}
	for _, path := range profiles {
		f, err := os.Open(path)
		if err != nil {
			return bundleError(err)
		}
		if err := m.add(bundle.Part{Kind: bundle.File, Name: filepath.Base(path)}, f); err != nil {
			return err
		}
	}
	return cli.SaveFile(file, func(w io.Writer) error {
		err := bundle.Write(w, m.parts, key, func(i int) (io.ReadCloser, error) {
			_, err := m.files[i].Seek(0, io.SeekStart)
			return io.NopCloser(m.files[i]), err
		})
		return sbxerr.Wrap(codeOr(err, sbxerr.ClientIO), "caisson.bundle", err)
	})
}

func codeOr(err error, other sbxerr.Code) sbxerr.Code {
	if c := sbxerr.Of(err); c != sbxerr.Unknown {
		return c
	}
	return other
}

// image saves an image to a file without a name, beside the bundle: there is room for it.
func (m *maker) image(ctx context.Context, dir, name string) error {
	detail, err := m.client.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: name})
	if err != nil {
		return err
	}
	f, err := unnamed(dir)
	if err != nil {
		return bundleError(err)
	}
	if err := m.client.SaveImages(ctx, &caissonv1.SaveImagesRequest{Names: []string{name}}, f); err != nil {
		return errors.Join(err, f.Close())
	}
	return m.add(bundle.Part{Kind: bundle.Image, Name: detail.Image.Name, Digest: detail.Image.Digest}, f)
}

// unnamed makes a file that has no name any more, in a directory.
func unnamed(dir string) (_ *os.File, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // it was only read
	name := ".image." + rand.Text()
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := root.Remove(name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (m *maker) add(p bundle.Part, f *os.File) error {
	m.files = append(m.files, f)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return bundleError(err)
	}
	p, err := bundle.Describe(p, f)
	if err != nil {
		return bundleError(fmt.Errorf("read %s: %w", p.Name, err))
	}
	m.parts = append(m.parts, p)
	return nil
}

// loadImage imports an image, unless it is there.
func loadImage(a *cli.App, ctx context.Context, client *api.Client, p bundle.Part, archive io.Reader) error {
	there, err := client.InspectImage(ctx, &caissonv1.InspectImageRequest{Name: p.Name})
	if err == nil && holds(there.Image, p.Digest) {
		a.Progress(p.Name + " is there")
		return nil
	}
	if err != nil && sbxerr.Of(err) != sbxerr.ImageNotFound && sbxerr.Of(err) != sbxerr.ImageDamaged {
		return err
	}
	r, err := client.ImportImage(ctx, p.Name, archive)
	if err != nil {
		return err
	}
	return images.PrintImported(a, r)
}
