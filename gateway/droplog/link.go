package droplog

import (
	"fmt"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/attempt"
	"github.com/caisson-run/caisson/gateway/ratelog"
	"github.com/caisson-run/caisson/netns/nflog"
	"github.com/caisson-run/caisson/netns/reserved"
)

// Link are the rules of a namespace of the mode bridge, which has a link of its own.
type Link struct{}

// ruleBridge caused a refusal. The range of addresses follows if the refusal is about one.
const ruleBridge = "mode bridge"

func (Link) judge(p nflog.Packet, a *attempt.Attempt) {
	a.Rule, a.Code = ruleBridge, sbxerr.EgressDenied
	why := "only the sandbox's own address may leave, by its own link"
	r, special := reserved.Of(p.Destination.Addr())
	switch {
	case p.Group == nflog.Limited:
		a.Rule, a.Code, why = ratelog.RuleConnections, sbxerr.EgressBusy, "the sandbox has as many connections as it may have at a time"
	case p.Destination.Addr().Is6():
		why = "there is no IPv6 in this mode"
	case special:
		a.Rule, why = ruleBridge+": "+r.Prefix.String(), r.Why
	}
	target := p.Destination.String()
	if p.Destination.Port() == 0 {
		target = p.Destination.Addr().String()
	}
	if a.Protocol != "" {
		target = a.Protocol + " to " + target
	}
	a.Reason = fmt.Sprintf("%s is refused: %s", target, why)
}
