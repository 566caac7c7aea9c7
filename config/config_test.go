package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file, true)
}

func TestLoad(t *testing.T) {
	c, err := load(t, "root: /data/caisson\nidle_timeout: 5m\nprofiles:\n  big:\n    memory: 4G\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if time.Duration(c.IdleTimeout) != 5*time.Minute || c.Profiles["big"].Memory != "4G" || c.State != DefaultState {
		t.Errorf("loaded %+v", c)
	}
	if c.Socket != "/run/caisson/caisson.sock" || !strings.HasPrefix(c.Cgroup.Parent, "caisson-") {
		t.Errorf("completed to socket %q, cgroup %q", c.Socket, c.Cgroup.Parent)
	}
}

func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"peers: [": "line 1: no YAML",
		"warm: 1\npeers:\n  - uids: [7\nwarm: 3\n":        "line 3: no YAML: did not find expected ',' or ']'",
		"warm: 1\nids: {blocks: 3\nwarm: 3\n":             "line 2: no YAML: did not find expected ',' or '}'",
		"warm: 1\nids:\n  blocks: 3\n c: 4\n":             "line 4: no YAML: did not find expected key",
		"warm: 1\n- a\n":                                  "line 2: no YAML: did not find expected key",
		"warm: 1\nids:\n\tblocks: 3\n":                    "line 3: no YAML: found character that cannot start any token",
		"@a: 1\n":                                         "line 1: no YAML: found character that cannot start any token",
		"warm: 1\nlog: level: info\n":                     "line 2: no YAML: mapping values are not allowed in this context",
		"rooot: /x":                                       `did you mean "root"?`,
		"containerd: {adress: /x}":                        `did you mean "address"?`,
		"profiles: {a: {memroy: 1G}}":                     `did you mean "memory"?`,
		"network: {upstream_proxy: {excpt: [a.example]}}": `did you mean "except"?`,
		"containerd: {root: /x}":                          `unknown key "root"`,
		"idle_timeout: soon":                              `idle_timeout: line 1: "soon" is not a duration such as 30s`,
		"stop_grace: [1]":                                 "line 1: stop_grace: is a list, must be one value",
		"profiles:\n  a:\n    env: {A: b}":                "line 3: profiles.a.env: is keys and values, must be a list, such as [A, B] (Variables, NAME=VALUE each)",
		"profiles: {a: {env: [[A]]}}":                     "profiles.a.env[0]: is a list, must be one value",
		"x: &x {A: b}\nprofiles: {a: {env: *x}}":          `unknown key "x"`,
		"profiles: {a: &x {pids: x}, b: *x}":              `line 1: profiles.b.pids: is "x", must be a whole number`,
		"profiles: [a]":                                   "profiles: is a list, must be names and their values",
		"sandboxes: 4":                                    `sandboxes: is "4", must be keys and their values`,
		"pools: {size: 3}":                                "pools: is keys and values, must be a list, such as [{KEY: VALUE}]",
		"peers: [{}, {uids: 5}]":                          `peers[1].uids: is "5", must be a list`,
		"air_gapped: maybe":                               `air_gapped: is "maybe", must be true or false`,
		"plain":                                           `the file: is "plain", must be keys and their values`,
		"ids: {blocks: -1}":                               `line 1: ids.blocks: is "-1", must be a whole number, not below 0`,
		"root: /a\n---\nroot: /b":                         "more than one document",
		"root: [":                                         "line",
		"zzzzzzzzz: 1":                                    `unknown key "zzzzzzzzz"`,
		"workspaces: {allowed_roots: 1":                   "line",
	} {
		_, err := load(t, text)
		if !errors.Is(err, sbxerr.DaemonConf) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Load("/absent/config.yaml", true); !errors.Is(err, sbxerr.DaemonConf) || sbxerr.RemedyOf(err) != remedyFile {
		t.Errorf("an absent file: %v, remedy %q", err, sbxerr.RemedyOf(err))
	}
	if _, err := Load("/absent/config.yaml", false); err != nil {
		t.Errorf("an absent default file: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"root: \"relative\"":                func(c *Config) { c.Root = "relative" },
		"state: \"/\"":                      func(c *Config) { c.State = "/" },
		"longer than 107":                   func(c *Config) { c.Socket = "/" + strings.Repeat("s", 107) },
		"two directories":                   func(c *Config) { c.State = c.Root },
		"ids.blocks: 0":                     func(c *Config) { c.IDs.Blocks = 0 },
		"overlaps the host's own":           func(c *Config) { c.IDs.Base = 1000 },
		"past 2147483647":                   func(c *Config) { c.IDs.Base = 2147483648 - 65536; c.IDs.Blocks = 2 },
		"log.level: \"loud\"":               func(c *Config) { c.Log.Level = "loud" },
		"\"A B\" is no name":                func(c *Config) { c.Profiles = map[string]Profile{"A B": {}} },
		"\"=x\" is not NAME=VALUE":          func(c *Config) { c.Profiles = map[string]Profile{"a": {Env: []string{"=x"}}} },
		"pids and open_files must be above": func(c *Config) { c.Profiles = map[string]Profile{"a": {PIDs: -1}} },
		"images.max_bytes":                  func(c *Config) { c.Images.MaxBytes = 0 },
		"images.max_ratio: 0":               func(c *Config) { c.Images.MaxRatio = 0 },
		"images.prune.min_free: \"100%\"":   func(c *Config) { c.Images.Prune.MinFree = "100%" },
		"images.prune.unused_for":           func(c *Config) { c.Images.Prune.UnusedFor = -1 },
		"images.max_ratio: 1048577":         func(c *Config) { c.Images.MaxRatio = 1048577 },
		"must not be negative":              func(c *Config) { c.StopGrace = -1 },
		"containerd.address":                func(c *Config) { c.Containerd.Address = "x" },
		"cgroup.parent":                     func(c *Config) { c.Cgroup.Parent = "/x" },
		"bin_dir":                           func(c *Config) { c.BinDir = "x" },
		"upstream_proxy.url: is empty":      func(c *Config) { c.Network.Proxy.Except = []string{"a.example"} },
		"is no reference to a file":         func(c *Config) { c.Network.Proxy = UpstreamProxy{URL: "http://p:1", Credentials: "agent:s3cret"} },
		"credentials: \"secret\"":           func(c *Config) { c.Network.Proxy = UpstreamProxy{URL: "http://p:1", Credentials: "file:secret"} },
		`"https://docker.io" is no HOST or HOST:PORT: without https:// and without a path it is "docker.io"`: func(c *Config) { c.Registries.Allowed = []string{"https://docker.io"} },
		`"docker.io:70000" has no port from 1 to 65535`:                                                      func(c *Config) { c.Registries.Allowed = []string{"docker.io:70000"} },
		"give one of the two": func(c *Config) {
			c.Network.Proxy.URL, c.Network.Bridge.Subnet = "http://p:1", "10.87.0.0/16"
		},
		"workspaces.allowed_roots":             func(c *Config) { c.Workspaces.AllowedRoots = []string{"x"} },
		"workspaces.control_files: \"/etc/x\"": func(c *Config) { c.Workspaces.ControlFiles = []string{"/etc/x"} },
		"workspaces.control_files: \"a/[\"":    func(c *Config) { c.Workspaces.ControlFiles = []string{"a/["} },
		"workspaces.kept: -1":                  func(c *Config) { c.Workspaces.Kept = -1 },
		"workspaces.kept_bytes":                func(c *Config) { c.Workspaces.KeptBytes = -1 },
		"workspaces.kept_for: 0s":              func(c *Config) { c.Workspaces.KeptFor = 0 },
		"snapshots.kept: -1":                   func(c *Config) { c.Snapshots.Kept = -1 },
		"snapshots.kept_bytes: -1":             func(c *Config) { c.Snapshots.KeptBytes = -1 },
		"snapshots.kept_for: 1s":               func(c *Config) { c.Snapshots.KeptFor = Duration(time.Second) },
	} {
		c := Default()
		change(&c)
		if err := c.Complete(); !errors.Is(err, sbxerr.DaemonConf) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if strings.Contains(fmt.Sprint(c.Validate()), "s3cret") {
			t.Errorf("it shows a secret: %v", c.Validate())
		}
	}
	c := Default()
	c.Sandboxes.Max, c.Pools = -2, []Pool{{Size: 2}}
	if err := c.Complete(); err == nil || strings.Contains(err.Error(), "pools") {
		t.Errorf("pools of a refused maximum: %v", err)
	}
	c = Default()
	if err := c.Complete(); err != nil || c.Instance() != "caisson" {
		t.Errorf("the defaults: %v, instance %q", err, c.Instance())
	}
	c.IDs, c.Sandboxes.Max = IDs{Base: 2147483648 - 65536, Blocks: 1}, 1
	if err := c.Validate(); err != nil {
		t.Errorf("the last possible block: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	c := Default()
	c.Environment(func(name string) (string, bool) {
		return map[string]string{"CAISSON_ROOT": "/r", "CAISSON_SOCKET": ""}[name], true
	})
	if c.Root != "/r" || c.State != DefaultState {
		t.Errorf("got root %q, state %q", c.Root, c.State)
	}
}

func TestSchema(t *testing.T) {
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties           map[string]any
		AdditionalProperties bool
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Properties) != 33 || s.AdditionalProperties {
		t.Errorf("the schema has %d properties, additional ones allowed: %v", len(s.Properties), s.AdditionalProperties)
	}
}
