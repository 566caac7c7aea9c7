package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/sbxerr"
)

// Validate refuses a map and profiles by which requests would be refused, whether
// or not one asks for a network. Each reason has its key and what to write instead.
func (o NetworkRules) Validate(profiles map[string]Profile) error {
	var errs []error
	o.Map, errs = o.soundMap("network.map", o.Map)
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		errs = append(errs, o.checkProfile("profiles."+name+".network", profiles[name].Network))
	}
	return errors.Join(errs...)
}

// checkProfile looks at each rule by itself, and at what is sound together: what
// is wrong with one is told once.
func (o NetworkRules) checkProfile(key string, n Network) error {
	asked := networkRequest{}
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
	_, _, err := o.networkOf(n, asked)
	return errors.Join(slices.Concat([]error{atKey(key, voidErr)}, allowErrs, denyErrs, mapErrs, []error{atKey(key, err)})...)
}

// checkVoid refuses what n allows in a mode in which nothing is. What it denies
// and maps is for requests that name another mode.
func (n Network) checkVoid() error {
	if len(n.Allow) == 0 {
		return nil
	}
	return sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network",
		fmt.Errorf("the mode %q allows nothing, but %q is allowed", netns.ModeNone, n.Allow), fmt.Sprintf("write mode: %s, or leave allow away", netns.ModeAllow))
}

// soundMap is what holds of a map of names, and what is wrong with the rest.
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

// mapOnce adds host to names, and refuses one that is there in whatever spelling.
func mapOnce(names map[policy.Name]bool, host string) error {
	name, err := policy.ParseName(host)
	if err == nil && names[name] {
		err = sbxerr.WithRemedy(sbxerr.NetPolicy, "runtime.network", fmt.Errorf("the name %s is mapped twice", name), "write each name once, in lower case and without a final dot")
	}
	names[name] = true
	return err
}

// soundRules is those that can be read, and what is wrong with the others.
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

// atKey puts err under the key of the configuration that it is about.
func atKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w; %s", key, err, sbxerr.RemedyOf(err))
}
