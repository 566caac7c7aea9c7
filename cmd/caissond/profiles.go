package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/api/units"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/plan"
)

// profiles adds the operator's profiles to the built-in ones. A built-in name
// may be given new values. What is wrong is told with the key's name.
func profiles(c config.Config) (map[string]plan.Profile, error) {
	all := plan.BuiltinProfiles()
	user, err := hostUser(c.Unisolated)
	errs := []error{err}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		made, err := profile(c.Profiles[name], c.Prices)
		if err != nil {
			errs = append(errs, fmt.Errorf("profiles.%s: %w", name, err))
		}
		if slices.Contains(c.Unisolated.Profiles, name) {
			made.Unisolated = user
		}
		all[name] = made
	}
	return all, sbxerr.Wrap(sbxerr.DaemonConf, "caissond.profiles", errors.Join(errs...))
}

// profile fills in what p leaves out from the strict profile.
func profile(p config.Profile, prices map[string]config.Price) (plan.Profile, error) {
	out := plan.BuiltinProfiles()[plan.DefaultProfile]
	for to, from := range map[*string]string{&out.Image: p.Image, &out.Seccomp: p.Seccomp, &out.User: p.User} {
		if from != "" {
			*to = from
		}
	}
	env, clients, envErr := environment(p)
	out.Env = env
	n := p.Network
	routes, routesErr := routesOf(p.Routes, prices)
	out.Network = plan.Network{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny, Map: n.Map, AllowECH: n.AllowECH, Clients: clients}
	for label, r := range routes {
		to := &out.Network.Routes
		if p.Routes[label].OnRequest {
			to = &out.Network.Offered
		}
		if *to == nil {
			*to = map[string]policy.Route{}
		}
		(*to)[label] = r
	}
	err := p.Override((*settings.Limits)(&out.Limits))
	alerts, alertsErr := alertsOf(p.Alerts)
	out.Alerts, out.NestedEnter = alerts, p.Nested.Enter
	if p.Nested.Depth != 0 {
		out.NestedDepth = p.Nested.Depth
	}
	out.Setup = setupOf(p.Setup)
	out.Rootfs, out.RootUser = p.Rootfs, p.RootUser
	out.Caches, out.MergeCaches = p.Caches, p.MergeCaches
	mounts, mountsErr := mountsOf(p.Mounts)
	out.Mounts, out.Timeout = mounts, time.Duration(p.Timeout)
	out.IdleTimeout, out.OnIdle = time.Duration(p.IdleTimeout), p.OnIdle
	return out, errors.Join(err, envErr, alertsErr, mountsErr, routesErr, out.Validate())
}

// setupOf is s, nil where it does nothing.
func setupOf(s config.Setup) *plan.Setup {
	if s.Empty() {
		return nil
	}
	out := plan.Setup{Profile: s.Profile, Run: s.Run, Network: s.Network.Mode, Allow: s.Network.Allow, Deny: s.Network.Deny}
	for _, c := range s.Copy {
		out.Copy = append(out.Copy, plan.SetupCopy{From: c.From, To: c.To})
	}
	return &out
}

func mountsOf(list []config.Mount) (out []plan.MountRequest, err error) {
	for i, m := range list {
		r := plan.MountRequest{Type: m.Type, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
		if m.Size != "" {
			r.SizeBytes = new(int64)
		}
		err = errors.Join(err, parse(fmt.Sprintf("mounts[%d].size", i), m.Size, units.ParseSize, r.SizeBytes))
		out = append(out, r)
	}
	return out, err
}

// checkProfileMounts refuses mounts that no request could have.
func checkProfileMounts(c config.Config, known map[string]plan.Profile) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		if err := known[name].CheckMounts(workspaces(c)); err != nil {
			errs = append(errs, fmt.Errorf("profiles.%s.mounts: %w", name, err))
		}
	}
	return sbxerr.Wrap(sbxerr.DaemonConf, "caissond.profiles", errors.Join(errs...))
}

// workspaces are the directories of the host that requests may name. A request's path is
// compared without links, so what /home and its like lead to counts as well.
func workspaces(c config.Config) mount.Allowed {
	a := mount.Allowed{Roots: c.Workspaces.AllowedRoots, Private: []string{c.Root, c.State, c.BinDir}}
	for _, root := range mount.WorkRoots {
		if dir, err := filepath.EvalSymlinks(root); err == nil && dir != root {
			a.Linked = append(a.Linked, dir)
		}
	}
	return a
}

func alertsOf(a config.Alerts) (plan.Alerts, error) {
	memory, memoryErr := threshold("memory", a.Memory)
	cpu, cpuErr := threshold("cpu", a.CPU)
	pids, pidsErr := threshold("pids", a.PIDs)
	tmpfs, tmpfsErr := threshold("tmpfs", a.Tmpfs)
	return plan.Alerts{Memory: memory, CPU: cpu, PIDs: pids, Tmpfs: tmpfs, Refusals: a.Refusals}, errors.Join(memoryErr, cpuErr, pidsErr, tmpfsErr)
}

// threshold reads a percentage. One that is never passed is refused.
func threshold(key string, t config.Threshold) (plan.Threshold, error) {
	if t == (config.Threshold{}) {
		return plan.Threshold{}, nil
	}
	number, _ := strings.CutSuffix(t.Above, "%")
	percent, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || percent < 1 || percent > 99:
		return plan.Threshold{}, fmt.Errorf("alerts.%s.above: %q is no share of the limit: give 1%% to 99%%", key, t.Above)
	case t.For < 0:
		return plan.Threshold{}, fmt.Errorf("alerts.%s.for: %s is negative", key, time.Duration(t.For))
	}
	return plan.Threshold{Percent: percent, For: time.Duration(t.For)}, nil
}

func parse(key, text string, with func(string) (int64, error), to *int64) error {
	if text == "" {
		return nil
	}
	n, err := with(text)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*to = n
	return nil
}
