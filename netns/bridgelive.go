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
	// Tether makes what is there before the first rule and goes after the last: it
	// tells whether any of ours may be there. The differences are what it found.
	Tether() ([]Difference, error)
	Tethered() (bool, error)
	Untether() error
	// Mend puts the rules in force where they differ, and says where.
	Mend() ([]Difference, error)
	Clean() error // removes the rules
	// Plug makes a link and the route to its sandbox, and connects it last.
	Plug(path string, w wire, mtu int) error
	Unplug(outer string) error
	Inspect(wire) ([]Difference, error) // how the host's end differs from what Plug made
	// Rewire puts right the settings of links and the routes to them, and says what
	// was not.
	Rewire([]wire) ([]Difference, error)
	Links() ([]string, error) // the names of the host's ends
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
	wires map[string]wire // by the host's end, also of those that are still made
	// plugged are those that were made: what they need is put right again.
	plugged map[string]wire
}

// NewBridge works in the namespace of the process. It changes nothing yet.
func NewBridge(c BridgeConfig) (*Bridge, error) {
	return newBridge(c, onHost(c))
}

func newBridge(c BridgeConfig, host hostSide) (*Bridge, error) {
	b := &Bridge{cfg: c, host: host, wires: map[string]wire{}, plugged: map[string]wire{}}
	var err error
	b.inUse, err = host.Tethered()
	return b, wrapInner("netns.bridge", err)
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

// onHost works in the namespace of the process.
func onHost(c BridgeConfig) *hostKernel {
	return &hostKernel{cfg: c, in: onThread}
}

// Attach connects the namespace at path, which holds only lo, as the sandbox that
// has number. Denials come first and the link last, inside as on the host. After a
// failure Detach removes what was made. The mode not being offered, and a host that
// does not forward, have code sbxerr.NetworkMode.
func (b *Bridge) Attach(path string, number uint32) error {
	const op = "netns.attach"
	w, err := b.cfg.wire(number)
	if err != nil {
		return err
	}
	mtu, err := b.host.Uplink()
	if err != nil {
		return wrapInner(op, err)
	}
	if err := deny(path, b.cfg, w); err != nil {
		return wrapInner(op, err)
	}
	if err := b.admit(w); err != nil {
		return wrapInner(op, err)
	}
	if err := b.host.Plug(path, w, mtu); err != nil {
		return wrapInner(op, err)
	}
	b.keep(w)
	return nil
}

// keep counts w as made.
func (b *Bridge) keep(w wire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plugged[w.outer] = w
}

// Adopt goes on with the link of a sandbox of an earlier daemon. Whether it is as
// it should be is for Check to say.
func (b *Bridge) Adopt(number uint32) error {
	w, err := b.cfg.wire(number)
	if err == nil {
		err = b.admit(w)
	}
	if err != nil {
		return wrapInner("netns.adopt", err)
	}
	b.keep(w)
	return nil
}

// admit counts w and puts what all share in force.
func (b *Bridge) admit(w wire) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wires) > 0 { // whoever calls Mend keeps it so
		b.wires[w.outer] = w
		return nil
	}
	b.inUse = true
	if _, err := b.host.Tether(); err != nil {
		return errors.Join(err, b.settleLocked())
	}
	if _, err := b.host.Mend(); err != nil {
		return errors.Join(err, b.settleLocked())
	}
	b.wires[w.outer] = w
	return nil
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
	if err := b.host.Unplug(outer); err != nil {
		return wrapInner("netns.detach", err)
	}
	delete(b.wires, outer)
	delete(b.plugged, outer)
	return wrapInner("netns.detach", b.settleLocked())
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
	if err := errors.Join(errs...); err != nil {
		return wrapInner("netns.settle", err)
	}
	return wrapInner("netns.settle", b.settleLocked())
}

// settleLocked removes what links share when there is none: the tether last.
func (b *Bridge) settleLocked() error {
	links, err := b.host.Links()
	if err != nil || len(links) > 0 || len(b.wires) > 0 {
		return err
	}
	if err := b.host.Clean(); err != nil {
		return err
	}
	if err := b.host.Untether(); err != nil {
		return err
	}
	b.inUse = false
	return nil
}

// Mend compares what is on the host with what should be there, puts it right, and
// returns what was not. In between nothing of a sandbox is routed, whatever was
// flushed: see hostTables. A link that is gone stays so: its sandbox has no network
// any more.
func (b *Bridge) Mend() ([]Difference, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wires) == 0 {
		return nil, nil
	}
	tether, err := b.host.Tether()
	if err != nil {
		return tether, wrapInner("netns.mend", err)
	}
	rules, err := b.host.Mend()
	if err != nil {
		return append(tether, rules...), wrapInner("netns.mend", err)
	}
	routes, err := b.host.Rewire(slices.Collect(maps.Values(b.plugged)))
	return slices.Concat(tether, rules, routes), wrapInner("netns.mend", err)
}

// Check returns every difference of the namespace at path, and of its link, from
// what Attach made.
func (b *Bridge) Check(path string, number uint32) ([]Difference, error) {
	const op = "netns.check"
	w, err := b.cfg.wire(number)
	if err != nil {
		return nil, err
	}
	found, err := checkInner(path, b.cfg, w)
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

// errForward is for a host that does not forward.
func errForward(link string) error {
	return sbxerr.WithRemedy(sbxerr.NetworkMode, "netns.bridge",
		fmt.Errorf("use network mode %q: the host forwards nothing that comes from %q", ModeBridge, link),
		fmt.Sprintf("let it: sysctl -w net.ipv4.conf.%s.forwarding=1. This makes the host a router for its neighbours on that link, unless its own rules refuse them", link))
}
