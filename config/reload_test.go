package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func loaded(t *testing.T, text string) Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, true)
	if err == nil {
		err = c.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReload(t *testing.T) {
	const base = `
state: /run/caisson-test
profiles: {a: {memory: 1G}, b: {memory: 1G}}
network: {map: {mirror: 192.0.2.1}}
`
	for name, tt := range map[string]struct {
		next             string
		changed, restart []string
	}{
		"nothing":           {next: base},
		"an empty list":     {next: base + "peers: []\n"},
		"a profile":         {next: "state: /run/caisson-test\nprofiles: {a: {memory: 2G}, c: {}}\nnetwork: {map: {mirror: 192.0.2.1}}\n", changed: []string{"profiles.a", "profiles.b", "profiles.c"}},
		"peers":             {next: base + "peers: [{uids: [1000]}]\nsocket_group: root\n", changed: []string{"socket_group", "peers"}},
		"bounds":            {next: base + "images: {max_ratio: 10}\nregistries: {allowed: [r.example.com]}\n", changed: []string{"images.max_ratio", "registries.allowed"}},
		"what needs more":   {next: "state: /run/caisson-test\nprofiles: {a: {memory: 1G}, b: {memory: 1G}}\nnetwork: {map: {mirror: 192.0.2.2}}\nsandboxes: {max: 3}\n", restart: []string{"sandboxes.max", "network.map.mirror"}},
		"another directory": {next: "state: /run/caisson-other\nprofiles: {a: {memory: 1G}, b: {memory: 1G}}\nnetwork: {map: {mirror: 192.0.2.1}}\n", restart: []string{"state", "socket"}},
	} {
		running, next := loaded(t, base), loaded(t, tt.next)
		c := running.Reload(next)
		if !slices.Equal(c.Changed, tt.changed) || !slices.Equal(c.NeedsRestart, tt.restart) {
			t.Errorf("%s: changed %q, needs a restart %q", name, c.Changed, c.NeedsRestart)
		}
		if again := c.Config.Reload(next); len(again.Changed) > 0 || !slices.Equal(again.NeedsRestart, tt.restart) {
			t.Errorf("%s: again: %+v", name, again)
		}
		if c.Config.State != running.State || c.Config.Sandboxes != running.Sandboxes {
			t.Errorf("%s: took over what needs a restart: %+v", name, c.Config)
		}
	}
}

// A daemon that is stopped leaves sessions to the next one unless it is told otherwise.
func TestKeepOnExitByDefault(t *testing.T) {
	if c := loaded(t, "{}"); !c.Sandboxes.KeepOnExit {
		t.Error("sandboxes end with the daemon by default")
	}
	if c := loaded(t, "sandboxes: {keep_on_exit: false}"); c.Sandboxes.KeepOnExit {
		t.Error("keep_on_exit cannot be turned off")
	}
}
