package imageservice

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/caisson-run/caisson/rootfs/image"
	_ "github.com/caisson-run/caisson/rootfs/imagejobs" // this program is caisson-images, too
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/runtime/images"
	"github.com/caisson-run/caisson/runtime/images/imagestest"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/registry"
)

// soon bounds what must happen, and is never waited for in a test that passes.
const soon = 20 * time.Second

var errInjected = errors.New("injected")

// fleet has no sandboxes but those that a test names. It makes none.
type fleet struct {
	Fleet
	peers        peer.Policy
	settings     Settings
	users        []string
	keys, chains []string
}

func (f *fleet) Busy() func() { return func() {} }

func (f *fleet) Grant(ctx context.Context) (peer.Grant, error) {
	c, err := peer.Require(ctx)
	if err != nil {
		return peer.Grant{}, err
	}
	return f.peers.Grant(c)
}

func (f *fleet) Settings() Settings { return f.settings }

func (f *fleet) Configured() []string { return nil }

func (f *fleet) UsersOf(peer.Grant, images.Stored) ([]string, []<-chan struct{}) {
	return f.users, nil
}

func (f *fleet) Needed() (keys, chains []string) { return f.keys, f.chains }

// fixture is a Service of a store that has the image base.
type fixture struct {
	*Service
	fleet *fleet
	store *imagestest.Store
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{
		fleet: &fleet{settings: Settings{Limits: image.DefaultLimits(), Registry: &registry.Client{}}},
		store: &imagestest.Store{Images: []images.Stored{{Image: images.Image{Name: "base", Digest: "sha256:1"}, ChainID: "chain-base"}}},
	}
	f.Service = NewService(f.store, f.fleet, Options{Root: t.TempDir(), Spool: t.TempDir(), Uses: t.TempDir(), View: t.TempDir(), Program: imageproc.Program{Path: "/proc/self/exe"}, Log: slog.New(slog.DiscardHandler)})
	return f
}

// peers lets the users 1000 and 1001 import.
func peers(t testing.TB, quota peer.Usage) peer.Policy {
	t.Helper()
	p, err := peer.NewPolicy([]peer.Rule{{
		UIDs: []uint32{1000, 1001}, Limits: peer.DefaultLimits(), TTL: peer.DefaultTTL, Quota: quota, Images: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// as is the context of a call of a user.
func as(t testing.TB, uid uint32) context.Context {
	return peer.NewContext(t.Context(), peer.User(uid, uid, nil, 1))
}

// within waits for c, which must be closed or filled soon.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatalf("%s does not come", what)
		panic("unreachable")
	}
}
