package runtime

import (
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/sbxerr"
)

var linkSubnet = netip.MustParsePrefix("10.87.0.0/16")

func TestNetworkOf(t *testing.T) {
	web := Network{Mode: "allow", Allow: []string{"a.example"}, Deny: []string{"bad.example"}, Map: map[string]string{"m.example": "10.0.0.2"}}
	for _, tt := range []struct {
		name    string
		rules   NetworkRules
		profile Network
		asked   networkRequest
		mode    netns.Mode
		want    policy.Spec
	}{
		{name: "nothing is said", mode: netns.ModeNone},
		{
			name: "to name a destination is to want a network", asked: networkRequest{Allow: []string{"x.example:22"}},
			mode: netns.ModeAllow, want: policy.Spec{Mode: policy.Allow, Allow: []string{"x.example:22"}},
		},
		{
			name: "the profile's", profile: web, mode: netns.ModeAllow,
			want: policy.Spec{Mode: policy.Allow, Allow: web.Allow, Deny: web.Deny, Map: web.Map},
		},
		{
			name: "a profile that names a destination", profile: Network{Allow: web.Allow}, mode: netns.ModeAllow,
			want: policy.Spec{Mode: policy.Allow, Allow: web.Allow},
		},
		{name: "a profile that only denies and maps", profile: Network{Deny: web.Deny, Map: web.Map}, mode: netns.ModeNone},
		{
			name: "what is allowed is replaced, what is denied stays", profile: web,
			asked: networkRequest{Allow: []string{"x.example"}, Deny: []string{"y.example"}}, mode: netns.ModeAllow,
			want: policy.Spec{Mode: policy.Allow, Allow: []string{"x.example"}, Deny: []string{"bad.example", "y.example"}, Map: web.Map},
		},
		{name: "bridge", rules: NetworkRules{Bridge: netns.BridgeConfig{Subnet: linkSubnet}, Map: web.Map}, asked: networkRequest{Mode: "bridge"}, mode: netns.ModeBridge},
		{name: "less than the profile", profile: web, asked: networkRequest{Mode: "none"}, mode: netns.ModeNone},
		{
			name: "open", profile: web, asked: networkRequest{Mode: "open"}, mode: netns.ModeOpen,
			want: policy.Spec{Mode: policy.Open, Allow: web.Allow, Deny: web.Deny, Map: web.Map},
		},
		{
			name: "ECH by the request's word", profile: Network{Mode: "allow"}, asked: networkRequest{AllowECH: true}, mode: netns.ModeAllow,
			want: policy.Spec{Mode: policy.Allow, AllowECH: true},
		},
		{
			name: "ECH by the profile's word", profile: Network{Mode: "open", AllowECH: true}, mode: netns.ModeOpen,
			want: policy.Spec{Mode: policy.Open, AllowECH: true},
		},
		{name: "a profile's word in the mode none", profile: Network{AllowECH: true}, mode: netns.ModeNone},
		{
			name: "the operator's word", rules: NetworkRules{AirGapped: true, Map: map[string]string{"m.example": "10.0.0.1", "n.example": "10.0.0.3"}},
			profile: Network{Mode: "allow", Map: map[string]string{"m.example": "10.0.0.2"}}, mode: netns.ModeAllow,
			want: policy.Spec{Mode: policy.Allow, AirGapped: true, Map: map[string]string{"m.example": "10.0.0.2", "n.example": "10.0.0.3"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mode, spec, err := tt.rules.networkOf(tt.profile, tt.asked)
			if err != nil || mode != tt.mode {
				t.Fatalf("mode %q, %v, want %q", mode, err, tt.mode)
			}
			if len(spec.Map) == 0 {
				spec.Map = nil
			}
			if len(spec.Deny) == 0 {
				spec.Deny = nil
			}
			if !reflect.DeepEqual(spec, tt.want) {
				t.Errorf("policy %+v, want %+v", spec, tt.want)
			}
		})
	}
}

func TestNetworkOfRefuses(t *testing.T) {
	closed := NetworkRules{AirGapped: true}
	linked := NetworkRules{Bridge: netns.BridgeConfig{Subnet: linkSubnet}}
	for _, tt := range []struct {
		name    string
		rules   NetworkRules
		profile Network
		asked   networkRequest
		code    sbxerr.Code
		word    string
	}{
		{name: "rules in the mode none", asked: networkRequest{Mode: "none", Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "no rules"},
		{name: "a denial of nothing", asked: networkRequest{Deny: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "no rules"},
		{name: "no mode", asked: networkRequest{Mode: "host"}, code: sbxerr.NetworkMode, word: "host"},
		{name: "bridge", asked: networkRequest{Mode: "bridge"}, code: sbxerr.NetworkMode, word: "not offered"},
		{name: "bridge and air-gapped", rules: NetworkRules{AirGapped: true, Bridge: netns.BridgeConfig{AirGapped: true, Subnet: linkSubnet}}, asked: networkRequest{Mode: "bridge"}, code: sbxerr.NetworkMode, word: "air-gapped"},
		{name: "rules in the mode bridge", rules: linked, asked: networkRequest{Mode: "bridge", Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "a denial in the mode bridge", rules: linked, asked: networkRequest{Mode: "bridge", Deny: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "a profile's rules in the mode bridge", rules: linked, profile: Network{Mode: "bridge", Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "ECH in the mode none", asked: networkRequest{AllowECH: true}, code: sbxerr.NetPolicy, word: "--allow-ech"},
		{name: "ECH in the mode bridge", rules: linked, asked: networkRequest{Mode: "bridge", AllowECH: true}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "a link in the mode bridge", rules: linked, asked: networkRequest{Mode: "bridge", Links: map[string]policy.Link{"db": {}}}, code: sbxerr.NetPolicy, word: "links in the network mode"},
		{name: "a public suffix", asked: networkRequest{Allow: []string{"*.co.uk"}}, code: sbxerr.NetPolicy, word: "co.uk"},
		{name: "port 0", asked: networkRequest{Allow: []string{"a.example:0"}}, code: sbxerr.NetPolicy, word: "a.example:0"},
		{name: "port 70000", asked: networkRequest{Allow: []string{"a.example:70000"}}, code: sbxerr.NetPolicy, word: "70000"},
		{name: "host bits", asked: networkRequest{Allow: []string{"192.0.2.1/24:80"}}, code: sbxerr.NetPolicy, word: "192.0.2.0/24"},
		{name: "the sandbox's own addresses", asked: networkRequest{Allow: []string{"127.0.0.1:80,private"}}, code: sbxerr.NetPolicy, word: `allow rule "127.0.0.1:80,private": connections to loopback`},
		{name: "addresses with the sandbox's own", asked: networkRequest{Allow: []string{"0.0.0.0/1"}}, code: sbxerr.NetPolicy, word: `allow rule "0.0.0.0/1": connections to loopback`},
		{name: "IPv6 addresses", asked: networkRequest{Allow: []string{"[2606:4700:4700::1111]:80"}}, code: sbxerr.NetPolicy, word: `allow rule "[2606:4700:4700::1111]:80": connections to literal IPv6`},
		{name: "a mirror that is no address", profile: Network{Mode: "allow", Map: map[string]string{"a.example": "elsewhere"}}, code: sbxerr.NetPolicy, word: "elsewhere"},
		{name: "open and air-gapped", rules: closed, asked: networkRequest{Mode: "open"}, code: sbxerr.NetPolicy, word: "air-gapped"},
		{name: "a name and air-gapped", rules: closed, asked: networkRequest{Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "air-gapped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := tt.rules.networkOf(tt.profile, tt.asked)
			if sbxerr.Of(err) != tt.code || !strings.Contains(err.Error(), tt.word) {
				t.Errorf("%v, want %s with %q", err, tt.code, tt.word)
			}
		})
	}
}

// What the operator says now is over what a sandbox was given by an earlier daemon: rules
// that are no longer taken are left out.
func TestReadmit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules NetworkRules
		allow []string
	}{
		{"the control", NetworkRules{}, []string{"a.example"}},
		{"air-gapped since", NetworkRules{AirGapped: true}, nil},
		{"mapped since", NetworkRules{Map: map[string]string{"a.example": "10.0.0.1"}}, []string{"a.example"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &Manager{log: slog.New(slog.DiscardHandler), opts: Options{Network: tt.rules, Profiles: BuiltinProfiles()}}
			s := &sandbox{record: record{Network: netns.ModeAllow, Profile: DefaultProfile, Policy: policy.Spec{Mode: policy.Allow, Allow: []string{"a.example"}}}}
			wantError(t, m.readmit(t.Context(), s), sbxerr.Gateway, "no gateway") // it gets as far as that
			if p := s.kept().Policy; p.AirGapped != tt.rules.AirGapped || p.Map["a.example"] != tt.rules.Map["a.example"] || !slices.Equal(p.Allow, tt.allow) {
				t.Errorf("its policy is %+v", p)
			}
		})
	}
}

func TestGateOf(t *testing.T) {
	if g, err := gateOf(policy.Spec{}); g != nil || err != nil {
		t.Errorf("the mode none has the gate %v, %v", g, err)
	}
	g, err := gateOf(policy.Spec{Mode: policy.Allow, Allow: []string{"a.example", "8.8.8.0/24:443"}})
	want := []netip.Prefix{policy.Pool, netip.MustParsePrefix("8.8.8.0/24")}
	if err != nil || !slices.Equal(g.Prefixes, want) {
		t.Errorf("gate %v, %v, want %v", g, err, want)
	}
}

func TestChangeNetwork(t *testing.T) {
	m := &Manager{opts: Options{Profiles: BuiltinProfiles()}}
	p := &plan{network: netns.ModeAllow, request: CreateRequest{Allow: []string{"a.example"}, Deny: []string{"b.example"}}}
	have := record{Name: "a", Profile: "strict", Network: netns.ModeAllow, Asked: p.asked()}
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
		"to bridge":                   {have, UpdateRequest{Network: ptr("bridge"), Allow: &Rules{}, Deny: &Rules{}}},
		"rules of the mode bridge":    {record{Name: "a", Profile: "strict", Network: netns.ModeBridge}, UpdateRequest{Allow: &Rules{[]string{"a.example"}}}},
		"from the mode bridge":        {record{Name: "a", Profile: "strict", Network: netns.ModeBridge}, UpdateRequest{Network: ptr("open")}},
		"to none":                     {have, UpdateRequest{Network: ptr("none"), Allow: &Rules{}, Deny: &Rules{}}},
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
		`: sandbox app has the network mode "none", in which there is nothing to change`: {Network: ptr("allow")},
	} {
		_, err := (&Manager{}).changeNetwork(have, r)
		if sbxerr.Of(err) != sbxerr.NetworkMode || !strings.Contains(err.Error(), want) || !strings.Contains(sbxerr.RemedyOf(err), "caisson create --allow github.com:443") {
			t.Errorf("%v (%s), want %q", err, sbxerr.RemedyOf(err), want)
		}
	}
}

// TestNoGateway shows that a sandbox which needs a gateway is not made without
// one.
func TestNoGateway(t *testing.T) {
	m := &Manager{paths: paths{state: t.TempDir()}}
	s := &sandbox{id: "x", record: record{ID: "x", Network: netns.ModeAllow, Policy: policy.Spec{Mode: policy.Allow}}}
	if err := m.open(s); sbxerr.Of(err) != sbxerr.Gateway {
		t.Errorf("%v, want %s", err, sbxerr.Gateway)
	}
	if entries, err := os.ReadDir(m.paths.state); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v are left", entries, err)
	}
}

// What is said to be open is shown as what it is.
func TestReadmitOfWhatWasOpen(t *testing.T) {
	for gapped, want := range map[bool]netns.Mode{false: netns.ModeOpen, true: netns.ModeAllow} {
		m := &Manager{log: slog.New(slog.DiscardHandler), opts: Options{Network: NetworkRules{AirGapped: gapped}, Profiles: BuiltinProfiles()}}
		s := &sandbox{record: record{Network: netns.ModeOpen, Profile: DefaultProfile, Policy: policy.Spec{Mode: policy.Open}}}
		wantError(t, m.readmit(t.Context(), s), sbxerr.Gateway, "no gateway") // it gets as far as that
		if r := s.kept(); r.Network != want || string(r.Policy.Mode) != string(want) {
			t.Errorf("air-gapped: %t: shown as %s, served as %s", gapped, r.Network, r.Policy.Mode)
		}
	}
}

// A sandbox of an earlier daemon goes on, without the rules that are refused by now.
func TestReadmitLeavesOutRefusedRules(t *testing.T) {
	f, _ := newPublishing(t)
	s, err := f.find(callerContext(t), f.session(t, CreateRequest{}).ID)
	if err != nil {
		t.Fatal(err)
	}
	s.update(func() {
		s.record.Network, s.record.Policy = netns.ModeAllow, policy.Spec{Mode: policy.Allow, Allow: []string{"localhost,private", "x.example"}}
	})
	_ = f.readmit(callerContext(t), s) // there is no namespace here
	if got := s.kept().Policy.Allow; !slices.Equal(got, []string{"x.example"}) {
		t.Errorf("it may reach %q", got)
	}
}
