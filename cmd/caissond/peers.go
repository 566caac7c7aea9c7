package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
	"github.com/caisson-run/caisson/server"
)

// peers turns the configured peers into the policy of the daemon.
func peers(c config.Config, known map[string]plan.Profile) (peer.Policy, error) {
	rules, err := peerRules(c, known)
	if err != nil {
		return peer.Policy{}, err
	}
	return peer.NewPolicy(rules)
}

// peerRules looks up the names of the configured peers: a user that is made or
// renamed later needs a reload.
func peerRules(c config.Config, known map[string]plan.Profile) ([]peer.Rule, error) {
	var rules []peer.Rule
	var errs []error
	for i, p := range c.Peers {
		rule, err := peerRule(p, known)
		if err != nil {
			errs = append(errs, fmt.Errorf("peers[%d]: %w", i, err))
		}
		rules = append(rules, rule)
	}
	return rules, sbxerr.Wrap(sbxerr.DaemonConf, "caissond.peers", errors.Join(errs...))
}

func peerRule(p config.Peer, known map[string]plan.Profile) (peer.Rule, error) {
	uids, err := lookUp(p.UIDs, "user", func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	gids, gidErr := lookUp(p.Groups, "group", lookUpGroup)
	limits, quota := settings.Ceilings(), peer.DefaultQuota()
	limitsErr := p.Limits.Override(&limits)
	r := peer.Rule{UIDs: uids, GIDs: gids, Profiles: p.Profiles, Workspaces: p.Workspaces, TTL: peer.DefaultTTL, Network: p.Network, Images: p.Images, Volumes: p.Volumes}
	for to, from := range map[*int64]int64{
		&quota.Sandboxes: p.Quota.Sandboxes, &quota.MemoryBytes: int64(p.Quota.Memory),
		&quota.MilliCPU: int64(p.Quota.CPUs), &quota.Execs: p.Quota.Execs, &quota.ImageBytes: int64(p.Quota.Images),
	} {
		if from != 0 {
			*to = from
		}
	}
	if p.Limits.Tmpfs == 0 {
		limits.TmpfsBytes = limits.MemoryBytes
	}
	if quota.PIDs = p.Quota.PIDs; quota.PIDs == 0 {
		quota.PIDs = defaultPIDs(p, quota.Sandboxes, known)
	}
	if quota.DiskBytes = int64(p.Quota.Disk); quota.DiskBytes == 0 {
		quota.DiskBytes = min(quota.Sandboxes, 1<<20) * min(limits.DiskBytes, 1<<40) // which does not overflow
	}
	if p.Limits.TTL != 0 {
		r.TTL = time.Duration(p.Limits.TTL)
	}
	r.Limits, r.Quota = peer.Limits(limits), quota
	return r, errors.Join(err, gidErr, limitsErr, checkPeerProfiles(r, known))
}

// defaultPIDs is the sum of processes that so many sandboxes have with the profile
// of the peer that gives most.
func defaultPIDs(p config.Peer, sandboxes int64, known map[string]plan.Profile) int64 {
	most := known[plan.DefaultProfile].Limits.PIDs
	for _, name := range p.Profiles {
		most = max(most, known[name].Limits.PIDs)
	}
	return sandboxes * min(most, math.MaxInt32) // neither product overflows
}

// checkPeerProfiles refuses a profile that there is not, or whose own limits
// the peer could never be granted.
func checkPeerProfiles(r peer.Rule, known map[string]plan.Profile) error {
	var errs []error
	for _, name := range append([]string{plan.DefaultProfile}, r.Profiles...) {
		p, ok := known[name]
		if !ok {
			errs = append(errs, unknownProfile(name, known))
			continue
		}
		own := settings.Limits(p.Limits.Peer())
		own.TmpfsBytes = max(own.TmpfsBytes, p.Limits.ShmBytes)
		for _, row := range own.Exceeding(settings.Limits(r.Limits)) {
			errs = append(errs, fmt.Errorf("limits: profile %q has more %s than one sandbox may; raise %s", name, row.Name, row.Key))
		}
		if l := p.Limits; l.MemoryBytes > r.Quota.MemoryBytes || l.MilliCPU > r.Quota.MilliCPU || l.PIDs > r.Quota.PIDs || l.DiskBytes > r.Quota.DiskBytes {
			errs = append(errs, fmt.Errorf("quota: profile %q has more memory, cpus, pids or disk than all sandboxes may; raise these", name))
		}
	}
	return errors.Join(errs...)
}

func unknownProfile(name string, known map[string]plan.Profile) error {
	names := slices.Sorted(maps.Keys(known))
	if near := sbxerr.Nearest(name, names); near != "" {
		return fmt.Errorf("no profile %q, did you mean %q?", name, near)
	}
	return fmt.Errorf("no profile %q; there are %s", name, strings.Join(names, ", "))
}

// checkPools refuses a pool for a profile that there is not.
func checkPools(pools []config.Pool, known map[string]plan.Profile) error {
	var errs []error
	for i, p := range pools {
		if _, ok := known[p.Profile]; !ok && p.Profile != "" { // empty is not completed yet
			errs = append(errs, fmt.Errorf("pools[%d]: %w", i, unknownProfile(p.Profile, known)))
		}
	}
	return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.pools", errors.Join(errs...))
}

// lookUp turns accounts into ids. A number is that id, whether or not an
// account has it.
func lookUp(accounts []config.Account, kind string, by func(string) (string, error)) ([]uint32, error) {
	var ids []uint32
	var errs []error
	for _, a := range accounts {
		text := string(a)
		if _, err := strconv.ParseUint(text, 10, 32); err != nil {
			if text, err = by(text); err != nil {
				errs = append(errs, fmt.Errorf("no %s %q on this host: %w", kind, a, err))
				continue
			}
		}
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", kind, a, err))
			continue
		}
		ids = append(ids, uint32(id))
	}
	return ids, errors.Join(errs...)
}

func lookUpGroup(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

// door is who can reach a socket at all. The policy decides who is let in.
type door struct {
	mode fs.FileMode
	gid  int
}

// rootsDoor is that of a daemon without peers.
var rootsDoor = door{mode: 0o600}

// doorOf opens the socket to those who may be peers: to the socket's group, or
// to everybody, because the kernel says who each of them is.
func doorOf(c config.Config) (door, error) {
	switch {
	case len(c.Peers) == 0:
		return rootsDoor, nil
	case c.SocketGroup == "":
		return door{mode: 0o666}, nil
	}
	ids, err := lookUp([]config.Account{c.SocketGroup}, "group", lookUpGroup)
	if err != nil {
		return rootsDoor, sbxerr.Wrap(sbxerr.DaemonConf, "caissond.peers", fmt.Errorf("socket_group: %w", err))
	}
	return door{mode: 0o660, gid: int(ids[0])}, nil
}

// checkNames refuses a configuration that names a profile, user, group or
// destination that there is not, before anything is made.
func checkNames(c config.Config) error {
	known, err := profiles(c)
	networkErr := checkNetwork(c, known)
	if err != nil { // the rest asks for limits
		return errors.Join(err, networkErr)
	}
	_, peersErr := peerRules(c, known)
	_, doorErr := doorOf(c)
	return errors.Join(peersErr, doorErr, checkPools(c.Pools, known), checkProfileMounts(c, known), networkErr)
}

// checkPeers refuses peers that a name led to and that there may not be.
func checkPeers(c config.Config) error {
	known, err := profiles(c)
	if err != nil {
		return err
	}
	_, err = peers(c, known)
	return err
}

// listen opens the API's socket to root and the peers, who do not find it yet.
func (d *daemon) listen(c config.Config) (*apiSocket, net.Listener, error) {
	known, err := profiles(c)
	if err != nil {
		return nil, nil, err
	}
	policy, err := peers(c, known)
	if err != nil {
		return nil, nil, err
	}
	d.policy.Store(&policy)
	open, err := doorOf(c)
	if err != nil {
		return nil, nil, err
	}
	socket, err := listen(c.Socket, open)
	if err != nil {
		return nil, nil, err
	}
	return socket, server.Identify(socket.UnixListener, d.admit), nil
}

// admit asks the policy in force. Each connection that it refuses is a line of log and an
// event. There is one event a second at most, which counts the others.
func (d *daemon) admit(c peer.Caller) error {
	err := d.policy.Load().Admit(c)
	if err != nil {
		d.log.Info("connection refused", "caller", c.String(), "code", string(sbxerr.Of(err)), "error", err)
		d.refused.Suppress(c)
	}
	return err
}
