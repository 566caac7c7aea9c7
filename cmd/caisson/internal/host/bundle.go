package host

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// part is one file of a bundle.
type part struct {
	name string
	read func(context.Context) ([]byte, error)
}

// maxPart bounds each file of a bundle.
const maxPart = 4 << 20

// bundled lists the files of a bundle.
type bundled struct {
	Path  string   `json:"path"`
	Files []string `json:"files"`
	// Missing are the files that could not be had, with the reason.
	Missing map[string]string `json:"missing"`
}

// writeBundle writes a new archive for the report of a defect. Only its owner can read it. A part
// that fails is left out. On an error the archive is removed.
func writeBundle(a *cli.App, ctx context.Context, path string) error {
	b := bundled{Path: path, Files: []string{}, Missing: map[string]string{}}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return sbxerr.Wrap(sbxerr.APIUsage, "caisson.bundle", err)
	}
	defer dir.Close()
	file, err := dir.OpenFile(filepath.Base(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return sbxerr.WithRemedy(sbxerr.APIUsage, "caisson.bundle", fmt.Errorf("%s is there already", path), "name a file that is not there yet")
	case err != nil:
		return sbxerr.Wrap(sbxerr.APIUsage, "caisson.bundle", err)
	}
	err = errors.Join(b.write(ctx, file, bundleParts(a)), file.Close())
	if err != nil {
		return sbxerr.Wrap(sbxerr.APIUsage, "caisson.bundle", errors.Join(err, dir.Remove(filepath.Base(path))))
	}
	if a.Output == cli.FormatJSON {
		return a.PrintJSON(b)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Missing)) {
		a.Progress("without " + name + ": " + b.Missing[name])
	}
	return a.PrintLine("%s", cli.Printable(path))
}

func (b *bundled) write(ctx context.Context, file *os.File, parts []part) error {
	zip := gzip.NewWriter(file)
	archive := tar.NewWriter(zip)
	now := time.Now().UTC().Truncate(time.Second)
	for _, p := range parts {
		text, err := p.read(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			b.Missing[p.name] = err.Error()
		}
		if len(text) == 0 {
			continue
		}
		text = text[max(0, len(text)-maxPart):]
		header := &tar.Header{Name: "caisson-bundle/" + p.name, Mode: 0o600, Size: int64(len(text)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
		b.Files = append(b.Files, p.name)
	}
	return errors.Join(archive.Close(), zip.Close())
}
