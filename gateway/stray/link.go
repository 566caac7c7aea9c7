package stray

import (
	"fmt"
	"math"

	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/netns/reserved"
	"github.com/caisson-run/caisson/sbxerr"
)

// Link are the rules of a namespace of the mode bridge, which has a link of its own.
type Link struct {
	Local policy.Local // which addresses are the host's own
}

// What caused a verdict. The first has the range of addresses after it where it is about one.
const (
	ruleBridge   = "mode bridge"
	ruleResolver = "network.bridge.dns" // of the daemon's configuration
)

func (l Link) judge(p nflog.Packet, a *proxy.Attempt) {
	a.Rule, a.Left = ruleBridge, p.Passed
	if !p.Passed {
		l.refused(p, a)
		return
	}
	addr := p.Destination.Addr()
	if own, err := l.Local(addr); own && err == nil { // public ones too: it is the host's rules that know them
		a.Code, a.Reason = sbxerr.EgressDenied, refusal(p, a)+"the address is the host's own"
		return
	}
	a.Verdict, a.Address = proxy.Allowed, p.Destination
	if _, special := reserved.Of(addr); special {
		a.Rule = ruleResolver // nothing else of these leaves
	}
}

func (Link) refused(p nflog.Packet, a *proxy.Attempt) {
	a.Code = sbxerr.EgressDenied
	r, special := reserved.Of(p.Destination.Addr())
	switch {
	case p.Destination.Addr().Is6():
		a.Reason = refusal(p, a) + "there is no IPv6 in this mode"
	case special:
		a.Rule, a.Reason = ruleBridge+": "+r.Prefix.String(), refusal(p, a)+r.Why
	default:
		a.Reason = refusal(p, a) + "there were more than 4096 connections, or it was not to leave by the sandbox's own link, with its own address"
	}
}

// recordEnd tells how much it was that left, unless there is too much to tell.
func (c Config) recordEnd(p nflog.Packet, most *rate.Limiter) {
	if !most.Allow() {
		return // without a pause: the kernel keeps each until it is read
	}
	if a := c.attempt(p, 0); a.Verdict == proxy.Allowed {
		c.Recorder.Record(ended(a, p.Ended))
	}
}

// refusal is the begin of a reason.
func refusal(p nflog.Packet, a *proxy.Attempt) string {
	target := p.Destination.String()
	if p.Destination.Port() == 0 {
		target = p.Destination.Addr().String()
	}
	if a.Protocol != "" {
		target = a.Protocol + " to " + target
	}
	return fmt.Sprintf("%s is refused: ", target)
}

// ended is a with all that is known of it when it is over. It was tried when it began, by the
// kernel's clock.
func ended(a proxy.Attempt, f *nflog.Flow) proxy.Attempt {
	a.Ended = true
	a.Sent, a.Received = int64(min(f.Sent, math.MaxInt64)), int64(min(f.Received, math.MaxInt64))
	a.After, a.Before = f.Begun, f.Begun
	if !f.Begun.IsZero() {
		a.Begun, a.Duration = f.Begun, max(0, f.Ended.Sub(f.Begun))
	}
	return a
}
