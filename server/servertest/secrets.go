package servertest

import (
	"context"
	"slices"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime/secrets"
)

// secretFake implements server.Secrets.
type secretFake struct{ f *Fake }

func (s secretFake) List(context.Context) ([]secrets.Secret, error) {
	return slices.Clone(s.f.Secrets), nil
}

func (s secretFake) Set(_ context.Context, name, source string, refresh time.Duration) (secrets.Secret, error) {
	if i := s.index(name); i >= 0 && !s.f.Secrets[i].Kept {
		return secrets.Secret{}, sbxerr.New(sbxerr.Exists, "fake.set", "the configuration has the secret %q", name)
	}
	return secrets.Secret{Name: name, Source: source, Kept: true, Refresh: refresh}, nil
}

func (s secretFake) Remove(_ context.Context, name string) error {
	i := s.index(name)
	if i < 0 {
		return sbxerr.New(sbxerr.SecretNotFound, "fake.remove", "no secret %q", name)
	}
	if used := s.f.Secrets[i].Routes; len(used) > 0 {
		return sbxerr.New(sbxerr.SecretInUse, "fake.remove", "the secret %q is used by %s", name, used[0])
	}
	return nil
}

func (s secretFake) index(name string) int {
	return slices.IndexFunc(s.f.Secrets, func(v secrets.Secret) bool { return v.Name == name })
}
