// Package stray records what one sandbox sends past the gateway, of which the rules of its
// namespace tell. With a gate that is what they refuse: literal addresses that no rule
// names, IPv6, other protocols than TCP. In the mode bridge, in which nothing goes through
// the gateway, it is also each connection or exchange that leaves. The rules decide; here is
// only told what they did, and why.
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
	Sandbox  string // for records
	Rules    Rules
	Recorder proxy.Recorder
}

// Rules know why those of a namespace did with a packet what they did.
type Rules interface {
	// judge fills in what a is missing, and must not block.
	judge(p nflog.Packet, a *proxy.Attempt)
}

// Gate are those of a namespace whose way out is the gateway.
type Gate struct {
	Policy func() *policy.Policy // the one in force; asked for each packet
	Names  proxy.Names
}

// How many packets of a sandbox are recorded: more than that is no attempt any more. The
// rest is counted by the next record.
const (
	perSecond = 50 // sustained
	burst     = 200
)

// endsBurst is how many ends are recorded at once: of all connections that a sandbox can
// have open, which those that are closed and not forgotten yet are beside.
const endsBurst = 4096

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
	var refused, passed lot
	refused.most, passed.most = rate.NewLimiter(perSecond, burst), rate.NewLimiter(perSecond, burst)
	ends := rate.NewLimiter(perSecond, endsBurst)
	for {
		p, err := r.Next()
		if err != nil {
			return err
		}
		if p.Ended != nil {
			c.recordEnd(p, ends)
			continue
		}
		of := &refused
		if p.Passed {
			of = &passed
		}
		of.skipped += p.Missed
		switch {
		case !p.Passed && !p.Opens: // the rest of what was cut
		case of.most.Allow():
			c.Recorder.Record(c.attempt(p, of.skipped))
			of.skipped = 0
		default:
			of.skipped++
			time.Sleep(pause)
		}
	}
}

// lot are the packets that had the same verdict: those that leave and those that are refused
// are bounded by themselves, so that neither hides the other.
type lot struct {
	most    *rate.Limiter
	skipped uint64
}

// attempt is the record of p. When it was sent is not known.
func (c Config) attempt(p nflog.Packet, skipped uint64) proxy.Attempt {
	a := proxy.Attempt{Sandbox: c.Sandbox, Asked: p.Destination, Verdict: proxy.Refused, Begun: p.Read, Before: p.Read, Skipped: skipped}
	if p.Protocol != unix.IPPROTO_TCP {
		a.Protocol = protocol(p.Protocol)
	}
	c.Rules.judge(p, &a)
	return a
}

func (g Gate) judge(p nflog.Packet, a *proxy.Attempt) {
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
