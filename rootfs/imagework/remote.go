package imagework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// Repository is what a pull may use of the host.
type Repository interface {
	// Request is what the process is told.
	Request() Registry
	// Dial connects to SCHEME://HOST[:PORT], if an image of the registry may come from there.
	Dial(ctx context.Context, server string) (*os.File, error)
	// Authorities are the certificates that the host trusts, as PEM. The caller closes them.
	Authorities() (*os.File, error)
	// Layers says which layers will be fetched.
	Layers(layers []ocispec.Descriptor) error
	// Open opens what is there of a layer. The caller closes it.
	Open(d ocispec.Descriptor) (*os.File, error)
	// Drop removes a layer, which is stored.
	Drop(d ocispec.Descriptor) error
}

// Remote is the image of this host's platform in a registry, before its layers are fetched.
// The caller closes it.
type Remote struct {
	image.Remote
	Head image.Head

	p    *imageproc.Process
	repo Repository

	mu     sync.Mutex
	wanted []ocispec.Descriptor // Layers, once they may be fetched; those that are stored have no digest
}

// Find has the image of a name found in its registry.
func Find(ctx context.Context, program imageproc.Program, repo Repository, name string, l image.Limits) (*Remote, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	r := &Remote{repo: repo}
	request := repo.Request()
	var err error
	r.p, err = program.Start(ctx, imageproc.Job{
		Kind: KindRemote, What: "pull " + name, Op: "images.pull", Request: Request{Limits: l, Registry: &request}, Disk: l.Bytes, Give: r.give,
	})
	if err != nil {
		return nil, err
	}
	var f Found
	if err = r.p.Expect(MessageFound, maxFound, &f); err == nil {
		r.Head, r.Remote = f.Head, f.Remote
		err = r.check(request.Target, l)
	}
	if err != nil {
		r.p.Close()
		return nil, err
	}
	return r, nil
}

// give gives the process a connection or a layer.
func (r *Remote) give(ctx context.Context, request json.RawMessage) (*os.File, error) {
	var a Ask
	if err := json.Unmarshal(request, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Server != "":
		return r.repo.Dial(ctx, a.Server)
	case a.Authorities:
		return r.repo.Authorities()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Layer < 0 || a.Layer >= len(r.wanted) || r.wanted[a.Layer].Digest == "" {
		return nil, fmt.Errorf("the layer %d is not to be fetched", a.Layer)
	}
	return r.repo.Open(r.wanted[a.Layer])
}

// check refuses what names no image.
func (r *Remote) check(target ocispec.Descriptor, l image.Limits) error {
	if target.Digest != "" && r.Target.Digest != target.Digest || r.Head.Kind != image.KindRegistry || r.Head.Digest != r.Source.Digest || r.Head.Layers != len(r.Layers) || len(r.Layers) > l.Layers {
		return r.p.Broken(errors.New("what it found is no image"))
	}
	var sum int64
	for _, d := range append([]ocispec.Descriptor{r.Target, r.Source}, r.Layers...) {
		if err := checkDescriptor(d); err != nil {
			return r.p.Broken(err)
		}
	}
	for _, d := range r.Layers {
		if sum += d.Size; sum > l.Bytes {
			return sbxerr.New(sbxerr.ImageTooBig, "images.pull", "the packed layers have more than %d bytes", l.Bytes)
		}
	}
	return nil
}

func checkDescriptor(d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil || d.Size < 0 || len(d.MediaType) > 256 {
		return fmt.Errorf("a descriptor of %d bytes and the type %.40q: %w", d.Size, d.MediaType, err)
	}
	return nil
}

// Layers are how the layers of a Remote come.
type Layers struct {
	// Ready is called with each layer that is there, and waits until the work may begin.
	// What it returns is called when the layer is stored.
	Ready func(context.Context) (done func(), err error)
	// Stored are the lowest layers, where they are stored already.
	Stored []digest.Digest
	// Open opens one of them. The caller closes it.
	Open func(context.Context, digest.Digest) (io.ReadCloser, error)
}

// Feed has the layers fetched that are not stored.
func (r *Remote) Feed(_ context.Context, l Layers) (image.Feed, error) {
	r.mu.Lock()
	r.wanted = slices.Clone(r.Layers)
	clear(r.wanted[:len(l.Stored)])
	r.mu.Unlock()
	if err := r.repo.Layers(r.Layers[len(l.Stored):]); err != nil {
		return nil, err
	}
	return &remoteFeed{Remote: r, layers: l}, r.p.Failed(r.p.Send(MessageGo, Go{l.Stored}))
}

// Close ends the work.
func (r *Remote) Close() { r.p.Close() }

type remoteFeed struct {
	*Remote
	layers Layers
	next   int
	opened io.ReadCloser // a stored layer; nil: the process has fetched it
	done   func()
}

// Next implements image.Feed.
func (f *remoteFeed) Next(ctx context.Context) error {
	err := f.p.Expect(MessageLayer, imageproc.MaxMessage, nil)
	if err == nil && f.next < len(f.layers.Stored) {
		f.opened, err = f.layers.Open(ctx, f.layers.Stored[f.next])
	}
	if err != nil {
		return err
	}
	if f.done, err = f.layers.Ready(ctx); err != nil && f.opened != nil {
		f.opened.Close() // it was only read
	}
	return err
}

// Layer implements image.Feed.
func (f *remoteFeed) Layer(_ context.Context, w io.Writer) error {
	defer f.done()
	from := f.opened
	f.opened = nil
	if from != nil {
		defer from.Close() // it was only read
	}
	if err := f.p.Failed(f.p.Send(MessageGo, nil)); err != nil {
		return err
	}
	f.next++
	if from == nil {
		if err := f.p.CopyStream(w); err != nil {
			return err
		}
		return f.drop(f.next - 1)
	}
	return f.p.Pass(func(to io.Writer) error {
		_, err := io.Copy(to, from)
		return err
	}, w)
}

// drop takes a layer away, unless a later one is the same.
func (f *remoteFeed) drop(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.wanted[n]
	f.wanted[n].Digest = ""
	if slices.ContainsFunc(f.wanted, func(later ocispec.Descriptor) bool { return later.Digest == d.Digest }) {
		return nil
	}
	return f.repo.Drop(d)
}

// Report implements image.Feed.
func (f *remoteFeed) Report(context.Context) (image.Report, error) {
	r, err := report(f.p)
	return r.Report, err
}
