package server

import (
	"context"
	"errors"
	"net/netip"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// network serves NetworkService.
type network struct {
	runtime  Network
	spending Spending
	forwards Forwards
}

func (n network) CheckPolicy(ctx context.Context, req *connect.Request[caissonv1.CheckPolicyRequest]) (*connect.Response[caissonv1.CheckPolicyResponse], error) {
	q, err := policyQueryOf(req.Msg.Policy)
	if err == nil && req.Msg.Target == "" {
		err = refuse("target is empty: give a URL, HOST or HOST:PORT")
	}
	addresses, addressErr := addressesOf(req.Msg.Addresses)
	if err := errors.Join(err, addressErr); err != nil {
		return nil, fail(err)
	}
	v, err := n.runtime.CheckPolicy(ctx, q, req.Msg.Target, addresses)
	return reply(verdictPB(v), err)
}

func (n network) ExplainPolicy(ctx context.Context, req *connect.Request[caissonv1.ExplainPolicyRequest]) (*connect.Response[caissonv1.ExplainPolicyResponse], error) {
	q, err := policyQueryOf(req.Msg.Policy)
	if err != nil {
		return nil, fail(err)
	}
	v, err := n.runtime.ExplainPolicy(ctx, q)
	return reply(&caissonv1.ExplainPolicyResponse{Network: string(v.Network), Lines: each(v.Lines, policyLinePB)}, err)
}

func (n network) LearnPolicy(ctx context.Context, req *connect.Request[caissonv1.LearnPolicyRequest]) (*connect.Response[caissonv1.LearnPolicyResponse], error) {
	if err := checkRef("ref", req.Msg.Ref); err != nil {
		return nil, fail(err)
	}
	l, err := n.runtime.LearnPolicy(ctx, req.Msg.Ref)
	if err != nil {
		return nil, fail(err)
	}
	return reply(&caissonv1.LearnPolicyResponse{Rules: l.Rules, Warnings: l.Warnings}, nil)
}

func (n network) Traffic(ctx context.Context, req *connect.Request[caissonv1.TrafficRequest], stream *connect.ServerStream[caissonv1.TrafficResponse]) error {
	if err := checkRef("ref", req.Msg.Ref); err != nil {
		return fail(err)
	}
	return fail(n.runtime.Traffic(ctx, req.Msg.Ref, req.Msg.Since, req.Msg.Follow, func(e runtime.TrafficEntry) error {
		return stream.Send(trafficPB(e))
	}))
}

// maxAddresses is how many addresses of a name are judged in one call.
const maxAddresses = 64

func addressesOf(list []string) ([]netip.Addr, error) {
	if len(list) > maxAddresses {
		return nil, refuse("addresses has %d elements, at most %d", len(list), maxAddresses)
	}
	var all []netip.Addr
	for _, text := range list {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return nil, refuse("addresses: %q is no IP address", sbxerr.Clip(text))
		}
		all = append(all, addr)
	}
	return all, nil
}

func verdictPB(v runtime.PolicyVerdict) *caissonv1.CheckPolicyResponse {
	return &caissonv1.CheckPolicyResponse{
		Network: v.Network, Host: v.Host, Port: uint32(v.Port), Allowed: v.Allowed,
		Rule: v.Rule, Code: string(v.Code), Reason: v.Reason, Remedy: v.Remedy, Needs: v.Needs,
		Addresses: each(v.Addresses, addressVerdictPB),
	}
}

func addressVerdictPB(v runtime.AddressVerdict) *caissonv1.AddressVerdict {
	return &caissonv1.AddressVerdict{Address: v.Address.String(), Allowed: v.Allowed, Rule: v.Rule, Code: string(v.Code), Reason: v.Reason, Needs: v.Needs}
}

func policyLinePB(l runtime.PolicyLine) *caissonv1.PolicyLine {
	return &caissonv1.PolicyLine{Rule: l.Rule, Effect: l.Effect}
}

func egressPB(c *runtime.EgressCounters) *caissonv1.Egress {
	if c == nil {
		return nil
	}
	return &caissonv1.Egress{
		Open: c.Open, Allowed: c.Allowed, Refused: c.Refused, Failed: c.Failed, SentBytes: c.SentBytes, ReceivedBytes: c.ReceivedBytes,
		LookupsAnswered: c.LookupsAnswered, LookupsRefused: c.LookupsRefused, Lost: c.Lost,
		Requests: c.Requests, InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, Cost: c.Cost,
	}
}

func trafficPB(e runtime.TrafficEntry) *caissonv1.TrafficResponse {
	cursor := ""
	if e.Kind != traffic.Gap {
		cursor = e.Cursor.String()
	}
	return &caissonv1.TrafficResponse{
		Time: timestamp(e.Time), Kind: string(e.Kind), Verdict: e.Verdict, Name: e.Name, Port: uint32(e.Port), Type: e.Type, Address: e.Address,
		Rule: e.Rule, Code: string(e.Code), Reason: e.Reason, SentBytes: e.Sent, ReceivedBytes: e.Received,
		Duration: durationpb.New(e.Duration), Skipped: e.Skipped, Peer: e.Peer, SandboxId: e.Sandbox, Cursor: cursor, Needs: e.Needs,
		Model: e.Model, InputTokens: e.Input, OutputTokens: e.Output, Cost: float64(e.Micros) / spend.Micro,
	}
}
