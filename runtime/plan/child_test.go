package plan

import (
	"maps"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/sbxerr/errtest"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
)

func allowing(rules ...string) ParentNetwork {
	return ParentNetwork{Mode: netns.ModeAllow, Policy: policy.Spec{Mode: policy.Allow, Allow: rules}}
}

func TestNetworkOfChild(t *testing.T) {
	for _, tt := range []struct {
		name   string
		parent ParentNetwork
		asked  NetworkRequest
		mode   netns.Mode
		allow  []string
	}{
		{"nothing is said", allowing("a.example"), NetworkRequest{}, netns.ModeNone, nil},
		{"none of a parent with none", ParentNetwork{Mode: netns.ModeNone}, NetworkRequest{Mode: "none"}, netns.ModeNone, nil},
		{"the parent's", allowing("a.example"), NetworkRequest{Mode: "allow"}, netns.ModeAllow, []string{"a.example"}},
		{"less", allowing("a.example", "b.example"), NetworkRequest{Mode: "allow", Allow: []string{"b.example:443"}}, netns.ModeAllow, []string{"b.example:443"}},
		{"nothing on purpose", allowing("a.example"), NetworkRequest{Mode: "allow", Allow: []string{}}, netns.ModeAllow, nil},
		{"of one that is open", ParentNetwork{Mode: netns.ModeOpen, Policy: policy.Spec{Mode: policy.Open}}, NetworkRequest{Mode: "allow", Allow: []string{"b.example:22"}}, netns.ModeAllow, []string{"b.example:22"}},
	} {
		mode, spec, err := tt.parent.NetworkOf(tt.asked)
		if err != nil || mode != tt.mode || !slices.Equal(spec.Allow, tt.allow) {
			t.Errorf("%s: %s, %+v, %v", tt.name, mode, spec, err)
		}
	}
	for _, tt := range []struct {
		parent ParentNetwork
		asked  NetworkRequest
		code   sbxerr.Code
		says   string
	}{
		{allowing("a.example"), NetworkRequest{Mode: "open"}, sbxerr.NetChild, `not "open"`},
		{allowing("a.example"), NetworkRequest{Mode: "bridge"}, sbxerr.NetChild, `not "bridge"`},
		{allowing("a.example"), NetworkRequest{Mode: "allow", Allow: []string{"a.example:22", "c.example"}}, sbxerr.NetChild, `"a.example:22"`},
		{allowing("a.example"), NetworkRequest{Mode: "allow", Allow: []string{"*"}}, sbxerr.NetPolicy, "covers every host"},
		{allowing("a.example"), NetworkRequest{Mode: "allow", Deny: []string{"x y"}}, sbxerr.NetPolicy, "white space"},
		{allowing("a.example"), NetworkRequest{Deny: []string{"a.example"}}, sbxerr.NetPolicy, `mode "none" has no rules`},
		{ParentNetwork{Mode: netns.ModeNone}, NetworkRequest{Mode: "allow"}, sbxerr.NetChild, `its parent has the network mode "none"`},
		{ParentNetwork{Mode: netns.ModeBridge}, NetworkRequest{Mode: "allow", Allow: []string{"a.example"}}, sbxerr.NetChild, `its parent has the network mode "bridge"`},
	} {
		_, _, err := tt.parent.NetworkOf(tt.asked)
		errtest.Want(t, err, tt.code, tt.says)
	}
}

// What the parent covers no longer is left out, and comes back with it. What cannot be
// narrowed is an error.
func TestNarrow(t *testing.T) {
	asked := NetworkRequest{Mode: "allow", Allow: []string{"a.example", "b.example"}, Deny: []string{"b.example:80"}}
	for _, tt := range []struct {
		parent ParentNetwork
		allow  []string
	}{
		{allowing("a.example", "b.example", "c.example"), asked.Allow},
		{allowing("b.example"), []string{"b.example"}},
		{allowing("c.example"), nil},
	} {
		spec, refused, err := tt.parent.Narrow(asked)
		if err != nil || !slices.Equal(spec.Allow, tt.allow) || !slices.Equal(spec.Deny, asked.Deny) || (refused == nil) != (len(tt.allow) == 2) {
			t.Errorf("%+v, refused %v, %v; want %q", spec, refused, err, tt.allow)
		}
	}
	for _, parent := range []ParentNetwork{{Mode: netns.ModeNone}, {Mode: HostNetwork}, {Mode: netns.ModeAllow}} {
		_, _, err := parent.Narrow(asked)
		errtest.Want(t, err, sbxerr.NetChild)
	}
	many := allowing()
	many.Policy.Deny = slices.Repeat([]string{"x.example"}, 4096)
	_, _, err := many.Narrow(asked)
	errtest.Want(t, err, sbxerr.NetPolicy, "4097 rules that deny")
}

// A child has those routes of its parent's that it names, and nothing else of them.
func TestRoutesOfChild(t *testing.T) {
	to := func(host string) policy.Route { return policy.Route{Upstream: "https://" + host} }
	parent := allowing("x.example")
	parent.Policy.Routes = map[string]policy.Route{"a": to("a.example"), "b": to("b.example")}
	for _, tt := range []struct {
		asked  NetworkRequest
		routes []string
		allow  []string
	}{
		{NetworkRequest{Mode: "allow"}, []string{"a", "b"}, []string{"x.example"}},
		{NetworkRequest{Mode: "allow", Routes: []string{"b"}}, []string{"b"}, nil},
		{NetworkRequest{Mode: "allow", Routes: []string{"b"}, Allow: []string{"x.example:443"}}, []string{"b"}, []string{"x.example:443"}},
		{NetworkRequest{Mode: "allow", Allow: []string{"x.example"}}, nil, []string{"x.example"}},
	} {
		_, spec, err := parent.NetworkOf(tt.asked)
		if got := slices.Sorted(maps.Keys(spec.Routes)); err != nil || !slices.Equal(got, tt.routes) || !slices.Equal(spec.Allow, tt.allow) {
			t.Errorf("%+v: routes %q, rules %q, %v", tt.asked, got, spec.Allow, err)
		}
	}
	_, _, err := parent.NetworkOf(NetworkRequest{Mode: "allow", Routes: []string{"a", "c"}})
	errtest.Want(t, err, sbxerr.NetChild, `the parent has no route "c"`)
	_, _, err = parent.NetworkOf(NetworkRequest{Mode: "none", Routes: []string{"a"}})
	errtest.Want(t, err, sbxerr.NetPolicy, `mode "none" has no routes`)
}
