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
	return func(ctx context.Context, packed *os.File, l image.Limits) (head image.Head, _ image.Feed, err error) {
		spool, err := image.Spool(dir)
		if err != nil {
			return head, nil, err
		}
		defer spool.Close() // the process has it
		p, err := program.Start(ctx, imageproc.Job{
			Kind: KindArchive, What: what, Op: "images.import", Request: Request{Limits: l}, Files: []*os.File{packed, spool}, Disk: l.Bytes,
		})
		if err != nil {
			return head, nil, err
		}
		if err := p.Expect(MessageHead, maxHead, &head); err != nil {
			return head, nil, err
		}
		return head, &feed{p}, nil
	}
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
