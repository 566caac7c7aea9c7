package config

import (
	"strings"
	"testing"
)

// What no set-up could do is refused by its key.
func TestSetupRefused(t *testing.T) {
	for text, want := range map[string]string{
		"run: ['']":                                   "profiles.web.setup.run[0]: is empty",
		"run: [a, ' ']":                               "profiles.web.setup.run[1]: is empty",
		"copy: [{from: a, to: /a}]":                   `profiles.web.setup.copy[0].from: "a" is no absolute path of the host`,
		"copy: [{from: /etc/passwd, to: a}]":          `profiles.web.setup.copy[0].to: "a" is no absolute path inside`,
		"copy: [{from: /etc/passwd, to: /a/../b}]":    `profiles.web.setup.copy[0].to: "/a/../b" holds ..: give the path that it leads to`,
		"copy: [{from: '/etc/*', to: /a/}]":           `profiles.web.setup.copy[0].from: "/etc/*" holds one of`,
		"copy: [{from: /etc/none/there, to: /a}]":     `profiles.web.setup.copy[0].from: there is no "/etc/none/there" on the host`,
		"network: {mode: open}":                       "profiles.web.setup: has neither run nor copy",
		"run: [a], profile: none":                     `profiles.web.setup.profile: there is no profile "none"`,
		"run: [a], profile: bare":                     `profiles.web.setup.profile: "bare" has isolation none`,
		"run: [a], network: {mode: none, allow: [x]}": "",
	} {
		c, err := load(t, "unisolated: {profiles: [bare], user: builder}\nprofiles:\n  bare: {isolation: none, timeout: 1m}\n  web: {setup: {"+text+"}}\n")
		if err == nil {
			err = c.Complete()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
