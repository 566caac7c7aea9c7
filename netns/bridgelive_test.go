package netns

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// memoryHost is a host in memory. The call number failAt fails.
type memoryHost struct {
	calls, failAt int
	tether, rules bool
	links         map[string]bool
	order         []string
}

func (h *memoryHost) call(name string, do func()) error {
	h.calls++
	if h.calls == h.failAt {
		return errInjected
	}
	if do != nil {
		do()
		h.order = append(h.order, name)
	}
	return nil
}

func (h *memoryHost) Uplink() (int, error) { return 1500, h.call("uplink", nil) }
func (h *memoryHost) Used() (bool, error)  { return h.tether, h.call("", nil) }
func (h *memoryHost) Mend([]wire, *wire) (mended []Difference, err error) {
	for name, there := range map[string]*bool{"tether": &h.tether, "rules": &h.rules} {
		if !*there {
			mended = append(mended, Difference{Name: name})
			err = errors.Join(err, h.call("mend", func() { *there = true }))
		}
	}
	return mended, errors.Join(err, h.call("", nil))
}
func (h *memoryHost) Clean() error {
	return h.call("clean", func() { h.rules, h.tether = false, false })
}
func (h *memoryHost) Plug(_ string, w wire, _ int) error {
	return h.call("plug", func() { h.links[w.outer] = true })
}
func (h *memoryHost) Unplug(outer string) error {
	return h.call("unplug", func() { delete(h.links, outer) })
}
func (h *memoryHost) Inspect(wire) ([]Difference, error)   { return nil, h.call("", nil) }
func (h *memoryHost) Rewire([]wire) ([]Difference, error)  { return nil, h.call("", nil) }
func (h *memoryHost) Bytes(string) (uint64, uint64, error) { return 0, 0, h.call("", nil) }
func (h *memoryHost) Links() ([]string, error) {
	return slices.Sorted(maps.Keys(h.links)), h.call("", nil)
}

func (h *memoryHost) empty() bool { return !h.tether && !h.rules && len(h.links) == 0 }

func memoryBridge(t *testing.T, h *memoryHost) *Bridge {
	t.Helper()
	if h.links == nil {
		h.links = map[string]bool{}
	}
	b, err := newBridge(bridgeConfig(), h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// attachForTest is what Attach does without the namespace of a sandbox.
func (b *Bridge) attachForTest(number uint32) (mended []Difference, err error) {
	w, err := b.cfg.wire(number)
	if err == nil {
		mended, err = b.plug("", w, 1500)
	}
	return mended, err
}

func TestBridgeOrder(t *testing.T) {
	h := &memoryHost{}
	b := memoryBridge(t, h)
	if b.InUse() {
		t.Error("in use before anything is made")
	}
	for n := range uint32(2) {
		if mended, err := b.attachForTest(n); err != nil || len(mended) > 0 {
			t.Fatal(mended, err)
		}
	}
	if err := errors.Join(b.Detach(0), b.Detach(0), b.Detach(1)); err != nil {
		t.Fatal(err)
	}
	want := []string{"mend", "mend", "plug", "plug", "unplug", "unplug", "unplug", "clean"}
	if !slices.Equal(h.order, want) || !h.empty() || b.InUse() {
		t.Errorf("%q, want %q; in use: %t", h.order, want, b.InUse())
	}
	before := h.calls
	if err := errors.Join(b.Detach(7), b.Settle()); err != nil || h.calls != before {
		t.Errorf("without anything made: %v, %d calls", err, h.calls-before)
	}
}

// Whatever call fails, no link is there without the rules, and a removal
// afterwards leaves nothing.
func TestBridgeFailures(t *testing.T) {
	for failAt := 2; ; failAt++ { // the first call is that of newBridge
		h := &memoryHost{failAt: failAt}
		b := memoryBridge(t, h)
		_, err0 := b.attachForTest(0)
		_, err1 := b.attachForTest(1)
		err := errors.Join(err0, err1)
		if len(h.links) > 0 && (!h.rules || !h.tether) {
			t.Errorf("call %d: links %v without rules", failAt, h.links)
		}
		err = errors.Join(err, b.Detach(0), b.Detach(1))
		h.failAt = 0
		if again := errors.Join(b.Detach(0), b.Detach(1)); again != nil || !h.empty() || b.InUse() {
			t.Errorf("call %d: left %+v, %v", failAt, h, again)
		}
		if err == nil {
			if failAt < 8 {
				t.Errorf("only %d calls", failAt)
			}
			return
		}
	}
}

// The next link mends what somebody changed, and so does a later daemon.
func TestBridgeMend(t *testing.T) {
	h := &memoryHost{}
	b := memoryBridge(t, h)
	if _, err := b.attachForTest(0); err != nil {
		t.Fatal(err)
	}
	h.rules, h.tether = false, false
	if mended, err := b.attachForTest(1); err != nil || len(mended) != 2 || !h.rules || !h.tether {
		t.Errorf("flushed: %v %v", mended, err)
	}
	h.rules = false
	if mended, err := memoryBridge(t, h).Adopt(0); err != nil || len(mended) != 1 || !h.rules {
		t.Errorf("flushed without a daemon: %v %v", mended, err)
	}
}

// A later daemon finds what an earlier one left, keeps what it adopts and removes
// the rest.
func TestBridgeSettle(t *testing.T) {
	c := bridgeConfig()
	for _, adopted := range []bool{true, false} {
		t.Run(fmt.Sprintf("adopted %t", adopted), func(t *testing.T) {
			h := &memoryHost{tether: true, rules: true, links: map[string]bool{c.outer(3): true, c.outer(4): true}}
			b := memoryBridge(t, h)
			if adopted {
				if _, err := b.Adopt(3); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Settle(); err != nil {
				t.Fatal(err)
			}
			if adopted != h.links[c.outer(3)] || h.links[c.outer(4)] || h.rules != adopted || b.InUse() != adopted {
				t.Errorf("%+v", h)
			}
		})
	}
	t.Run("not offered any more", func(t *testing.T) {
		h := &memoryHost{tether: true, rules: true, links: map[string]bool{c.outer(3): true}}
		b, err := newBridge(BridgeConfig{Instance: c.Instance}, h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Adopt(3); err == nil {
			t.Error("adopted")
		}
		if err := b.Detach(3); err != nil || !h.empty() {
			t.Errorf("%v, %+v", err, h)
		}
	})
}
