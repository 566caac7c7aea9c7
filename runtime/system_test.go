package runtime

import (
	"context"
	"errors"
	"testing"
)

func TestSystem(t *testing.T) {
	f := newFixture(t)
	f.opts.Versions = func(context.Context) (Versions, error) { return Versions{Runc: "1"}, nil }
	f.opts.Doctor = func(context.Context) ([]Check, error) { return []Check{{Name: "a"}}, errInjected }
	f.opts.Capabilities = func(context.Context) ([]Capability, error) { return []Capability{{Field: "tty"}}, nil }
	if v, err := f.Versions(callerContext(t)); err != nil || v.Runc != "1" {
		t.Errorf("%+v, %v", v, err)
	}
	if c, err := f.Doctor(callerContext(t)); !errors.Is(err, errInjected) || len(c) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := f.Capabilities(callerContext(t)); err != nil || len(c) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, idle := f.IdleSince(); !idle {
		t.Error("not idle after its calls")
	}
}
