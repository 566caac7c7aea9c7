package runtime

import (
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/runtime/plan"
)

// What the operator says now is over what a sandbox was given by an earlier daemon: rules
// that are no longer taken are left out.
func TestAdoptEgress(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules plan.NetworkRules
		allow []string
	}{
		{"the control", plan.NetworkRules{}, []string{"a.example"}},
		{"air-gapped since", plan.NetworkRules{AirGapped: true}, nil},
		{"mapped since", plan.NetworkRules{Map: map[string]string{"a.example": "10.0.0.1"}}, []string{"a.example"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newTestManager(func(o *Options) { o.Network = tt.rules })
			s := &sandbox{record: record{Network: netns.ModeAllow, Profile: plan.DefaultProfile, Policy: policy.Spec{Mode: policy.Allow, Allow: []string{"a.example"}}}}
			errtest.Want(t, m.adoptEgress(t.Context(), s), sbxerr.Gateway, "no gateway") // it gets as far as that
			if p := s.kept().Policy; p.AirGapped != tt.rules.AirGapped || p.Map["a.example"] != tt.rules.Map["a.example"] || !slices.Equal(p.Allow, tt.allow) {
				t.Errorf("its policy is %+v", p)
			}
		})
	}
}

func TestRedirectOf(t *testing.T) {
	if g, err := redirectOf(policy.Spec{}); g != nil || err != nil {
		t.Errorf("the mode none has the redirect %v, %v", g, err)
	}
	g, err := redirectOf(policy.Spec{Mode: policy.Allow, Allow: []string{"a.example", "8.8.8.0/24:443"}})
	want := []netip.Prefix{policy.Pool, netip.MustParsePrefix("8.8.8.0/24")}
	if err != nil || !slices.Equal(g.Prefixes, want) {
		t.Errorf("redirect %v, %v, want %v", g, err, want)
	}
}

func TestChangeNetwork(t *testing.T) {
	m := newTestManager()
	p := &plan.Sandbox{Network: netns.ModeAllow, Request: plan.CreateRequest{Allow: []string{"a.example"}, Deny: []string{"b.example"}}}
	have := record{Name: "a", Profile: "strict", Network: netns.ModeAllow, Asked: p.Asked()}
	next, err := m.changeNetwork(have, UpdateRequest{Allow: &Rules{}})
	if err != nil || next.Network != netns.ModeAllow || len(next.Policy.Allow) != 0 || !slices.Equal(next.Policy.Deny, []string{"b.example"}) {
		t.Errorf("%+v, %v, want nothing allowed and b.example denied", next.Policy, err)
	}
	if next, err = m.changeNetwork(have, UpdateRequest{Labels: map[string]string{"a": "b"}}); err != nil || !reflect.DeepEqual(next, have) {
		t.Errorf("an update of something else: %+v, %v", next, err)
	}
	for name, tt := range map[string]struct {
		have record
		r    UpdateRequest
	}{
		"a sandbox without a network": {record{Name: "a", Profile: "strict", Network: netns.ModeNone}, UpdateRequest{Allow: &Rules{[]string{"a.example"}}}},
		"to bridge":                   {have, UpdateRequest{Network: new("bridge"), Allow: &Rules{}, Deny: &Rules{}}},
		"rules of the mode bridge":    {record{Name: "a", Profile: "strict", Network: netns.ModeBridge}, UpdateRequest{Allow: &Rules{[]string{"a.example"}}}},
		"from the mode bridge":        {record{Name: "a", Profile: "strict", Network: netns.ModeBridge}, UpdateRequest{Network: new("open")}},
		"to none":                     {have, UpdateRequest{Network: new("none"), Allow: &Rules{}, Deny: &Rules{}}},
	} {
		if _, err := m.changeNetwork(tt.have, tt.r); sbxerr.Of(err) != sbxerr.NetworkMode {
			t.Errorf("%s: %v, want %s", name, err, sbxerr.NetworkMode)
		}
	}
}

// TestChangeNoNetwork shows that who is refused reads the rule, the reason and an
// example.
func TestChangeNoNetwork(t *testing.T) {
	have := record{Name: "app", Profile: "strict", Network: netns.ModeNone}
	for want, r := range map[string]UpdateRequest{
		`allow rule "A.example", deny rule "b.example:22" cannot be added: sandbox app has the network mode "none"`: {
			Allow: &Rules{[]string{"A.example"}}, Deny: &Rules{[]string{"b.example:22"}},
		},
		`: sandbox app has the network mode "none", in which there is nothing to change`: {Network: new("allow")},
	} {
		_, err := newTestManager().changeNetwork(have, r)
		if sbxerr.Of(err) != sbxerr.NetworkMode || !strings.Contains(err.Error(), want) || !strings.Contains(sbxerr.RemedyOf(err), "caisson create --allow github.com:443") {
			t.Errorf("%v (%s), want %q", err, sbxerr.RemedyOf(err), want)
		}
	}
}

// TestNoGateway shows that a sandbox which needs a gateway is not made without
// one.
func TestNoGateway(t *testing.T) {
	m := newTestManager(func(o *Options) { o.State = t.TempDir() })
	s := &sandbox{id: "x", record: record{ID: "x", Network: netns.ModeAllow, Policy: policy.Spec{Mode: policy.Allow}}}
	if err := m.createNetns(t.Context(), s); sbxerr.Of(err) != sbxerr.Gateway {
		t.Errorf("%v, want %s", err, sbxerr.Gateway)
	}
	if entries, err := os.ReadDir(m.paths.state); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v are left", entries, err)
	}
}

// What is said to be open is shown as what it is.
func TestAdoptEgressOfWhatWasOpen(t *testing.T) {
	for gapped, want := range map[bool]netns.Mode{false: netns.ModeOpen, true: netns.ModeAllow} {
		m := newTestManager(func(o *Options) { o.Network.AirGapped = gapped })
		s := &sandbox{record: record{Network: netns.ModeOpen, Profile: plan.DefaultProfile, Policy: policy.Spec{Mode: policy.Open}}}
		errtest.Want(t, m.adoptEgress(t.Context(), s), sbxerr.Gateway, "no gateway") // it gets as far as that
		if r := s.kept(); r.Network != want || string(r.Policy.Mode) != string(want) {
			t.Errorf("air-gapped: %t: shown as %s, served as %s", gapped, r.Network, r.Policy.Mode)
		}
	}
}

// A sandbox of an earlier daemon goes on, without the rules that are refused by now.
func TestAdoptEgressLeavesOutRefusedRules(t *testing.T) {
	f, _ := newPublishing(t)
	s, err := f.find(callerContext(t), f.session(t, plan.CreateRequest{}).ID)
	if err != nil {
		t.Fatal(err)
	}
	s.update(func() {
		s.record.Network, s.record.Policy = netns.ModeAllow, policy.Spec{Mode: policy.Allow, Allow: []string{"localhost,private", "x.example"}}
	})
	_ = f.adoptEgress(callerContext(t), s) // there is no namespace here
	if got := s.kept().Policy.Allow; !slices.Equal(got, []string{"x.example"}) {
		t.Errorf("it may reach %q", got)
	}
}
