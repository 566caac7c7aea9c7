package imagework

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// Repository gives the content of one repository of a registry.
type Repository interface {
	// Document returns the content of a manifest, an index or a configuration.
	Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error)
	// Signatures returns what is there of signatures of some digests, a Signature each. The caller
	// closes it.
	Signatures(ctx context.Context, of []digest.Digest) (io.ReadCloser, error)
	// Layers begins to fetch layers, in this order.
	Layers(ctx context.Context, layers []ocispec.Descriptor)
	// Layer waits for all of a layer and opens it. The caller closes it.
	Layer(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error)
}

// Remote is the image of this host's platform in a registry, before its layers are fetched.
// The caller closes it.
type Remote struct {
	image.Remote
	Head image.Head

	p    *imageproc.Process
	repo Repository
}

// maxDocuments bounds how many documents one image may be found by: a search looks at no more.
const maxDocuments = 4096

// Find has the image of a name found that target leads to. Documents are fetched as the process
// asks for them.
func Find(ctx context.Context, program imageproc.Program, repo Repository, name string, r Request) (*Remote, error) {
	if err := r.Limits.Validate(); err != nil {
		return nil, err
	}
	p, err := program.Start(ctx, imageproc.Job{
		Kind: KindRemote, What: "pull " + name, Op: "images.pull", Request: r,
	})
	if err != nil {
		return nil, err
	}
	found := &Remote{p: p, repo: repo}
	if err := found.find(ctx, r.Target, r.Limits); err != nil {
		p.Close()
		return nil, err
	}
	return found, nil
}

func (r *Remote) find(ctx context.Context, target ocispec.Descriptor, l image.Limits) error {
	for range maxDocuments {
		kind, body, err := r.p.Next(maxFound)
		if err != nil {
			return err
		}
		switch kind {
		case MessageFound:
			var f Found
			if err := r.p.Decode(body, &f); err != nil {
				return err
			}
			r.Head, r.Remote = f.Head, f.Remote
			return r.check(target, l)
		case MessageDocument:
			var d ocispec.Descriptor
			if err := r.p.Decode(body, &d); err != nil {
				return err
			}
			if err := r.document(ctx, d, l); err != nil {
				return err
			}
		case MessageSignatures:
			var of []digest.Digest
			if err := r.p.Decode(body, &of); err != nil {
				return err
			}
			if err := r.signatures(ctx, of); err != nil {
				return err
			}
		default:
			return r.p.Broken(fmt.Errorf("a message %.40q", kind))
		}
	}
	return r.p.Broken(fmt.Errorf("it asks for more than %d documents", maxDocuments))
}

func (r *Remote) document(ctx context.Context, d ocispec.Descriptor, l image.Limits) error {
	if err := checkDescriptor(d); err != nil || d.Size > l.DocumentBytes {
		return r.p.Broken(errors.Join(err, fmt.Errorf("a document of %d bytes", d.Size)))
	}
	data, err := r.repo.Document(ctx, d)
	if err != nil {
		return err
	}
	err = r.p.Send(MessageDocument, nil)
	if err == nil {
		err = r.p.SendStream(func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	return r.p.Failed(err)
}

// signatures passes signatures on.
func (r *Remote) signatures(ctx context.Context, of []digest.Digest) error {
	for _, d := range of {
		if err := d.Validate(); err != nil || len(of) > 2 {
			return r.p.Broken(fmt.Errorf("it asks for signatures of %d digests: %w", len(of), err))
		}
	}
	list, err := r.repo.Signatures(ctx, of)
	if err != nil {
		return err
	}
	defer list.Close() // it was only read
	err = r.p.Send(MessageSignatures, nil)
	if err == nil {
		err = r.p.SendStream(func(w io.Writer) error {
			_, err := io.Copy(w, list)
			return err
		})
	}
	return r.p.Failed(err)
}

// check refuses what names no image.
func (r *Remote) check(target ocispec.Descriptor, l image.Limits) error {
	if r.Target.Digest != target.Digest || r.Head.Kind != image.KindRegistry || r.Head.Digest != r.Source.Digest || r.Head.Layers != len(r.Layers) || len(r.Layers) > l.Layers {
		return r.p.Broken(errors.New("what it found is no image"))
	}
	var sum int64
	for _, d := range append([]ocispec.Descriptor{r.Source}, r.Layers...) {
		if err := checkDescriptor(d); err != nil {
			return r.p.Broken(err)
		}
		if sum += d.Size; sum > l.Bytes+l.DocumentBytes {
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

// Feed begins to fetch the layers that are not stored.
func (r *Remote) Feed(ctx context.Context, l Layers) (image.Feed, error) {
	r.repo.Layers(ctx, r.Layers[len(l.Stored):])
	return &remoteFeed{Remote: r, layers: l}, r.p.Failed(r.p.Send(MessageGo, Go{l.Stored}))
}

// Close ends the work.
func (r *Remote) Close() { r.p.Close() }

type remoteFeed struct {
	*Remote
	layers Layers
	next   int
	opened io.ReadCloser
	done   func()
}

// Next implements image.Feed.
func (f *remoteFeed) Next(ctx context.Context) error {
	err := f.p.Expect(MessageLayer, imageproc.MaxMessage, nil)
	if err != nil {
		return err
	}
	if f.next < len(f.layers.Stored) {
		f.opened, err = f.layers.Open(ctx, f.layers.Stored[f.next])
	} else {
		f.opened, err = f.fetched(ctx, f.Layers[f.next])
	}
	if err != nil {
		return err
	}
	f.next++
	if f.done, err = f.layers.Ready(ctx); err != nil {
		f.opened.Close() // it was only read
	}
	return err
}

// fetched waits for a layer, no longer than there is somebody to read it.
func (f *remoteFeed) fetched(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	waiting, stop := f.p.Waiting(ctx)
	defer stop()
	opened, err := f.repo.Layer(waiting, d)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = f.p.Failed(io.EOF)
	}
	return opened, err
}

// Layer implements image.Feed.
func (f *remoteFeed) Layer(_ context.Context, w io.Writer) error {
	defer f.done()
	defer f.opened.Close() // it was only read
	return f.p.Pass(func(to io.Writer) error {
		_, err := io.Copy(to, f.opened)
		return err
	}, w)
}

// Report implements image.Feed.
func (f *remoteFeed) Report(context.Context) (image.Report, error) {
	r, err := report(f.p)
	return r.Report, err
}
