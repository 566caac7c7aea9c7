package seccomp

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/api/sbxerr"
)

// refusal is the error of every call that no rule names.
const refusal = unix.EPERM

// arches maps GOARCH to the one architecture that a filter then accepts.
var arches = map[string]specs.Arch{
	"amd64": specs.ArchX86_64,
	"arm64": specs.ArchAARCH64,
}

// Profile is a named set of rules. The zero Profile allows nothing.
type Profile struct {
	Name    string
	Summary string
	Rules   []Rule
}

// Options adapt a profile to a sandbox. The zero Options are the strictest.
type Options struct {
	Network bool   // the sandbox has a network besides its own loopback
	Arch    string // GOARCH of the filter; empty is that of this process
}

func (o Options) arch() string {
	if o.Arch == "" {
		return goruntime.GOARCH
	}
	return o.Arch
}

// admits reports whether r belongs into a filter made with o.
func (o Options) admits(r Rule) bool {
	if r.Arch != "" && r.Arch != o.arch() {
		return false
	}
	return r.When == Always || (r.When == WithNetwork) == o.Network
}

// DefaultProfile is the profile of a sandbox that names none.
const DefaultProfile = "strict"

// profiles are all there are, the default first.
var profiles = []Profile{
	{
		Name:    DefaultProfile,
		Summary: "what development tools need, with arguments checked where a call can do more",
		Rules:   slices.Concat(commonRules, strictRules),
	},
	{
		Name:    "compat",
		Summary: "for images made for other container tools: set-id bits, native AIO, own filters, any prctl; still no tracing, namespaces or odd sockets",
		Rules:   slices.Concat(commonRules, filterRules, compatRules),
	},
	{
		Name:    "debug",
		Summary: "strict, and tracing of the sandbox's own processes",
		Rules:   slices.Concat(commonRules, strictRules, debugRules),
	},
}

// Names lists the profiles, the default first.
func Names() []string {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.Name
	}
	return names
}

// Lookup returns the profile called name. An unknown name is an error
// (sbxerr.SeccompProfile) that lists the known ones; so is the empty name.
func Lookup(name string) (Profile, error) {
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
	}
	hint := ""
	if near := sbxerr.Nearest(name, Names()); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
	}
	return Profile{}, sbxerr.New(sbxerr.SeccompProfile, "seccomp.lookup",
		"look up profile %q among %s%s", name, strings.Join(Names(), ", "), hint)
}

// Active returns the rules that a filter made with o consists of, in order.
func (p Profile) Active(o Options) []Rule {
	var out []Rule
	for _, r := range p.Rules {
		if o.admits(r) {
			out = append(out, r)
		}
	}
	return out
}

// Allows reports whether some rule of p lets the call through.
func (p Profile) Allows(call string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Allow && slices.Contains(r.Syscalls, call) })
}

// check reports every fault of p under o. libseccomp would accept these profiles and give
// them another meaning.
func (p Profile) check(o Options) error {
	var errs []error
	if arches[o.arch()] == "" {
		errs = append(errs, fmt.Errorf("architecture %q is not supported", o.arch()))
	}
	rules := p.Active(o)
	if len(rules) == 0 {
		errs = append(errs, errors.New("profile has no rules: nothing could run"))
	}
	byName := map[string][]Rule{}
	for _, r := range rules {
		errs = append(errs, r.check())
		for _, name := range r.Syscalls {
			for _, other := range byName[name] {
				errs = append(errs, conflict(name, r, other))
			}
			byName[name] = append(byName[name], r)
		}
	}
	return errors.Join(errs...)
}

// conflict refuses two rules for name of which libseccomp would drop one, or whose
// order would decide.
func conflict(name string, a, b Rule) error {
	if len(a.Args) == 0 || len(b.Args) == 0 {
		return fmt.Errorf("system call %q has an unconditional rule and another: libseccomp drops the other", name)
	}
	if a.Allow == b.Allow && a.Errno == b.Errno {
		return nil // either way the same is done
	}
	for _, t := range a.terms() {
		for _, u := range b.terms() {
			if t.meets(u) {
				return fmt.Errorf("system call %q has overlapping rules with different actions", name)
			}
		}
	}
	return nil
}
