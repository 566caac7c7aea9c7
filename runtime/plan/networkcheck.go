package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
)

// Validate reports every fault of the map and of the profiles' networks. Each reason
// names its key and a remedy.
func (o NetworkRules) Validate(profiles map[string]Profile) error {
	var errs []error
	o.Map, errs = o.soundMap("network.map", o.Map)
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		n := profiles[name].Network
		var routeErrs []error
		n.Routes, routeErrs = o.soundRoutes("profiles."+name+".routes", n)
		errs = append(errs, o.checkProfile("profiles."+name+".network", n))
		errs = append(errs, routeErrs...)
		errs = append(errs, o.checkOffered("profiles."+name+".routes", n))
		if s := profiles[name].Setup; s != nil {
			errs = append(errs, o.checkSetup("profiles."+name+".setup.network", *s, profiles[cmp.Or(s.Profile, StepProfile)].Network))
		}
	}
	return errors.Join(errs...)
}

// checkSetup checks the network of a set-up, whose sandboxes have a profile with steps.
func (o NetworkRules) checkSetup(key string, s Setup, steps Network) error {
	allow, allowErrs := soundRules(key+".allow", policy.ActAllow, s.Allow)
	deny, denyErrs := soundRules(key+".deny", policy.ActDeny, s.Deny)
	_, _, err := o.NetworkOf(steps, NetworkRequest{Mode: s.Network, Allow: allow, Deny: deny})
	return errors.Join(slices.Concat(allowErrs, denyErrs, []error{atKey(key, err)})...)
}

// checkProfile checks each rule by itself, then all sound rules together. So a fault is
// reported once.
func (o NetworkRules) checkProfile(key string, n Network) error {
	asked := NetworkRequest{}
	var voidErr error
	if n.mode() == string(netns.ModeNone) {
		asked.Mode = string(netns.ModeAllow) // as a request may
		voidErr = n.checkVoid()
	}
	n.Mode = n.mode() // before rules are left out
	var allowErrs, denyErrs, mapErrs []error
	n.Allow, allowErrs = soundRules(key+".allow", policy.ActAllow, n.Allow)
	n.Deny, denyErrs = soundRules(key+".deny", policy.ActDeny, n.Deny)
	n.Map, mapErrs = o.soundMap(key+".map", n.Map)
	_, _, err := o.NetworkOf(n, asked)
	return errors.Join(slices.Concat([]error{atKey(key, voidErr)}, allowErrs, denyErrs, mapErrs, []error{atKey(key, err)})...)
}

// checkVoid refuses rules that allow something in the mode none. Rules that deny or map
// serve requests that name another mode.
func (n Network) checkVoid() error {
	if len(n.Routes) > 0 {
		return sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network",
			fmt.Errorf("the mode %q allows nothing, but the profile has routes", netns.ModeNone), fmt.Sprintf("write mode: %s, or leave the mode away", netns.ModeAllow))
	}
	if len(n.Allow) == 0 {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network",
		fmt.Errorf("the mode %q allows nothing, but %q is allowed", netns.ModeNone, n.Allow), fmt.Sprintf("write mode: %s, or leave allow away", netns.ModeAllow))
}

// soundMap returns the sound entries of a map of names, and the faults of the others.
func (o NetworkRules) soundMap(key string, written map[string]string) (map[string]string, []error) {
	sound, names := map[string]string{}, map[policy.Name]bool{}
	var errs []error
	for _, host := range slices.Sorted(maps.Keys(written)) {
		one := map[string]string{host: written[host]}
		_, err := policy.Compile(policy.Spec{Mode: policy.Allow, Map: one, AirGapped: o.AirGapped})
		if err == nil {
			err = mapOnce(names, host)
		}
		if err != nil {
			errs = append(errs, atKey(key+"."+host, err))
			continue
		}
		maps.Copy(sound, one)
	}
	return sound, errs
}

// soundRoutes returns the sound routes of n, and the faults of the others.
func (o NetworkRules) soundRoutes(key string, n Network) (map[string]policy.Route, []error) {
	var sound map[string]policy.Route
	var errs []error
	mapped, _ := o.soundMap("", n.Map)
	for _, label := range slices.Sorted(maps.Keys(n.Routes)) {
		one := map[string]policy.Route{label: n.Routes[label]}
		if _, err := policy.Compile(o.Over(policy.Spec{Mode: policy.Allow, Routes: one}, mapped)); err != nil {
			errs = append(errs, atKey(key+"."+label, err))
			continue
		}
		if sound == nil {
			sound = map[string]policy.Route{}
		}
		maps.Copy(sound, one)
	}
	return sound, errs
}

// mapOnce adds host to names. It refuses a name that is there in any spelling.
func mapOnce(names map[policy.Name]bool, host string) error {
	name, err := policy.ParseName(host)
	if err == nil && names[name] {
		err = sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network", fmt.Errorf("the name %s is mapped twice", name), "write each name once, in lower case and without a final dot")
	}
	names[name] = true
	return err
}

// soundRules returns the rules that parse, and the faults of the others.
func soundRules(key string, action policy.Action, written []string) (sound []string, errs []error) {
	for i, text := range written {
		if _, err := policy.ParseRule(action, text); err != nil {
			errs = append(errs, atKey(fmt.Sprintf("%s[%d]", key, i), err))
			continue
		}
		sound = append(sound, text)
	}
	return sound, errs
}

// atKey adds the configuration key and the remedy to err.
func atKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w; %s", key, err, sbxerr.RemedyOf(err))
}
