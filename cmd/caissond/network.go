package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/rootfs/imageproc"
	"github.com/caisson-run/caisson/runtime"
	"github.com/caisson-run/caisson/runtime/egress"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/runtime/spend"
	"github.com/caisson-run/caisson/runtime/traffic"
)

// networkRules is the operator's word over all profiles and requests.
func networkRules(c config.Config) (plan.NetworkRules, error) {
	bridge, bridgeErr := bridgeConfig(c)
	proxy, proxyErr := upstreamProxy(c.Network.Proxy)
	choices, choicesErr := c.Network.Choices()
	return plan.NetworkRules{AirGapped: c.AirGapped, Map: c.Network.Map, Bridge: bridge, Upstream: proxy, Resolvers: choices}, errors.Join(bridgeErr, proxyErr, choicesErr)
}

// bridgeConfig is what sandboxes of the mode bridge have of the host.
func bridgeConfig(c config.Config) (netns.BridgeConfig, error) {
	subnet, subnetErr := c.Network.Bridge.Prefix()
	resolvers, resolversErr := c.Network.Bridge.Resolvers()
	if err := errors.Join(subnetErr, resolversErr); err != nil {
		return netns.BridgeConfig{}, err
	}
	b := netns.BridgeConfig{Instance: c.Instance(), Subnet: subnet, Resolvers: resolvers, AirGapped: c.AirGapped}
	return b, b.Validate(c.IDs.Blocks)
}

// checkNetwork refuses a map and profiles by which requests would be refused, and
// resolvers, an upstream proxy and secrets that are none.
func checkNetwork(c config.Config, known map[string]plan.Profile) error {
	_, err := c.Network.Servers()
	rules, rulesErr := networkRules(c)
	err = errors.Join(err, rulesErr, rules.Validate(known), checkSecrets(c))
	row, _ := sbxerr.Describe(sbxerr.DaemonConf)
	return sbxerr.WithRemedy(sbxerr.DaemonConf, "caissond.network", err, row.Remedy) // each has its own in its text
}

// ownUsers are the users of the daemon's processes that have no rights.
var ownUsers = map[uint32]string{egress.DefaultID: "gateway", imageproc.ID: "collector"}

// openNetwork gives the manager what carries the traffic of its sandboxes. It
// starts nothing: the first sandbox with a network does.
func (d *daemon) openNetwork(c config.Config, o *runtime.Options) error {
	for id, whose := range ownUsers {
		if o.IDs.Holds(id) { // a sandbox's user would be the same
			return sbxerr.New(sbxerr.IDRange, "caissond.network", "the range of %d blocks from %d holds %d, which is the %s's user", o.IDs.Blocks, o.IDs.Base, id, whose)
		}
	}
	servers, err := c.Network.Servers()
	rules, rulesErr := networkRules(c)
	if err := errors.Join(err, rulesErr); err != nil {
		return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.network", err)
	}
	rules.OwnRoute = d.ownRoute
	bridge, err := netns.NewBridge(rules.Bridge)
	if err != nil {
		return err
	}
	if u := rules.Upstream; u != nil {
		d.log.Info("what is public is reached through the upstream proxy alone", "proxy", u.String())
	}
	o.Traffic = traffic.New(runtime.TrafficFiles(c.Root, c.State), d.log)
	if o.Spending, err = spend.Open(runtime.SpendingFile(c.Root), o.KeptUsageFor, d.log); err != nil {
		return err
	}
	program := filepath.Join(c.BinDir, "caisson-gateway")
	gateway := egress.New(egress.Options{
		Program: program, Servers: servers, Upstream: rules.Upstream, Log: d.log, Observer: o.Traffic, Accounts: o.Spending,
	})
	d.onStop(func(context.Context) error { o.Spending.Close(); return nil }) // after the gateway told the last
	d.onStop(func(context.Context) error { return gateway.Close() })
	d.gateway = gateway
	kept, err := readKept(c.Root)
	if err != nil {
		return err
	}
	d.kept.Store(&kept)
	d.runKept(context.Background(), d.keptBeside(c))
	if err := gateway.SetSecrets(context.Background(), sourcesOf(c), d.keptSources(c)); err != nil {
		return err
	}
	o.Egress, o.Network, o.Bridge, o.GatewayPath = gateway, rules, bridge, program
	return nil
}
