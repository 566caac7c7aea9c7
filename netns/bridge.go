package netns

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// BridgeConfig says how the sandboxes of the mode bridge leave the host.
type BridgeConfig struct {
	// Instance names the daemon among those of one host. All that is made in the
	// host's namespace is called after it.
	Instance string
	// Subnet holds an address for each sandbox. It is IPv4, private, and used by
	// nothing else of the host. The zero Subnet: the mode is not offered.
	Subnet netip.Prefix
	// Resolvers may be asked for names, UDP and TCP on port 53, also where they
	// are private.
	Resolvers []netip.Addr
	AirGapped bool // the mode is not offered, whatever Subnet is
}

// The marks of packets on the host. A packet from a sandbox, and one that
// answers it, is routed only if both are set: see hostTables. They are bits of
// their own: other software has its marks in others (Kubernetes 0xc000, Tailscale
// 0xff0000).
const (
	markPassed   = 0x1000000 // the table mangle has let it pass
	markMasked   = 0x2000000 // the table nat gives it the host's address
	marksOfWorld = markPassed | markMasked
)

// What a sandbox's end of its link has. The gateway's address is never sent
// anywhere: it only says that all goes through the link.
const (
	innerLink = "eth0"
	gatewayIP = "169.254.1.1"
)

// linkMAC is the address of both ends of every link. They do not ask each other
// for it (ARP is off), and nobody else is on the link.
var linkMAC = []byte{0x02, 0xca, 0x15, 0x50, 0x00, 0x00}

var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
}

const bridgeRemedy = "set network.bridge.subnet in the daemon's configuration to a private range that nothing else uses, such as 10.87.0.0/16; the modes allow and open need nothing"

// Offered refuses the mode where the operator did not ask for it, or the host is
// to have no way out at all.
func (c BridgeConfig) Offered() error {
	const op = "netns.bridge"
	switch {
	case c.AirGapped:
		return sbxerr.WithRemedy(sbxerr.NetworkMode, op, fmt.Errorf("use network mode %q: it is not offered: the daemon is air-gapped", ModeBridge), "use the mode allow, with mapped names")
	case !c.Subnet.IsValid():
		return sbxerr.WithRemedy(sbxerr.NetworkMode, op, fmt.Errorf("use network mode %q: it is not offered: the operator has not set it up", ModeBridge), bridgeRemedy)
	}
	return nil
}

// Validate refuses a subnet that is not private or too small for so many
// sandboxes, and resolvers that no sandbox could ask, all of it at once.
func (c BridgeConfig) Validate(sandboxes uint32) error {
	var errs []error
	if c.Subnet.IsValid() {
		errs = append(errs, c.validateSubnet(sandboxes))
	}
	for _, r := range c.Resolvers {
		if !r.Is4() || r.IsLoopback() || r.IsUnspecified() || r.IsMulticast() {
			errs = append(errs, fmt.Errorf("network.bridge.dns: %q is no IPv4 address of another machine", r))
		}
	}
	return sbxerr.Wrap(sbxerr.NetworkMode, "netns.bridge", errors.Join(errs...))
}

func (c BridgeConfig) validateSubnet(sandboxes uint32) error {
	switch {
	case !c.Subnet.Addr().Is4() || c.Subnet != c.Subnet.Masked():
		return fmt.Errorf("network.bridge.subnet: %q is no IPv4 prefix without bits after it", c.Subnet)
	case !isPrivate(c.Subnet):
		return fmt.Errorf("network.bridge.subnet: %q is not private: it would hide what it belongs to", c.Subnet)
	case c.capacity() < sandboxes:
		return fmt.Errorf("network.bridge.subnet: %q has %d addresses for ids.blocks = %d sandboxes", c.Subnet, c.capacity(), sandboxes)
	}
	return nil
}

func isPrivate(p netip.Prefix) bool {
	for _, r := range privateRanges {
		if r.Bits() <= p.Bits() && r.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// capacity is how many sandboxes have an address: neither the first nor the last
// is given to one.
func (c BridgeConfig) capacity() uint32 {
	if c.Subnet.Bits() > 30 {
		return 0
	}
	return 1<<(32-c.Subnet.Bits()) - 2
}

// tag is six hexadecimal digits that stand for the instance.
func (c BridgeConfig) tag() string { return hex.EncodeToString(c.sum()[:3]) }

// table is the number of the routing table for the instance's sandboxes. It is
// above those that people and distributions use.
func (c BridgeConfig) table() int {
	sum := c.sum()
	return 1<<28 | int(sum[0])<<16 | int(sum[1])<<8 | int(sum[2])
}

func (c BridgeConfig) sum() []byte {
	sum := sha256.Sum256([]byte(c.Instance))
	return sum[:]
}

// linkPrefix is what the names of the instance's links begin with.
func (c BridgeConfig) linkPrefix() string { return "cs" + c.tag() + "-" }

// wire is the link of one sandbox, of which one end is on the host.
type wire struct {
	number  uint32
	outer   string     // the name of the host's end, at most 15 characters (IFNAMSIZ)
	address netip.Addr // of the sandbox's end; the host's has none
}

// wire plans the link of the sandbox that has number, which no other one has at
// the same time. The number is that of its block of host ids: that claim outlives
// the daemon, so no address is given twice.
func (c BridgeConfig) wire(number uint32) (wire, error) {
	if err := c.Offered(); err != nil {
		return wire{}, err
	}
	if number >= c.capacity() {
		return wire{}, sbxerr.New(sbxerr.NetworkMode, "netns.bridge", "give an address to sandbox %d: %s has %d", number, c.Subnet, c.capacity())
	}
	b := c.Subnet.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+1+number) // within the subnet
	return wire{number: number, outer: c.outer(number), address: netip.AddrFrom4(b)}, nil
}

// wiresOf are those whose ends on the host have these names.
func (c BridgeConfig) wiresOf(names []string) (wires []wire) {
	for _, name := range names {
		number, err := strconv.ParseUint(strings.TrimPrefix(name, c.linkPrefix()), 10, 32)
		if w, wireErr := c.wire(uint32(number)); err == nil && wireErr == nil {
			wires = append(wires, w)
		}
	}
	return wires
}

// outer is the name of the host's end, also where the mode is not offered any
// more.
func (c BridgeConfig) outer(number uint32) string {
	return c.linkPrefix() + strconv.FormatUint(uint64(number), 10)
}
