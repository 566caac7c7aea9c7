package servertest

import (
	"context"
	"slices"

	"github.com/caisson-run/caisson/runtime/secrets"
)

// secretFake implements server.Secrets.
type secretFake struct{ f *Fake }

func (s secretFake) List(context.Context) ([]secrets.Secret, error) {
	return slices.Clone(s.f.Secrets), nil
}
