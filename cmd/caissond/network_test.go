package main

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/idblock"
	"github.com/caisson-run/caisson/sbxerr"
)

func TestOpenNetworkRefusesTheGatewaysUser(t *testing.T) {
	o := runtime.Options{IDs: idblock.Range{Base: egress.DefaultID - 10, Blocks: 1}}
	if err := new(daemon).openNetwork(config.Default(), &o); sbxerr.Of(err) != sbxerr.IDRange || o.Egress != nil {
		t.Errorf("%v, want %s", err, sbxerr.IDRange)
	}
}

func TestCheckNetworkRefuses(t *testing.T) {
	known := runtime.BuiltinProfiles()
	if err := checkNetwork(config.Default(), known); err != nil {
		t.Fatal(err)
	}
	known["web"] = runtime.Profile{Network: runtime.Network{Mode: "allow", Allow: []string{"*.com"}}}
	if err := checkNetwork(config.Default(), known); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "profiles.web.network") {
		t.Errorf("a profile over a public suffix: %v", err)
	}
	c := config.Default()
	c.Network.DNS = []string{"192.0.2.53", "resolver.example"}
	if err := checkNetwork(c, runtime.BuiltinProfiles()); sbxerr.Of(err) != sbxerr.DaemonConf || !strings.Contains(err.Error(), "network.dns[1]") {
		t.Errorf("a resolver that is no address: %v", err)
	}
}
