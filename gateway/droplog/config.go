// Package droplog records packets that the rules of a network namespace refuse: literal
// addresses without a rule, IPv6, protocols other than TCP; in mode bridge, addresses that
// are not public. The rules decide. This package only records their decisions and the reasons.
package droplog

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/netns/nflog"
)

// Config is what is known of the sandbox.
type Config struct {
	Sandbox  string // for records
	Rules    Rules
	Recorder proxy.Recorder
}

// Rules know why the rules of a namespace refused a packet.
type Rules interface {
	// judge fills in what a is missing, and must not block.
	judge(p nflog.Packet, a *attempt.Attempt)
}

// Gate are those of a namespace whose way out is the gateway.
type Gate struct {
	Policy func() *policy.Policy // the one in force; asked for each packet
	Names  proxy.Names
}

// attempt is the record of p. When it was sent is not known.
func (c Config) attempt(p nflog.Packet, skipped uint64) attempt.Attempt {
	a := attempt.Attempt{Sandbox: c.Sandbox, Asked: p.Destination, Verdict: attempt.Refused, Begun: p.Read, Skipped: skipped}
	if p.Protocol != unix.IPPROTO_TCP {
		a.Protocol = protocol(p.Protocol)
	}
	c.Rules.judge(p, &a)
	return a
}

func (g Gate) judge(p nflog.Packet, a *attempt.Attempt) {
	a.Name, _ = g.Names.Name(p.Destination.Addr())
	var d policy.Decision
	if a.Protocol == "" {
		d = decideTCP(g.Policy(), p.Destination)
	} else {
		d = g.Policy().DecidePacket(a.Protocol, a.Name, p.Destination)
	}
	a.Rule, a.Code, a.Reason = d.Rule, d.Code, d.Reason
}

// decideTCP says why a connection was not led to the gateway.
func decideTCP(p *policy.Policy, to netip.AddrPort) policy.Decision {
	d := p.DecideAddress(to.Addr(), to.Port())
	if d.Allowed {
		return policy.Decision{Rule: d.Rule, Code: sbxerr.Gateway, Reason: fmt.Sprintf("%s was refused while nothing led there; try again", to)}
	}
	return d
}

// protocol names one as people do (RFC 5237), those without a name by their number.
func protocol(number byte) string {
	switch number {
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_DCCP:
		return "dccp"
	}
	return fmt.Sprintf("protocol %d", number)
}
