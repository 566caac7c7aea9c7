package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const unisolatedFile = `profiles:
  host: {isolation: none, timeout: 1m, memory: 1G, env: [A=b], alerts: {memory: {above: 90%}}}
unisolated: {profiles: [host], user: builder}
`

func TestUnisolated(t *testing.T) {
	c, err := load(t, unisolatedFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Error(err)
	}
	running := Default()
	if err := running.Complete(); err != nil {
		t.Fatal(err)
	}
	change := running.Reload(c)
	if len(change.NeedsRestart) > 0 || !strings.Contains(strings.Join(change.Changed, " "), "unisolated.profiles unisolated.user") {
		t.Errorf("a reload takes %q, and not %q", change.Changed, change.NeedsRestart)
	}
}

// TestUnisolatedRefuses: neither half of the word of an operator has an effect alone, and no
// key is taken that would not be enforced.
func TestUnisolatedRefuses(t *testing.T) {
	for change, want := range map[string]string{
		"unisolated: {profiles: [host], user: builder}=": `profiles.host.isolation: none needs the profile's name in unisolated.profiles`,
		"isolation: none=isolation: sandbox":             `unisolated.profiles: "host" is no profile with isolation: none`,
		"isolation: none=isolation: non":                 `profiles.host.isolation: "non" is none of ["sandbox" "none"]`,
		"profiles: [host]=profiles: [host, other]":       `"other" is no profile with isolation: none`,
		", timeout: 1m=":                                 "profiles.host.timeout: isolation none needs one",
		"timeout: 1m=timeout: -1m":                       "profiles.host.timeout: -1m0s is negative",
		", user: builder=":                               "unisolated.user: name the user",
		"user: builder=user: root":                       "unisolated.user: root is not possible",
		"user: builder=user: 0":                          "unisolated.user: root is not possible",
		"user: builder=user: 65534":                      "unisolated.user",
		"user: builder=user: a b":                        "neither a name nor a number",
		"profiles: [host], =":                            "unisolated.user: no profile is named",
		"memory: 1G=image: base":                         "profiles.host.image: it cannot be enforced",
		"memory: 1G=user: \"7\"":                         "profiles.host.user: it cannot be enforced",
		"memory: 1G=tmpfs: 1M":                           "profiles.host.tmpfs: it cannot be enforced",
		"memory: 1G=nested: {enter: true}":               "profiles.host.nested: it cannot be enforced",
		"memory: 1G=network: {mode: none}":               "profiles.host.network: it cannot be enforced",
		"memory: 1G=setup: {run: [a]}":                   "profiles.host.setup: it cannot be enforced",
		"memory: 1G=mounts: [{type: tmpfs, target: /x}]": "profiles.host.mounts: it cannot be enforced",
		"memory: {above: 90%}=refusals: 5":               "profiles.host.alerts.refusals: it cannot be enforced",
		"profiles:\n  host: =profiles:\n  strict: ":      "profiles.strict.isolation: a built-in profile keeps its isolation",
		"unisolated: {profiles: [host]=air_gapped: true\nunisolated: {profiles: [host]":                  "which air_gapped demands",
		"unisolated: {profiles: [host]=pools: [{profile: host, size: 1}]\nunisolated: {profiles: [host]": "no sandbox without isolation is made ahead",
	} {
		from, to, _ := strings.Cut(change, "=")
		if !strings.Contains(unisolatedFile, from) {
			t.Fatalf("%q is not there", from)
		}
		c, err := load(t, strings.Replace(unisolatedFile, from, to, 1))
		if err == nil {
			err = c.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", change, err, want)
		}
	}
}

// TestUnisolatedKeysAreDecided: of each key that profiles will have it must be said whether it
// holds without isolation. One that does not is refused.
func TestUnisolatedKeysAreDecided(t *testing.T) {
	const holds, refused = "Seccomp Env Memory CPUs CPUShares PIDs Files Alerts Timeout IdleTimeout OnIdle Isolation", "Image User Tmpfs ShmSize IORead IOWrite Disk Inodes Caches MergeCaches Rootfs RootUser Network Routes Mounts Nested Setup"
	of := reflect.TypeFor[Profile]()
	for i := range of.NumField() {
		if name := of.Field(i).Name; !slices.Contains(strings.Fields(holds+" "+refused), name) {
			t.Errorf("%s: refuse it in validateIsolation, or name it here if it holds", name)
		}
	}
}
