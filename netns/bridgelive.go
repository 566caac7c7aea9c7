package netns

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// hostSide is what a Bridge needs of the host's namespace; tests bring one in
// memory. What is absent is removed with success.
type hostSide interface {
	// Uplink refuses a host that could not forward, and returns how large packets
	// may be.
	Uplink() (mtu int, err error)
	// Used reports whether anything of ours may be there: its mark is made first and
	// removed last.
	Used() (bool, error)
	// Mend makes what is absent or changed of what the links in wires share, and the routes
	// to them, and returns how it differed. Of settings it mends those of adopted, and of links
	// without a route: those of 240 links would take 40 ms. A link that is gone or down stays so.
	Mend(wires []wire, adopted *wire) ([]Difference, error)
	Clean() error // removes all but links
	// Plug makes a link and the route to its sandbox, and connects it last.
	Plug(path string, w wire, mtu int) error
	Unplug(outer string) error
	Inspect(wire) ([]Difference, error) // how the host's end differs from what Plug made
	Links() ([]string, error)           // the names of the host's ends
	Bytes(outer string) (sent, received uint64, err error)
}

// Bridge gives sandboxes of the mode bridge their links. What they share on the
// host is there for as long as there is a link. All methods may be called at the
// same time.
type Bridge struct {
	cfg  BridgeConfig
	host hostSide

	mu    sync.Mutex      // also held while the host's side is changed
	inUse bool            // something of ours may be on the host
	wires map[string]wire // by the host's end
}

// NewBridge works in the namespace of the process. It changes nothing yet.
func NewBridge(c BridgeConfig) (*Bridge, error) {
	return newBridge(c, onHost(c))
}

func newBridge(c BridgeConfig, host hostSide) (*Bridge, error) {
	b := &Bridge{cfg: c, host: host, wires: map[string]wire{}}
	var err error
	b.inUse, err = host.Used()
	return b, wrapInner("netns.bridge", err)
}

// Attach connects the namespace at path, which holds only lo, as the sandbox that
// has number. Denials come first and the link last, inside as on the host. After a
// failure Detach removes what was made. The mode not being offered, and a host that
// does not forward, have code sbxerr.NetworkMode.
//
// Attach also mends what somebody changed on the host of all that links need, and
// returns the differences. Until then the change lets nothing through: see hostTables.
func (b *Bridge) Attach(path string, number uint32) (mended []Difference, err error) {
	const op = "netns.attach"
	w, err := b.cfg.wire(number)
	if err != nil {
		return nil, err
	}
	mtu, err := b.host.Uplink()
	if err != nil {
		return nil, wrapInner(op, err)
	}
	if err := deny(path, b.cfg, w); err != nil {
		return nil, wrapInner(op, err)
	}
	mended, err = b.plug(path, w, mtu)
	return mended, wrapInner(op, err)
}

func (b *Bridge) plug(path string, w wire, mtu int) (mended []Difference, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mended, err = b.mendLocked(nil); err != nil {
		return mended, err
	}
	if err := b.host.Plug(path, w, mtu); err != nil {
		return mended, err
	}
	b.wires[w.outer] = w
	return mended, nil
}

// Adopt goes on with the link of a sandbox of an earlier daemon. It mends and returns
// what Attach does, and the settings of this link. Whether the namespace is as it should be is for Check to say.
func (b *Bridge) Adopt(number uint32) (mended []Difference, err error) {
	const op = "netns.adopt"
	w, err := b.cfg.wire(number)
	if err != nil {
		return nil, wrapInner(op, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wires[w.outer] = w
	if mended, err = b.mendLocked(&w); err != nil {
		delete(b.wires, w.outer)
	}
	return mended, wrapInner(op, err)
}

// mendLocked also makes what the first link needs: that differs from nothing.
func (b *Bridge) mendLocked(adopted *wire) ([]Difference, error) {
	first := !b.inUse
	b.inUse = true
	mended, err := b.host.Mend(slices.Collect(maps.Values(b.wires)), adopted)
	if err != nil {
		return mended, errors.Join(err, b.settleLocked())
	}
	if first {
		return nil, nil
	}
	return mended, nil
}

// InUse reports whether something of ours may be on the host.
func (b *Bridge) InUse() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inUse
}

// Detach removes the link of the sandbox that has number, and with the last one
// all that is left on the host. Absent is success.
func (b *Bridge) Detach(number uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.inUse {
		return nil
	}
	outer := b.cfg.outer(number)
	err := b.host.Unplug(outer)
	if err == nil {
		delete(b.wires, outer)
		err = b.settleLocked()
	}
	return wrapInner("netns.detach", err)
}

// Settle removes the links that no sandbox has, once all of an earlier daemon have
// been adopted.
func (b *Bridge) Settle() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.inUse {
		return nil
	}
	links, err := b.host.Links()
	errs := []error{err}
	for _, outer := range links {
		if _, known := b.wires[outer]; !known {
			errs = append(errs, b.host.Unplug(outer))
		}
	}
	if err = errors.Join(errs...); err == nil {
		err = b.settleLocked()
	}
	return wrapInner("netns.settle", err)
}

// settleLocked removes what links share when there is none.
func (b *Bridge) settleLocked() error {
	links, err := b.host.Links()
	if err != nil || len(links) > 0 || len(b.wires) > 0 {
		return err
	}
	if err := b.host.Clean(); err != nil {
		return err
	}
	b.inUse = false
	return nil
}

// Check returns every difference of the namespace at path, and of its link, from
// what Attach made.
func (b *Bridge) Check(path string, number uint32) ([]Difference, error) {
	const op = "netns.check"
	w, err := b.cfg.wire(number)
	if err != nil {
		return nil, err
	}
	found, err := check(path, b.cfg.declared(w))
	if err != nil {
		return nil, wrapInner(op, err)
	}
	outer, err := b.host.Inspect(w)
	return append(found, outer...), wrapInner(op, err)
}

// Bytes are those that crossed the link of the sandbox that has number, since Attach, with
// the headers of each packet as the kernel hands it over: large ones may share one.
func (b *Bridge) Bytes(number uint32) (sent, received uint64, err error) {
	sent, received, err = b.host.Bytes(b.cfg.outer(number))
	return sent, received, wrapInner("netns.bytes", err)
}

// Ready refuses the mode where it is not offered, or this host does not forward.
// It changes nothing.
func (c BridgeConfig) Ready() error {
	if err := c.Offered(); err != nil {
		return err
	}
	_, err := onHost(c).Uplink()
	return wrapInner("netns.bridge", err)
}

// Examine returns how the host differs from what the links on it need. It changes
// nothing.
func (c BridgeConfig) Examine() ([]Difference, error) {
	found, err := onHost(c).examine()
	return found, wrapInner("netns.bridge", err)
}

// errForward is for a host that does not forward.
func errForward(link string) error {
	return sbxerr.WithRemedy(sbxerr.NetworkMode, "netns.bridge",
		fmt.Errorf("use network mode %q: the host forwards nothing that comes from %q", ModeBridge, link),
		fmt.Sprintf("let it: sysctl -w net.ipv4.conf.%s.forwarding=1. This makes the host a router for its neighbours on that link, unless its own rules refuse them", link))
}
