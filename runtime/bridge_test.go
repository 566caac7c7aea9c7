package runtime

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/plan"
)

// memoryBridge is a Bridge in memory.
type memoryBridge struct {
	links map[uint32]string
	found []netns.Difference
	err   error
}

func (b *memoryBridge) Attach(path string, number uint32) ([]netns.Difference, error) {
	b.links[number] = path
	return b.found, b.err
}
func (b *memoryBridge) Adopt(number uint32) ([]netns.Difference, error) {
	b.links[number] = "adopted"
	return b.found, b.err
}

func (b *memoryBridge) Detach(number uint32) error { delete(b.links, number); return b.err }
func (b *memoryBridge) Check(string, uint32) ([]netns.Difference, error) {
	return b.found, b.err
}
func (b *memoryBridge) Bytes(uint32) (uint64, uint64, error) { return 3000, 4000, b.err }
func (b *memoryBridge) InUse() bool                          { return len(b.links) > 0 }
func (b *memoryBridge) Settle() error                        { return b.err }

func bridged(t *testing.T) (*Manager, *memoryBridge, *bytes.Buffer) {
	t.Helper()
	blocks, err := idblock.NewAllocator(t.TempDir(), idblock.Range{Base: 1 << 20, Blocks: 4})
	if err != nil {
		t.Fatal(err)
	}
	b, log := &memoryBridge{links: map[uint32]string{}}, new(bytes.Buffer)
	m := newTestManager(func(o *Options) { o.State, o.Bridge = "/state", b })
	m.blocks, m.log = blocks, slog.New(slog.NewTextHandler(log, nil))
	return m, b, log
}

// The number of a link is that of the block of ids, so it is found again by the ID
// alone.
func TestBridgeStage(t *testing.T) {
	m, b, _ := bridged(t)
	for _, id := range []string{"a", "b", "c"} {
		block, err := m.blocks.Claim(id)
		if err != nil {
			t.Fatal(err)
		}
		s := &sandbox{id: id, block: block, record: record{ID: id, Network: netns.ModeBridge}}
		if id == "a" {
			s.record.Network = netns.ModeOpen
		}
		if err := errors.Join(m.createBridge(t.Context(), s), s.network.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.links) != 2 || b.links[1] != "/state/sandboxes/b/netns" || b.links[2] != "/state/sandboxes/c/netns" {
		t.Errorf("%v", b.links)
	}
	for _, id := range []string{"b", "b", "nobody", "a"} {
		if err := m.removeBridge(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, left := b.links[2]; !left || len(b.links) != 1 {
		t.Errorf("%v are left", b.links)
	}
}

func TestNoBridge(t *testing.T) {
	m, _, _ := bridged(t)
	m.opts.Bridge = nil
	s := &sandbox{id: "x", record: record{ID: "x", Network: netns.ModeBridge}}
	for _, err := range []error{m.createBridge(t.Context(), s), m.relink(s)} {
		if sbxerr.Of(err) != sbxerr.NetworkMode {
			t.Errorf("%v, want %s", err, sbxerr.NetworkMode)
		}
	}
	if err := errors.Join(m.removeBridge(t.Context(), "x"), m.settleBridge()); err != nil {
		t.Error(err)
	}
}

// A link on which nobody records what leaves is not gone on with, and so removed.
func TestNoLinkWithoutARecord(t *testing.T) {
	m, b, _ := bridged(t)
	s := &sandbox{id: "x", record: record{ID: "x", Network: netns.ModeBridge}}
	if err := m.adoptEgress(t.Context(), s); sbxerr.Of(err) != sbxerr.Gateway || len(b.links) > 0 {
		t.Errorf("%v, links %v", err, b.links)
	}
}

// A change by somebody is logged when it is mended.
func TestMendIsSaid(t *testing.T) {
	m, b, log := bridged(t)
	relink := func() string {
		t.Helper()
		log.Reset()
		if err := m.relink(&sandbox{id: "a"}); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	if said := relink(); said != "" {
		t.Errorf("without a change: %s", said)
	}
	b.found = []netns.Difference{{Name: "rule", Declared: "there", Live: "absent"}}
	if said := relink(); !strings.Contains(said, "somebody changed") || !strings.Contains(said, "rule is") {
		t.Errorf("after a change: %s", said)
	}
}

func TestResolversOf(t *testing.T) {
	o := plan.NetworkRules{Bridge: netns.BridgeConfig{Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.53"), netip.MustParseAddr("9.9.9.9")}}}
	for mode, want := range map[netns.Mode][]string{
		netns.ModeNone: nil, netns.ModeAllow: {"127.0.0.1"}, netns.ModeOpen: {"127.0.0.1"}, netns.ModeBridge: {"10.0.0.53", "9.9.9.9"},
	} {
		if got := o.ResolversOf(mode); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}
