package imageservice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/peer"
)

func TestImportRefuses(t *testing.T) {
	f := newFixture(t)
	silent := func(string) {}
	if _, err := f.Import(as(t, 0), "x", strings.NewReader("no archive"), silent); sbxerr.Of(err) != sbxerr.ImageFormat {
		t.Errorf("import: %v", err)
	}
	if _, err := f.FromHost(as(t, 0), images.FromHostRequest{Name: "../x"}, silent); err == nil || sbxerr.Of(err) == sbxerr.Unknown {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := f.FromHost(as(t, 0), images.FromHostRequest{Name: "x", Paths: []string{"/no/such/file"}}, silent); sbxerr.Of(err) != sbxerr.FromHost {
		t.Errorf("a path that is not there: %v", err)
	}
	if len(f.store.Images) != 1 {
		t.Errorf("images %+v", f.store.Images)
	}
}

// A user sends one archive at a time, and that of one user holds up no other's.
func TestImportsTakeTurns(t *testing.T) {
	f := newFixture(t)
	f.fleet.peers = peers(t, peer.DefaultQuota())
	ann, bob := as(t, 1000), as(t, 1001)
	hold := make(chan struct{})
	first := make(chan error, 1)
	sending := make(chan struct{})
	go func() {
		_, err := f.Import(ann, "x", readerFunc(func([]byte) (int, error) {
			close(sending)
			<-hold
			return 0, errInjected
		}), func(string) {})
		first <- err
	}()
	within(t, "the first import", sending)
	broken := iotest.ErrReader(errInjected)
	if _, err := f.Import(bob, "x", broken, func(string) {}); !errors.Is(err, errInjected) {
		t.Errorf("another user: %v", err)
	}
	ctx, cancel := context.WithTimeout(ann, 50*time.Millisecond)
	defer cancel()
	_, err := f.Import(ctx, "x", broken, func(string) {})
	errtest.Want(t, err, sbxerr.Canceled)
	close(hold)
	if err := within(t, "its end", first); !errors.Is(err, errInjected) {
		t.Error(err)
	}
	if _, err := f.Import(ann, "x", broken, func(string) {}); !errors.Is(err, errInjected) {
		t.Errorf("after it: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestImportsAtOnce(t *testing.T) {
	i := newImports()
	var done []func()
	for range importsAtOnce {
		d, err := i.work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := i.work(ctx); err == nil {
		t.Error("one more is worked on")
	}
	done[0]()
	if _, err := i.work(t.Context()); err != nil {
		t.Error(err)
	}
}
