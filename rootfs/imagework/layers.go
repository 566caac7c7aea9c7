package imagework

import (
	"context"
	"io"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// Filter returns how the filter for the layers of a build of name begins.
func Filter(program imageproc.Program, name string) func(context.Context, image.Limits) (image.Filter, error) {
	return func(ctx context.Context, l image.Limits) (image.Filter, error) {
		p, err := program.Start(ctx, imageproc.Job{
			Kind: KindFilter, What: "filter the layers of " + name, Op: "images.build", Request: Request{Limits: l},
		})
		if err != nil {
			return nil, err
		}
		return layers{p}, nil
	}
}

type layers struct{ *imageproc.Process }

// See implements image.Filter.
func (l layers) See(_ context.Context, r io.Reader) error {
	err := l.Send(MessageSee, nil)
	if err == nil {
		err = l.SendStream(func(w io.Writer) error {
			_, err := io.Copy(w, r)
			return err
		})
	}
	if err := l.Failed(err); err != nil {
		return err
	}
	return l.Expect(MessageSeen, imageproc.MaxMessage, nil)
}

// Add implements image.Filter.
func (l layers) Add(_ context.Context, write func(io.Writer) error, w io.Writer) (image.Report, error) {
	if err := l.Failed(l.Send(MessageAdd, nil)); err != nil {
		return image.Report{}, err
	}
	if err := l.Pass(write, w); err != nil {
		return image.Report{}, err
	}
	r, err := report(l.Process)
	return r.Report, err
}
