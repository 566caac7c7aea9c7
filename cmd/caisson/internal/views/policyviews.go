package views

import (
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
)

// egressView counts what went through the gateway for one sandbox.
type egressView struct {
	Open            int64 `json:"open"`
	Allowed         int64 `json:"allowed"`
	Refused         int64 `json:"refused"`
	Failed          int64 `json:"failed"`
	SentBytes       int64 `json:"sent_bytes"`
	ReceivedBytes   int64 `json:"received_bytes"`
	LookupsAnswered int64 `json:"lookups_answered"`
	LookupsRefused  int64 `json:"lookups_refused"`
	Lost            int64 `json:"lost"`
}

func egressViewOf(e *caissonv1.Egress) *egressView {
	if e == nil {
		return nil
	}
	return &egressView{e.Open, e.Allowed, e.Refused, e.Failed, e.SentBytes, e.ReceivedBytes, e.LookupsAnswered, e.LookupsRefused, e.Lost}
}

type verdictView struct {
	Host    string `json:"host"`
	Port    uint32 `json:"port"`
	Network string `json:"network"`
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"`
	Code    string `json:"code"`
	Reason  string `json:"reason"`
	Remedy  string `json:"remedy"`
	Needs   string `json:"needs"`

	Addresses []addressView `json:"addresses"` // null: not resolved
}

type addressView struct {
	Address string `json:"address"`
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"`
	Code    string `json:"code"`
	Reason  string `json:"reason"`
	Needs   string `json:"needs"`
}

func addressViewOf(v *caissonv1.AddressVerdict) addressView {
	return addressView{v.Address, v.Allowed, v.Rule, v.Code, v.Reason, v.Needs}
}

type policyView struct {
	Network string           `json:"network"`
	Lines   []policyLineView `json:"lines"`
}

type policyLineView struct {
	Rule   string `json:"rule"`
	Effect string `json:"effect"`
}

type trafficView struct {
	Time          *time.Time `json:"time"`
	Kind          string     `json:"kind"`
	Verdict       string     `json:"verdict"`
	Name          string     `json:"name"`
	Port          uint32     `json:"port"`
	Type          string     `json:"type"`
	Address       string     `json:"address"`
	Rule          string     `json:"rule"`
	Code          string     `json:"code"`
	Reason        string     `json:"reason"`
	SentBytes     int64      `json:"sent_bytes"`
	ReceivedBytes int64      `json:"received_bytes"`
	DurationMS    float64    `json:"duration_ms"`
	Skipped       uint64     `json:"skipped"`
	Peer          string     `json:"peer"`
	SandboxID     string     `json:"sandbox_id"`
	Cursor        string     `json:"cursor"`
	Needs         string     `json:"needs"`
	Model         string     `json:"model"`
	InputTokens   int64      `json:"input_tokens"`
	OutputTokens  int64      `json:"output_tokens"`
	Cost          float64    `json:"cost"`
}

func TrafficViewOf(t *caissonv1.TrafficResponse) trafficView {
	return trafficView{
		TimeOf(t.Time), t.Kind, t.Verdict, t.Name, t.Port, t.Type, t.Address, t.Rule, t.Code, t.Reason,
		t.SentBytes, t.ReceivedBytes, Milliseconds(t.Duration), t.Skipped, t.Peer, t.SandboxId, t.Cursor, t.Needs, t.Model, t.InputTokens, t.OutputTokens, t.Cost,
	}
}

// learnedView is the smallest policy that would have sufficed.
type learnedView struct {
	Rules    []string `json:"rules"`
	Warnings []string `json:"warnings"`
}

func learnedViewOf(l *caissonv1.Learned) *learnedView {
	if l == nil {
		return nil
	}
	return &learnedView{OrEmpty(l.Rules), OrEmpty(l.Warnings)}
}

func VerdictViewOf(v *caissonv1.CheckPolicyResponse) verdictView {
	view := verdictView{v.Host, v.Port, v.Network, v.Allowed, v.Rule, v.Code, v.Reason, v.Remedy, v.Needs, nil}
	if len(v.Addresses) > 0 {
		view.Addresses = Each(v.Addresses, addressViewOf)
	}
	return view
}

func PolicyViewOf(r *caissonv1.ExplainPolicyResponse) policyView {
	return policyView{r.Network, Each(r.Lines, func(l *caissonv1.PolicyLine) policyLineView { return policyLineView{l.Rule, l.Effect} })}
}
