package runtime

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sbxerr"
)

// onDisk is the record of s that a later daemon would find.
func (f *fixture) onDisk(t *testing.T, s *sandbox) record {
	t.Helper()
	r, err := readRecord(f.paths.record(s.id), f.boot)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantNothingTaken checks that whoever names s, which is not live yet, is refused, and
// that no later daemon goes on with it.
func (f *fixture) wantNothingTaken(t *testing.T, s *sandbox) {
	t.Helper()
	if r, err := readRecord(f.paths.record(s.id), f.boot); err == nil && r.Ready {
		t.Errorf("a later daemon would go on with %+v", r)
	}
	ctx := callerContext(t)
	for what, call := range map[string]func() error{
		"exec":  func() error { _, err := f.Exec(ctx, "s", script("out:other", "exit:9"), IO{}); return err },
		"start": func() error { _, err := f.StartExec(ctx, "s", script("exit:9")); return err },
		"files": func() error { _, err := f.Files(ctx, "s"); return err },
	} {
		if err := call(); sbxerr.Of(err) != sbxerr.State || !strings.Contains(err.Error(), "sandbox s is creating") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What is claimed is nobody's to use before it is what was asked for.
func TestClaimedSandboxTakesNothing(t *testing.T) {
	f := newFixture(t)
	ctx := callerContext(t)
	f.pooled(t, 1)
	idle := time.Hour
	p, err := f.planFor(ctx, CreateRequest{Name: "s", Env: []string{"FOO=bar"}, IdleTimeout: &idle})
	if err != nil {
		t.Fatal(err)
	}
	s, was, err := f.claim(f.pools[0], p)
	if err != nil {
		t.Fatal(err)
	}
	f.wantNothingTaken(t, s)
	if err := f.assign(ctx, s, was, p, nil); err != nil {
		t.Fatal(err)
	}
	if r := f.onDisk(t, s); !r.Ready || r.Pooled || r.Name != "s" || r.IdleSince == 0 || s.info().State != StateRunning {
		t.Errorf("assigned, it is %+v", r)
	}
	var out bytes.Buffer
	if _, err := f.Exec(ctx, "s", script("env", "exit:0"), IO{Stdout: &out}); err != nil || !slices.Contains(strings.Split(out.String(), "\n"), "FOO=bar") {
		t.Errorf("inside: %q, %v", &out, err)
	}
}

// A claimed sandbox that ends before it is what was asked for is nobody's: nothing of it
// is kept, whatever it ends for.
func TestClaimedSandboxThatEnds(t *testing.T) {
	f := newFixture(t)
	f.pooled(t, 1)
	p, err := f.planFor(callerContext(t), CreateRequest{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	s, was, err := f.claim(f.pools[0], p)
	if err != nil {
		t.Fatal(err)
	}
	s.end(ErrStopped)
	within(t, "its end", s.made)
	wantError(t, f.assign(callerContext(t), s, was, p, nil), sbxerr.Canceled, "the sandbox was stopped")
	within(t, "its removal", s.gone)
}

// What is changed in a sandbox as soon as that is possible is in its record for good.
func TestChangedAtOnce(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(callerContext(t), soon)
	defer cancel()
	for range 20 {
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			for ctx.Err() == nil {
				if _, err := f.Update(ctx, "s", UpdateRequest{Labels: map[string]string{"a": "b"}}); err == nil {
					return
				}
			}
		}()
		f.session(t, CreateRequest{Name: "s"})
		within(t, "the change", changed)
		if r := f.onDisk(t, f.mustFind(t, "s")); r.Labels["a"] != "b" {
			t.Errorf("kept labels %v", r.Labels)
		}
		if _, err := f.Remove(ctx, "s", true); err != nil {
			t.Fatal(err)
		}
	}
}
