package droplog

import (
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/proxy"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/netns/reserved"
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
	a.Rule, a.Left = ruleBridge, p.Group == nflog.Passed
	switch p.Group {
	case nflog.Passed:
		l.passed(p, a)
	case nflog.Limited:
		a.Rule, a.Code = ratelog.RuleConnections, sbxerr.EgressBusy
		a.Reason = refusal(p, a) + "the sandbox has as many connections as it may have at a time"
	default:
		l.refused(p, a)
	}
}

func (l Link) passed(p nflog.Packet, a *proxy.Attempt) {
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
		a.Reason = refusal(p, a) + "it was not to leave by the sandbox's own link, with its own address"
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
