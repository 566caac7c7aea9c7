// Package stray records what one sandbox sends to where nothing leads: to literal
// addresses that no rule names, by IPv6, with other protocols than TCP. The rules of its
// namespace refuse it; here is only told that they did, and why.
package stray

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/sbxerr"
)

// Config is what is known of the sandbox.
type Config struct {
	Sandbox  string                // for records
	Policy   func() *policy.Policy // the one in force; asked for each packet
	Names    proxy.Names
	Recorder proxy.Recorder
}

// How many packets of a sandbox are recorded: more than that is no attempt any more. The
// rest is counted by the next record.
const (
	perSecond = 50 // sustained
	burst     = 200
)

// pause is how long nothing is read once there are too many, so that a flood takes next
// to nothing from other sandboxes. The kernel counts what it has no room for.
const pause = time.Millisecond

// Serve records what r reads, which it closes, until ctx ends (the error is nil) or that
// fails.
func Serve(ctx context.Context, c Config, r *nflog.Reader) error {
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	defer stop()
	if err := c.record(r); ctx.Err() == nil {
		return sbxerr.Wrap(sbxerr.Gateway, "stray.serve", err)
	}
	return nil
}

func (c Config) record(r *nflog.Reader) error {
	allowed := rate.NewLimiter(perSecond, burst)
	var skipped uint64
	for {
		p, err := r.Next()
		if err != nil {
			return err
		}
		skipped += p.Missed
		switch {
		case !p.Opens: // the rest of what was cut
		case allowed.Allow():
			c.Recorder.Record(c.attempt(p, skipped))
			skipped = 0
		default:
			skipped++
			time.Sleep(pause)
		}
	}
}

// attempt is the record of p. When it was sent is not known.
func (c Config) attempt(p nflog.Packet, skipped uint64) proxy.Attempt {
	a := proxy.Attempt{Sandbox: c.Sandbox, Asked: p.Destination, Verdict: proxy.Refused, Begun: p.Read, Before: p.Read, Skipped: skipped}
	a.Name, _ = c.Names.Name(p.Destination.Addr())
	var d policy.Decision
	if p.Protocol == unix.IPPROTO_TCP {
		d = decideTCP(c.Policy(), p.Destination)
	} else {
		a.Protocol = protocol(p.Protocol)
		d = c.Policy().DecidePacket(a.Protocol, a.Name, p.Destination)
	}
	a.Rule, a.Code, a.Reason = d.Rule, d.Code, d.Reason
	return a
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
