package config

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
)

func TestLoadPeers(t *testing.T) {
	c, err := load(t, `
socket_group: agents
peers:
  - uids: [1000, ann]
    groups: [agents]
    profiles: [build]
    workspaces: [/srv/projects]
    limits: {memory: 4G, cpus: "1.5", pids: 512, tmpfs: 128M, open_files: 8192, ttl: 8h}
    quota: {sandboxes: 4, memory: 8589934592, cpus: 4, execs: 64, pids: 2000}
    images: true
  - groups: ["50"]
sandboxes: {max: 100, kept_output: 64M, keep_on_exit: true, orphan_grace: 1h}
pools:
  - {size: 4}
  - {profile: build, image: dev, size: 2, max: 2}
`)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	want := Peer{
		UIDs: []Account{"1000", "ann"}, Groups: []Account{"agents"}, Profiles: []string{"build"}, Workspaces: []string{"/srv/projects"},
		Limits: PeerLimits{Memory: 4 << 30, CPUs: 1500, PIDs: 512, Tmpfs: 128 << 20, Files: 8192, TTL: Duration(8 * time.Hour)},
		Quota:  PeerQuota{Sandboxes: 4, Memory: 8 << 30, CPUs: 4000, Execs: 64, PIDs: 2000}, Images: true,
	}
	if len(c.Peers) != 2 || !reflect.DeepEqual(c.Peers[0], want) || c.Peers[1].Groups[0] != "50" || c.Peers[1].Images || c.SocketGroup != "agents" {
		t.Errorf("peers %+v", c.Peers)
	}
	s := c.Sandboxes
	if s.Max != 100 || s.KeptOutput != 64<<20 || !s.KeepOnExit || time.Duration(s.OrphanGrace) != time.Hour || s.PerShim != 16 || s.Queue != 1024 || s.MaxCreating < 4 {
		t.Errorf("sandboxes %+v", s)
	}
	if pools := []Pool{{"strict", "", 4, 4}, {"build", "dev", 2, 2}}; !slices.Equal(c.Pools, pools) {
		t.Errorf("pools %+v", c.Pools)
	}
	d := Default()
	if err := d.Complete(); err != nil || d.Sandboxes.Max != 512 || d.Sandboxes.KeptOutput != 256<<20 || d.Sandboxes.KeptExecs != 1024 {
		t.Errorf("the defaults: %v, %+v", err, d.Sandboxes)
	}
}

func TestLoadPeersRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"peers: [{uid: [1]}]":                   `did you mean "uids"?`,
		"peers: [{quota: {sandbox: 1}}]":        `did you mean "sandboxes"?`,
		"peers: [{limits: {memroy: 1G}}]":       `did you mean "memory"?`,
		"peers: [{limits: {memory: 0}}]":        "zero is refused",
		"peers: [{quota: {cpus: none}}]":        "line 1",
		"peers: {uids: [1]}":                    "line 1",
		"pools: [{sise: 1}]":                    `did you mean "size"?`,
		"sandboxes: {max_create: 1}":            `did you mean "max_creating"?`,
		"sandboxes: {kept_output: 1X}":          "unit is unknown",
		"sandboxes: {attach_grace: 10}":         "not a duration such as 30s",
		"sandboxes: {keep_on_exit: sometimes}":  "line 1",
		"soket_group: x":                        `did you mean "socket_group"?`,
		"peers: [{uids: [1], images: perhaps}]": "line 1",
	} {
		_, err := load(t, text)
		if !errors.Is(err, sbxerr.DaemonConf) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestValidatePeers(t *testing.T) {
	one := func(change func(*Peer)) func(*Config) {
		return func(c *Config) {
			p := Peer{UIDs: []Account{"1000"}}
			change(&p)
			c.Peers = []Peer{{Groups: []Account{"staff"}}, p}
		}
	}
	for want, change := range map[string]func(*Config){
		"peers[1].uids: the entry is for nobody":              one(func(p *Peer) { p.UIDs = nil }),
		`peers[1].uids: "65534" is what the kernel shows`:     one(func(p *Peer) { p.UIDs = []Account{"65534"} }),
		`peers[1].uids: "4294967295" is no id`:                one(func(p *Peer) { p.UIDs = []Account{"4294967295"} }),
		`peers[1].groups: "a b" is neither`:                   one(func(p *Peer) { p.Groups = []Account{"a b"} }),
		`peers[1].groups: "-1" is neither`:                    one(func(p *Peer) { p.Groups = []Account{"-1"} }),
		`peers[1].uids: "" is neither`:                        one(func(p *Peer) { p.UIDs = []Account{""} }),
		`peers[1].profiles: "A"`:                              one(func(p *Peer) { p.Profiles = []string{"A"} }),
		"peers[1].workspaces: it is empty":                    one(func(p *Peer) { p.Workspaces = []string{} }),
		`peers[1].workspaces: "x" is not a clean absolute`:    one(func(p *Peer) { p.Workspaces = []string{"x"} }),
		`peers[1].workspaces: "/" is not`:                     one(func(p *Peer) { p.Workspaces = []string{"/"} }),
		"peers[1].limits.pids: it must be above 0":            one(func(p *Peer) { p.Limits.PIDs = -1 }),
		"peers[1].limits.ttl: it must be above 0":             one(func(p *Peer) { p.Limits.TTL = -1 }),
		"peers[1].quota.pids: it must be above 0":             one(func(p *Peer) { p.Quota.PIDs = -1 }),
		"peers[1].limits.open_files: 4095 is below 4096":      one(func(p *Peer) { p.Limits.Files = 4095 }),
		"peers[1].quota.execs: it must be above 0":            one(func(p *Peer) { p.Quota.Execs = -1 }),
		`socket_group: nobody but root may call`:              func(c *Config) { c.SocketGroup = "x" },
		`socket_group: "x y" is neither`:                      func(c *Config) { c.SocketGroup = "x y" },
		`peers[0].uids: "200000" lies in the ids`:             func(c *Config) { c.IDs.Base = 131072; c.Peers = []Peer{{UIDs: []Account{"200000"}}} },
		"sandboxes.max: 513 is not in 1 to 512":               func(c *Config) { c.Sandboxes.Max = 513 },
		"sandboxes.max: -1":                                   func(c *Config) { c.Sandboxes.Max = -1 },
		"sandboxes.max_creating: 1025":                        func(c *Config) { c.Sandboxes.MaxCreating = 1025 },
		"sandboxes.max_running: -1 is not in 0 to":            func(c *Config) { c.Sandboxes.MaxRunning = -1 },
		"sandboxes.queue: -1":                                 func(c *Config) { c.Sandboxes.Queue = -1 },
		"timeouts.create: 999ms is not in 1s to 1h":           func(c *Config) { c.Timeouts.Create = Duration(999 * time.Millisecond) },
		"timeouts.start: 0s":                                  func(c *Config) { c.Timeouts.Start = 0 },
		"timeouts.remove: 2h0m0s":                             func(c *Config) { c.Timeouts.Remove = Duration(2 * time.Hour) },
		"containerd.call_timeout: 0s":                         func(c *Config) { c.Containerd.CallTimeout = 0 },
		"containerd.backoff: 0s is not in 1ms to 1m":          func(c *Config) { c.Containerd.Backoff = 0 },
		"containerd.attempts: 0 is not in 1 to 20":            func(c *Config) { c.Containerd.Attempts = 0 },
		"sandboxes.per_shim: 0":                               func(c *Config) { c.Sandboxes.PerShim = 0 },
		"sandboxes.kept_execs: 0":                             func(c *Config) { c.Sandboxes.KeptExecs = 0 },
		"sandboxes.kept_output: 1 ":                           func(c *Config) { c.Sandboxes.KeptOutput = 1 },
		"sandboxes.attach_grace: -1ns":                        func(c *Config) { c.Sandboxes.AttachGrace = -1 },
		"sandboxes.orphan_grace: 0s":                          func(c *Config) { c.Sandboxes.OrphanGrace = 0 },
		`pools[0].profile: "A"`:                               func(c *Config) { c.Pools = []Pool{{Profile: "A", Size: 1}} },
		"pools[0]: size 0 and max 0":                          func(c *Config) { c.Pools = []Pool{{}} },
		"pools[0]: size 2 and max 1":                          func(c *Config) { c.Pools = []Pool{{Size: 2, Max: 1}} },
		"max 513 must be 1 to 461":                            func(c *Config) { c.Pools = []Pool{{Size: 1, Max: 513}} },
		`pools[1]: pools[0] is for the same profile "strict"`: func(c *Config) { c.Pools = []Pool{{Size: 1}, {Profile: "strict", Size: 2}} },
		"pools: their sizes are 470 together, above 461 (sandboxes.max, 512, without the 51 for root)": func(c *Config) { c.Pools = []Pool{{Size: 230}, {Image: "x", Size: 240}} },
	} {
		c := Default()
		change(&c)
		if err := c.Complete(); !errors.Is(err, sbxerr.DaemonConf) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// keyPaths lists every key of t that holds a value, as the documentation
// writes it: peers.limits.memory, profiles.NAME.image.
func keyPaths(t reflect.Type, prefix string) []string {
	var paths []string
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		path, of := prefix+key, f.Type
		if of.Kind() == reflect.Map {
			path, of = path+".NAME", of.Elem()
		}
		if of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			paths = append(paths, keyPaths(of, path+".")...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

var documented = regexp.MustCompile("(?m)^\\| `([^|]+)` \\|")

// TestDocumented: the tables of docs/reference/configuration.md have each key of the
// schema once, and no other.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
		there = append(there, strings.Split(m[1], "`, `")...)
	}
	keys := keyPaths(reflect.TypeFor[Config](), "")
	if len(keys) < 50 {
		t.Fatalf("only %d keys found: %q", len(keys), keys)
	}
	for _, k := range keys {
		if n := len(there) - len(slices.DeleteFunc(slices.Clone(there), func(s string) bool { return s == k })); n != 1 {
			t.Errorf("%q is documented %d times", k, n)
		}
	}
	for _, k := range there {
		if !slices.Contains(keys, k) {
			t.Errorf("%q is documented, and no key", k)
		}
	}
}

// TestDocumentedExample: the page's example is a configuration.
func TestDocumentedExample(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no example")
	}
	for i, b := range blocks {
		c, err := load(t, b[1])
		if err == nil {
			err = c.Complete()
		}
		if err != nil {
			t.Errorf("example %d: %v", i, err)
		}
	}
}

func TestSchemaOfPeers(t *testing.T) {
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Defs map[string]struct {
			OneOf      []struct{ Type string }
			Properties map[string]struct {
				Items struct {
					Ref string `json:"$ref"`
				}
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Account", "Size", "CPUs"} { // YAML may hold them bare or quoted
		if len(s.Defs[name].OneOf) != 2 {
			t.Errorf("%s: %+v", name, s.Defs[name])
		}
	}
	if uids := s.Defs["Peer"].Properties["uids"]; uids.Items.Ref != "#/$defs/Account" {
		t.Errorf("uids: %+v", uids)
	}
}

// TestForRoot: no request but root's may take the last sandboxes, of however many.
func TestForRoot(t *testing.T) {
	for most, want := range map[int64]int64{1: 0, 2: 1, 10: 1, 19: 1, 20: 2, 512: 51} {
		if got := (Sandboxes{Max: most}).ForRoot(); got != want {
			t.Errorf("of %d root has %d", most, got)
		}
	}
}
