package imagework

import (
	"context"
	"io"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/image"
	"github.com/caisson-run/caisson/rootfs/imageproc"
)

// HostRequest names the software to collect, as package fromhost reads it.
type HostRequest struct {
	Root     string       `json:"root"`     // the host's root directory
	Packages []string     `json:"packages"` // installed packages, each NAME or NAME:ARCH
	Paths    []string     `json:"paths"`    // absolute paths of programs or directories
	Limits   image.Limits `json:"limits"`
}

// Software is software of the host that was found. The caller closes it.
type Software struct {
	Begun

	program imageproc.Program
	request HostRequest
	p       *imageproc.Process // nil after its end
}

// Collect reads the host and finds what r names and all that this needs. It changes nothing.
// Everything that is wrong with the request is reported at once. Errors are SBX-101 and SBX-102
// for a request that can never succeed, SBX-204 beyond a limit, SBX-002 when ctx ends, and
// SBX-209 else.
func Collect(ctx context.Context, program imageproc.Program, r HostRequest) (*Software, error) {
	s := &Software{program: program, request: r}
	return s, s.start(ctx)
}

func (s *Software) start(ctx context.Context) (err error) {
	s.p, err = s.program.Start(ctx, imageproc.Job{
		Kind: KindHost, What: "collect software of the host", Op: "fromhost.collect", Request: s.request, Host: true, Code: sbxerr.FromHost,
	})
	if err != nil {
		return err
	}
	if err := s.p.Expect(MessageBegun, maxReport, &s.Begun); err != nil {
		s.p = nil
		return err
	}
	return nil
}

// Write writes the collection to w, and returns what the caller should know, a line each. A
// second call collects again.
func (s *Software) Write(ctx context.Context, w io.Writer) (image.Report, []string, error) {
	if s.p == nil {
		if err := s.start(ctx); err != nil {
			return image.Report{}, nil, err
		}
	}
	defer s.Close()
	if err := s.p.CopyStream(w); err != nil {
		return image.Report{}, nil, err
	}
	r, err := report(s.p)
	return r.Report, r.Warnings, err
}

// Close ends the collector, if it still runs.
func (s *Software) Close() {
	if s.p != nil {
		s.p.Close()
		s.p = nil
	}
}
