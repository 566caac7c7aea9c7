package imagework

import (
	"context"
	"io"
	"os"

	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// Archive returns how the image in an archive is found, for a name; empty: the archive names it.
// It is unpacked in dir, where it is packed as a whole.
func Archive(program imageproc.Program, name, dir string) image.Opener {
	what := "read the archive"
	if name != "" {
		what += " of " + name
	}
	return func(ctx context.Context, packed *os.File, l image.Limits) (image.Head, image.Feed, error) {
		return openArchive(ctx, program, imageproc.Job{What: what, Op: "images.import", Request: Request{Limits: l}}, packed, dir)
	}
}

// Changes is Archive of layers that lie over an image.
func Changes(program imageproc.Program, dir string) func(context.Context, *os.File, image.Limits) (image.Head, image.Over, error) {
	return func(ctx context.Context, packed *os.File, l image.Limits) (image.Head, image.Over, error) {
		head, f, err := openArchive(ctx, program, imageproc.Job{What: "read the archive of a snapshot", Op: "snapshots.import", Request: Request{Limits: l, Over: true}}, packed, dir)
		return head, &overFeed{feed: f}, err
	}
}

func openArchive(ctx context.Context, program imageproc.Program, job imageproc.Job, packed *os.File, dir string) (head image.Head, _ *feed, err error) {
	spool, err := image.Spool(dir)
	if err != nil {
		return head, nil, err
	}
	defer spool.Close() // the process has it
	job.Kind, job.Files, job.Disk = KindArchive, []*os.File{packed, spool}, job.Request.(Request).Limits.Bytes
	p, err := program.Start(ctx, job)
	if err != nil {
		return head, nil, err
	}
	if err := p.Expect(MessageHead, maxHead, &head); err != nil {
		return head, nil, err
	}
	return head, &feed{p}, nil
}

// overFeed are layers over an image.
type overFeed struct {
	*feed
	begun bool
}

// See implements image.Over.
func (f *overFeed) See(ctx context.Context, r io.Reader) error { return layers{f.p}.See(ctx, r) }

// Next implements image.Feed.
func (f *overFeed) Next(ctx context.Context) error {
	if !f.begun {
		f.begun = true
		if err := f.p.Failed(f.p.Send(MessageGo, nil)); err != nil {
			return err
		}
	}
	return f.feed.Next(ctx)
}

// feed are the layers of an archive.
type feed struct{ p *imageproc.Process }

// Next implements image.Feed.
func (f *feed) Next(context.Context) error {
	return f.p.Expect(MessageLayer, imageproc.MaxMessage, nil)
}

// Layer implements image.Feed.
func (f *feed) Layer(_ context.Context, w io.Writer) error { return f.p.CopyStream(w) }

// Report implements image.Feed.
func (f *feed) Report(context.Context) (image.Report, error) {
	r, err := report(f.p)
	return r.Report, err
}

// Close implements image.Feed.
func (f *feed) Close() { f.p.Close() }

func report(p *imageproc.Process) (r Report, err error) {
	err = p.Expect(MessageReport, maxReport, &r)
	return r, err
}
