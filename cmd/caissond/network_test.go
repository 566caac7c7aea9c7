package main

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/tests/need"
)

// A sandbox's user must be none of the daemon's own.
func TestOpenNetworkRefusesOwnUsers(t *testing.T) {
	for id, whose := range map[uint32]string{egress.DefaultID: "gateway", imageproc.ID: "collector"} {
		o := runtime.Options{IDs: idblock.Range{Base: id - idblock.Size + 1, Blocks: 1}} // it is the last
		if id == egress.DefaultID {
			o.IDs.Base = id // and the collector's is not in it
		}
		if err := new(daemon).openNetwork(config.Default(), &o); sbxerr.Of(err) != sbxerr.IDRange || !strings.Contains(err.Error(), whose) || o.Egress != nil {
			t.Errorf("%s: %v, want %s", whose, err, sbxerr.IDRange)
		}
	}
}

func TestCheckNetworkRefuses(t *testing.T) {
	known := plan.BuiltinProfiles()
	if err := checkNetwork(config.Default(), known); err != nil {
		t.Fatal(err)
	}
	known["web"] = plan.Profile{Network: plan.Network{Mode: "allow", Allow: []string{"*.com"}}}
	if err := checkNetwork(config.Default(), known); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "profiles.web.network") {
		t.Errorf("a profile over a public suffix: %v", err)
	}
	c := config.Default()
	c.Network.DNS = []string{"192.0.2.53", "resolver.example"}
	if err := checkNetwork(c, plan.BuiltinProfiles()); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "network.dns[1]") {
		t.Errorf("a resolver that is no address: %v", err)
	}
}

// TestNetworkRefusedAtStart: what no request could run with is refused before any, whether
// or not a profile has a network, with the key, the reason and an example.
func TestNetworkRefusedAtStart(t *testing.T) {
	noEnvironment(t)
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"network: {map: {a.example: notaddr}}", []string{`network.map.a.example: `, `"notaddr": is not ADDRESS or ADDRESS:PORT`, "write for example pypi.org: 10.1.2.3"}},
		{`network: {map: {a.example: "10.0.0.1:70000"}}`, []string{"network.map.a.example: ", "10.0.0.1:70000", `port "70000" is not a number from 1 to 65535`, "write for example pypi.org: 10.1.2.3"}},
		{"network: {map: {a.example: 10.0.0.1, A.example: 10.0.0.2}}", []string{"network.map.a.example: ", "the name a.example is mapped twice"}},
		{"network: {map: {A.example: 10.0.0.1}}\nprofiles: {p: {network: {map: {a.example: 10.0.0.2}}}}", []string{"profiles.p.network: ", "mapped twice"}},
		{`profiles: {p: {network: {map: {a.example: "10.0.0.256"}}}}`, []string{"profiles.p.network.map.a.example: ", `"10.0.0.256"`, "write for example"}},
		{"air_gapped: true\nnetwork: {map: {a.example: 93.184.215.14}}", []string{"network.map.a.example: ", "which is public", "map the name to an internal address"}},
		{"air_gapped: true\nprofiles: {p: {network: {allow: [web.example]}}}", []string{"profiles.p.network: ", "it is about no mapped name", "map the name"}},
		{"air_gapped: true\nprofiles: {p: {network: {map: {a.example: 8.8.8.8}}}}", []string{"profiles.p.network.map.a.example: ", "which is public"}},
		{"profiles: {p: {network: {mode: none, allow: [web.example]}}}", []string{"profiles.p.network: ", `the mode "none" allows nothing`, "write mode: allow"}},
		{`profiles: {p: {network: {mode: none, deny: [":::"]}}}`, []string{"profiles.p.network.deny[0]: ", "write for example github.com"}},
		{`profiles: {p: {network: {allow: [a.example, "*.com"], deny: [":::"]}}}`, []string{"profiles.p.network.allow[1]: ", "public suffix", "profiles.p.network.deny[0]: ", "write for example github.com"}},
		{"profiles: {p: {network: {mode: bridge}}}", []string{"profiles.p.network: ", "not offered"}},
		{`network: {dns: ["1.1.1.1:0"]}`, []string{`network.dns[0]: "1.1.1.1:0" is no ADDRESS or ADDRESS:PORT`, "192.0.2.53:53"}},
		{ // all of it at once
			"log: {level: loud}\nnetwork: {dns: [x], map: {a.example: notaddr, b.example: 10.0.0.1}}\nprofiles: {p: {memory: 1X, network: {allow: [\"*.com\"]}}, q: {network: {mode: host}}}",
			[]string{"log.level", "network.dns[0]", "network.map.a.example", "profiles.p: memory", "profiles.p.network.allow[0]", "profiles.q.network: "},
		},
	} {
		_, err := configured(t, "--config", writeConfig(t, tt.text))
		if sbxerr.Of(err) != sbxerr.DaemonConf {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if remedy := sbxerr.RemedyOf(err); strings.Contains(remedy, "write for example") {
			t.Errorf("%s: the remedy of one, %q, is that of all", tt.text, remedy)
		}
		for _, w := range tt.want {
			if n := strings.Count(err.Error(), w); n == 0 || n > 1 && strings.HasPrefix(w, "network.") {
				t.Errorf("%s: %v has %q %d times", tt.text, err, w, n)
			}
		}
	}
}

// TestCapabilitiesArePlain: why a mode is not offered is for people.
func TestCapabilitiesArePlain(t *testing.T) {
	for _, gapped := range []bool{false, true} {
		c := config.Default()
		c.AirGapped = gapped
		list, err := hostDoctor{config: func() *config.Config { return &c }}.capabilities(t.Context())
		if err != nil {
			need.Missing(t, "cgroups: "+err.Error())
		}
		support := map[string]string{}
		for _, c := range list {
			support[c.Field] = c.Support
			if c.Detail == "" || strings.Contains(c.Detail, "netns.") || strings.Contains(c.Detail, "policy.") {
				t.Errorf("%+v", c)
			}
		}
		if support["network=bridge"] != "unsupported" || (support["network=open"] == "unsupported") != (gapped || support["network=allow"] == "unsupported") {
			t.Errorf("air-gapped %t: %v", gapped, support)
		}
	}
}

func TestNetworkTakenAtStart(t *testing.T) {
	noEnvironment(t)
	for _, text := range []string{
		"network: {map: {com: 10.0.0.1, printer: 10.0.0.2}}", // as requests do: a zone of the site may be called so
		"air_gapped: true\nnetwork: {map: {a.example: 10.0.0.1}}\nprofiles: {p: {network: {allow: [\"a.example:22\"]}}}",
		"profiles: {p: {network: {mode: none, deny: [a.example], map: {b.example: 10.0.0.1}}}}", // for requests that name a mode
		"network: {map: {a.example: 10.0.0.1}}\nprofiles: {p: {network: {map: {a.example: 10.0.0.2}}}}",
	} {
		if _, err := configured(t, "--config", writeConfig(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
