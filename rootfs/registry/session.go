package registry

import (
	"context"
	"io"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/log"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/rootfs/imagework"
)

// session fetches one image.
type session struct {
	imagework.Registry

	asker    *imageproc.Asker
	target   ocispec.Descriptor // that the name leads to
	fetcher  remotes.Fetcher
	resolver remotes.Resolver
}

// open finds what the name leads to.
func open(ctx context.Context, r imagework.Registry, asker *imageproc.Asker) (*session, error) {
	// containerd's packages log each request that fails. Its error is returned, too.
	if err := log.SetLevel(log.PanicLevel.String()); err != nil {
		return nil, sbxerr.Wrap(sbxerr.Internal, "registry.new", err)
	}
	s := &session{Registry: r, asker: asker}
	hosts, err := s.hosts()
	if err != nil {
		return nil, err
	}
	s.resolver = docker.NewResolver(docker.ResolverOptions{Hosts: func(string) ([]docker.RegistryHost, error) { return hosts, nil }})
	name, found, err := s.resolver.Resolve(ctx, r.Reference)
	if err != nil {
		return nil, s.explain(err)
	}
	s.target = ocispec.Descriptor{MediaType: found.MediaType, Digest: found.Digest, Size: found.Size}
	s.fetcher, err = s.resolver.Fetcher(ctx, name)
	return s, s.explain(err)
}

// document returns the content of a manifest, an index or a configuration.
func (s *session) document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	r, err := s.fetcher.Fetch(ctx, d)
	if err != nil {
		return nil, s.explain(err)
	}
	defer r.Close() // it was only read
	data, err := io.ReadAll(io.LimitReader(r, d.Size+1))
	if err != nil {
		return nil, s.explain(err)
	}
	if int64(len(data)) != d.Size {
		return nil, sbxerr.New(sbxerr.ImageFormat, "registry.document", "%s has %d bytes, stated are %d", d.Digest, len(data), d.Size)
	}
	return data, nil
}
