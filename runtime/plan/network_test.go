package plan

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
)

var linkSubnet = netip.MustParsePrefix("10.87.0.0/16")

func TestNetworkOf(t *testing.T) {
	web := Network{Mode: "allow", Allow: []string{"a.example"}, Deny: []string{"bad.example"}, Map: map[string]string{"m.example": "10.0.0.2"}}
	for _, tt := range []struct {
		name    string
		rules   NetworkRules
		profile Network
		asked   NetworkRequest
		mode    netns.Mode
		want    policy.Spec
	}{
		{name: "nothing is said", mode: netns.ModeNone},
		{
			name: "to name a destination is to want a network", asked: NetworkRequest{Allow: []string{"x.example:22"}},
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
			asked: NetworkRequest{Allow: []string{"x.example"}, Deny: []string{"y.example"}}, mode: netns.ModeAllow,
			want: policy.Spec{Mode: policy.Allow, Allow: []string{"x.example"}, Deny: []string{"bad.example", "y.example"}, Map: web.Map},
		},
		{name: "bridge", rules: NetworkRules{Bridge: netns.BridgeConfig{Subnet: linkSubnet}, Map: web.Map}, asked: NetworkRequest{Mode: "bridge"}, mode: netns.ModeBridge},
		{name: "less than the profile", profile: web, asked: NetworkRequest{Mode: "none"}, mode: netns.ModeNone},
		{
			name: "open", profile: web, asked: NetworkRequest{Mode: "open"}, mode: netns.ModeOpen,
			want: policy.Spec{Mode: policy.Open, Allow: web.Allow, Deny: web.Deny, Map: web.Map},
		},
		{
			name: "ECH by the request's word", profile: Network{Mode: "allow"}, asked: NetworkRequest{AllowECH: true}, mode: netns.ModeAllow,
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
			mode, spec, err := tt.rules.NetworkOf(tt.profile, tt.asked)
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
		asked   NetworkRequest
		code    sbxerr.Code
		word    string
	}{
		{name: "rules in the mode none", asked: NetworkRequest{Mode: "none", Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "no rules"},
		{name: "a denial of nothing", asked: NetworkRequest{Deny: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "no rules"},
		{name: "no mode", asked: NetworkRequest{Mode: "host"}, code: sbxerr.NetworkMode, word: "host"},
		{name: "bridge", asked: NetworkRequest{Mode: "bridge"}, code: sbxerr.NetworkMode, word: "not offered"},
		{name: "bridge and air-gapped", rules: NetworkRules{AirGapped: true, Bridge: netns.BridgeConfig{AirGapped: true, Subnet: linkSubnet}}, asked: NetworkRequest{Mode: "bridge"}, code: sbxerr.NetworkMode, word: "air-gapped"},
		{name: "rules in the mode bridge", rules: linked, asked: NetworkRequest{Mode: "bridge", Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "a denial in the mode bridge", rules: linked, asked: NetworkRequest{Mode: "bridge", Deny: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "a profile's rules in the mode bridge", rules: linked, profile: Network{Mode: "bridge", Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "ECH in the mode none", asked: NetworkRequest{AllowECH: true}, code: sbxerr.NetPolicy, word: "--allow-ech"},
		{name: "ECH in the mode bridge", rules: linked, asked: NetworkRequest{Mode: "bridge", AllowECH: true}, code: sbxerr.NetPolicy, word: "rules in the network mode"},
		{name: "a link in the mode bridge", rules: linked, asked: NetworkRequest{Mode: "bridge", Links: map[string]policy.Link{"db": {}}}, code: sbxerr.NetPolicy, word: "links in the network mode"},
		{name: "resolvers in the mode bridge", rules: linked, asked: NetworkRequest{Mode: "bridge", DNS: []string{"192.0.2.53"}}, code: sbxerr.NetPolicy, word: "network.bridge.dns"},
		{name: "resolvers where none may be chosen", asked: NetworkRequest{Mode: "open", DNS: []string{"192.0.2.53"}}, code: sbxerr.NetPolicy, word: "192.0.2.53:53 is not among"},
		{name: "a resolver and air-gapped", rules: NetworkRules{AirGapped: true, Resolvers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}}, asked: NetworkRequest{Mode: "allow", DNS: []string{"192.0.2.53"}}, code: sbxerr.NetPolicy, word: "no name is looked up"},
		{name: "a public suffix", asked: NetworkRequest{Allow: []string{"*.co.uk"}}, code: sbxerr.NetPolicy, word: "co.uk"},
		{name: "port 0", asked: NetworkRequest{Allow: []string{"a.example:0"}}, code: sbxerr.NetPolicy, word: "a.example:0"},
		{name: "port 70000", asked: NetworkRequest{Allow: []string{"a.example:70000"}}, code: sbxerr.NetPolicy, word: "70000"},
		{name: "host bits", asked: NetworkRequest{Allow: []string{"192.0.2.1/24:80"}}, code: sbxerr.NetPolicy, word: "192.0.2.0/24"},
		{name: "the sandbox's own addresses", asked: NetworkRequest{Allow: []string{"127.0.0.1:80,private"}}, code: sbxerr.NetPolicy, word: `allow rule "127.0.0.1:80,private": connections to loopback`},
		{name: "addresses with the sandbox's own", asked: NetworkRequest{Allow: []string{"0.0.0.0/1"}}, code: sbxerr.NetPolicy, word: `allow rule "0.0.0.0/1": connections to loopback`},
		{name: "IPv6 addresses", asked: NetworkRequest{Allow: []string{"[2606:4700:4700::1111]:80"}}, code: sbxerr.NetPolicy, word: `allow rule "[2606:4700:4700::1111]:80": connections to literal IPv6`},
		{name: "a mirror that is no address", profile: Network{Mode: "allow", Map: map[string]string{"a.example": "elsewhere"}}, code: sbxerr.NetPolicy, word: "elsewhere"},
		{name: "open and air-gapped", rules: closed, asked: NetworkRequest{Mode: "open"}, code: sbxerr.NetPolicy, word: "air-gapped"},
		{name: "a name and air-gapped", rules: closed, asked: NetworkRequest{Allow: []string{"a.example"}}, code: sbxerr.NetPolicy, word: "air-gapped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := tt.rules.NetworkOf(tt.profile, tt.asked)
			if sbxerr.Of(err) != tt.code || !strings.Contains(err.Error(), tt.word) {
				t.Errorf("%v, want %s with %q", err, tt.code, tt.word)
			}
		})
	}
}

// A sandbox keeps the resolvers that the operator still allows.
func TestOverResolvers(t *testing.T) {
	kept, gone := netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("192.0.2.54:53")
	spec := NetworkRules{Resolvers: []netip.AddrPort{kept}}.Over(policy.Spec{Mode: policy.Open, Resolvers: []netip.AddrPort{gone, kept}}, nil)
	if !slices.Equal(spec.Resolvers, []netip.AddrPort{kept}) {
		t.Errorf("%v are kept", spec.Resolvers)
	}
}

// Who links wants a network: with it come the names that the operator mapped.
func TestLinkedNetworkOf(t *testing.T) {
	links := map[string]policy.Link{"db": {Sandbox: strings.Repeat("a", 26), Port: 5432}}
	mode, spec, err := NetworkRules{}.NetworkOf(Network{}, NetworkRequest{Links: links})
	if err != nil || mode != netns.ModeAllow || spec.Links["db"] != links["db"] {
		t.Errorf("%s, %+v, %v", mode, spec, err)
	}
	if _, _, err := (NetworkRules{AirGapped: true}).NetworkOf(Network{}, NetworkRequest{Links: links}); err != nil {
		t.Errorf("air-gapped: %v", err)
	}
	_, _, err = NetworkRules{}.NetworkOf(Network{}, NetworkRequest{Mode: "none", Links: links})
	errtest.Want(t, err, sbxerr.NetPolicy, "links")
}
