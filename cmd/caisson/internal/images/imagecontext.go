package images

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/caisson-run/caisson/api"
	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/cmd/caisson/internal/cli"
)

// The image that the context of one build is, and the folder in it. The daemon removes
// images of such names after the build.
const (
	contextPrefix = "build-context/"
	contextFolder = "context"
)

// recipe is where the Dockerfile and the files for COPY are.
type recipe struct {
	file string // "-" is standard input
	dir  string
}

// sendContext sends the files of a recipe as an image. done removes it where the build did not.
func sendContext(a *cli.App, ctx context.Context, client *api.Client, req *caissonv1.BuildImageRequest, from recipe) (done func(), err error) {
	root, err := os.OpenRoot(from.dir)
	if err != nil {
		return nil, contextError(err)
	}
	defer root.Close() // it was only read
	ignored, err := from.ignored(root)
	if err != nil {
		return nil, contextError(err)
	}
	name := contextPrefix + strings.ToLower(rand.Text())
	remove := func() {
		_, _ = client.RemoveImage(context.WithoutCancel(ctx), &caissonv1.RemoveImageRequest{Name: name}) // the build has removed it
	}
	files := packedContext(a, root, ignored)
	defer files.Close() // ends the packing
	if _, err = client.ImportImage(ctx, name, files); err != nil {
		remove()
		return nil, err
	}
	req.Context = name
	return remove, nil
}

// packedContext is root as a tar that is made while it is read.
func packedContext(a *cli.App, root *os.Root, ignored *patternmatcher.PatternMatcher) io.ReadCloser {
	p := packer{root: root, warn: a.Progress, adapt: func(h *tar.Header) {
		h.Name = contextFolder + "/" + strings.TrimPrefix(h.Name, "./")
		if h.Typeflag == tar.TypeLink {
			h.Linkname = path.Join(contextFolder, h.Linkname)
		}
		h.Uid, h.Gid = 0, 0 // COPY says whose the files are
	}}
	p.leaves = func(name string, entry fs.DirEntry) (bool, error) {
		if name == "." {
			return false, nil
		}
		left, err := ignored.MatchesOrParentMatches(name)
		if left && entry.IsDir() && !ignored.Exclusions() {
			return true, fs.SkipDir
		}
		return left, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(p.pack(w)) }()
	return r
}

// ignored reads FILE.dockerignore beside the Dockerfile, or else .dockerignore of the context.
func (r recipe) ignored(root *os.Root) (*patternmatcher.PatternMatcher, error) {
	if r.file != "-" {
		f, err := os.Open(r.file + ".dockerignore")
		if !errors.Is(err, fs.ErrNotExist) {
			return patternsOf(f, err)
		}
	}
	f, err := root.Open(".dockerignore")
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	return patternsOf(f, err)
}

func patternsOf(f *os.File, err error) (*patternmatcher.PatternMatcher, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	patterns, err := ignorefile.ReadAll(io.LimitReader(f, maxDockerfile))
	if err != nil {
		return nil, err
	}
	return patternmatcher.New(patterns)
}
