package main

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/node/address"
	"github.com/caisson-run/caisson/node/pod"
)

type options struct {
	kubeconfig, bootstrap, certDir string
	socket, node, address          string
	port                           int
	podCIDR                        netip.Prefix
	cert, key, clientCA            string
	files                          string
	offer                          pod.Offer
	memory, maxPods                int64
	workers                        int
	refresh                        time.Duration
	ignorePolicies                 bool
}

// most is how many pods the node takes: not more than it has addresses for. 0 is the daemon's.
func (o options) most() int64 {
	if !o.podCIDR.IsValid() {
		return o.maxPods
	}
	size := address.Size(o.podCIDR)
	if o.maxPods > 0 {
		size = min(size, o.maxPods)
	}
	return size
}

func parse(args []string) (options, error) {
	o := options{}
	host, _ := os.Hostname() // the flag is needed then
	f := flag.NewFlagSet("caisson-node", flag.ContinueOnError)
	f.StringVar(&o.kubeconfig, "kubeconfig", "/etc/caisson-node/kubeconfig", "`file` with the node's identity, system:node:NAME")
	f.StringVar(&o.bootstrap, "bootstrap-kubeconfig", "", "`file` with an identity that may ask for the node's, which is kept in --cert-dir; instead of --kubeconfig")
	f.StringVar(&o.certDir, "cert-dir", "", "`directory` of certificates that the cluster signs and renews; instead of --tls-cert-file")
	f.StringVar(&o.socket, "socket", api.DefaultSocket, "the daemon's `socket`")
	f.StringVar(&o.node, "node-name", strings.ToLower(host), "`name` of the node")
	f.StringVar(&o.address, "address", "", "`address` of this host at which the API server reaches the node")
	f.IntVar(&o.port, "port", 10250, "`port` of the kubelet's API")
	cidr := f.String("pod-cidr", "", "`range` of the pods' addresses, routed to this host; without one pods have none")
	f.StringVar(&o.cert, "tls-cert-file", "/etc/caisson-node/serving.crt", "certificate `file` of the kubelet's API")
	f.StringVar(&o.key, "tls-private-key-file", "/etc/caisson-node/serving.key", "key `file` of it")
	f.StringVar(&o.clientCA, "client-ca-file", "/etc/caisson-node/ca.crt", "CA `file` of its clients, such as the API server")
	f.StringVar(&o.files, "files", "/srv/caisson-node", "`directory` for ConfigMaps and Secrets of pods, below workspaces.allowed_roots")
	f.StringVar(&o.offer.Profile, "profile", "", "caisson's `profile` of pods that name none")
	profiles := f.String("profiles", "", "`profiles` that pods may name by the annotation caisson.run/profile, with commas")
	f.BoolVar(&o.offer.Allow, "allow-egress", false, "pods may name destinations by the annotation caisson.run/allow")
	f.Int64Var(&o.memory, "default-memory", 512<<20, "`bytes` that a container without a word about its memory counts for: the profile's limit")
	f.Int64Var(&o.maxPods, "max-pods", 0, "most `pods`; 0: as many as the daemon and --pod-cidr have room for")
	f.DurationVar(&o.refresh, "refresh-files", time.Minute, "`time` between two looks at ConfigMaps, Secrets and tokens that running pods have as files")
	f.IntVar(&o.workers, "workers", 32, "pods that are worked on at once")
	policies := f.String("network-policies", "enforce", "`enforce` who may connect to pods, as NetworkPolicies say, or ignore them: whoever has a route may")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *policies != "enforce" && *policies != "ignore" {
		return o, errors.New("--network-policies is enforce or ignore")
	}
	o.ignorePolicies = *policies == "ignore"
	if *profiles != "" {
		o.offer.Profiles = strings.Split(*profiles, ",")
	}
	if o.node == "" || o.address == "" || f.NArg() > 0 {
		return o, errors.New("give --node-name and --address, and no arguments")
	}
	if o.refresh < time.Second || o.refresh > 5*time.Minute {
		return o, errors.New("--refresh-files is from 1s to 5m: tokens may live for 10m only")
	}
	if o.bootstrap != "" && o.certDir == "" {
		return o, errors.New("--bootstrap-kubeconfig needs --cert-dir")
	}
	if *cidr != "" {
		var err error
		if o.podCIDR, err = netip.ParsePrefix(*cidr); err != nil {
			return o, fmt.Errorf("--pod-cidr: %w", err)
		}
	}
	return o, nil
}
