// Package config is the daemon's configuration: one strict schema, from
// defaults, a YAML file, variables (see Environment) and flags, in rising order.
//
// An unknown key, a wrong type or an impossible value is refused with the
// key's name: a misspelt limit must not become no limit.
package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/units"
)

// Where things are when nothing else is said.
const (
	DefaultFile  = "/etc/caisson/config.yaml"
	DefaultRoot  = "/var/lib/caisson"
	DefaultState = "/run/caisson"
)

// Config is all that an operator can set.
type Config struct {
	Root        string             `yaml:"root" json:"root" jsonschema:"description=Directory on disk for images and kept output"`
	State       string             `yaml:"state" json:"state" jsonschema:"description=Directory on tmpfs for what dies with the boot"`
	Socket      string             `yaml:"socket" json:"socket" jsonschema:"description=Unix socket of the API; empty is caisson.sock in state"`
	SocketGroup Account            `yaml:"socket_group" json:"socket_group" jsonschema:"description=Group that alone may connect\\, by name or number; empty lets everybody connect where peers are listed"`
	Listen      Listen             `yaml:"listen" json:"listen"`
	BinDir      string             `yaml:"bin_dir" json:"bin_dir" jsonschema:"description=Directory of caisson-init\\, caisson-gateway\\, caisson-shim\\, containerd\\, its shim and runc; empty is the daemon's own\\, or ../libexec/caisson from there"`
	IdleTimeout Duration           `yaml:"idle_timeout" json:"idle_timeout" jsonschema:"description=End the daemon after so long without a sandbox or a call; 0 never"`
	StopGrace   Duration           `yaml:"stop_grace" json:"stop_grace" jsonschema:"description=Time between TERM and KILL"`
	Timeouts    Timeouts           `yaml:"timeouts" json:"timeouts"`
	Containerd  Containerd         `yaml:"containerd" json:"containerd"`
	IDs         IDs                `yaml:"ids" json:"ids"`
	Cgroup      Cgroup             `yaml:"cgroup" json:"cgroup"`
	Workspaces  Workspaces         `yaml:"workspaces" json:"workspaces"`
	Snapshots   Snapshots          `yaml:"snapshots" json:"snapshots"`
	Images      Images             `yaml:"images" json:"images"`
	Registries  Registries         `yaml:"registries" json:"registries"`
	Profiles    map[string]Profile `yaml:"profiles" json:"profiles" jsonschema:"description=Profiles by name\\, beside the built-in strict\\, compat\\, debug and dev"`
	Secrets     map[string]string  `yaml:"secrets" json:"secrets" jsonschema:"description=Credentials of routes by name\\, as where the value of each is: file:PATH of root's alone\\, credential:NAME of systemd\\, env:VARIABLE of the daemon\\, or command:PROGRAM ARGUMENTS that prints it"`
	SecretsAge  Duration           `yaml:"secrets_refresh" json:"secrets_refresh" jsonschema:"description=Take the values of secrets anew from files and commands after so long; 0 on reload alone"`
	Prices      map[string]Price   `yaml:"prices" json:"prices" jsonschema:"description=What a million tokens cost\\, by the model; a name that ends with * is of all that begin so. A model without a price counts as the dearest"`
	Unisolated  Unisolated         `yaml:"unisolated" json:"unisolated"`
	Sandboxes   Sandboxes          `yaml:"sandboxes" json:"sandboxes"`
	Pools       []Pool             `yaml:"pools" json:"pools" jsonschema:"description=Sandboxes that are kept ready"`
	Warm        int64              `yaml:"warm" json:"warm" jsonschema:"description=Sandboxes that are kept ready\\, at most\\, for what was lately asked for and no pool serves; 0 keeps none"`
	AirGapped   bool               `yaml:"air_gapped" json:"air_gapped" jsonschema:"description=Over all profiles and requests: no registry is asked\\, and sandboxes reach mapped names only\\, at addresses that are not public"`
	Network     Network            `yaml:"network" json:"network"`
	Peers       []Peer             `yaml:"peers" json:"peers" jsonschema:"description=Who may call beside root\\, and for what; the first entry that is for a caller counts"`
	Log         Log                `yaml:"log" json:"log"`
	Audit       Audit              `yaml:"audit" json:"audit"`
	Metrics     Metrics            `yaml:"metrics" json:"metrics"`
	Page        Page               `yaml:"page" json:"page"`
	Webhooks    []Webhook          `yaml:"webhooks" json:"webhooks" jsonschema:"description=Servers that are told of events"`
	Telemetry   Telemetry          `yaml:"telemetry" json:"telemetry"`

	instance    string          // set by Complete
	keptSecrets map[string]bool // by name, beside Secrets

	source *source // nil where there was no file
}

// Containerd chooses the engine.
type Containerd struct {
	Address     string   `yaml:"address" json:"address" jsonschema:"description=Socket of the host's own containerd (1.7 or newer); empty starts a private one"`
	CallTimeout Duration `yaml:"call_timeout" json:"call_timeout" jsonschema:"description=Most time of one call whose work does not grow with an image\\, with its repetitions"`
	Attempts    int64    `yaml:"attempts" json:"attempts" jsonschema:"description=Times that a call is made which finds containerd away"`
	Backoff     Duration `yaml:"backoff" json:"backoff" jsonschema:"description=Pause before the second attempt; it doubles before each further one"`
}

// IDs reserves host user and group ids for sandboxes.
type IDs struct {
	Base   uint32 `yaml:"base" json:"base" jsonschema:"description=First host id of the range; 0 takes the first free range from 1879048192 on"`
	Blocks uint32 `yaml:"blocks" json:"blocks" jsonschema:"description=Blocks of 65536 ids\\, one for each sandbox"`
}

// Cgroup places the sandboxes' cgroups.
type Cgroup struct {
	Parent string `yaml:"parent" json:"parent" jsonschema:"description=Name of the group that holds the sandboxes' groups\\, at the root of each hierarchy; empty is the instance's name"`
}

// Workspaces bounds which host directories may be bound into sandboxes.
type Workspaces struct {
	AllowedRoots []string `yaml:"allowed_roots" json:"allowed_roots" jsonschema:"description=Workspaces and mounts must lie in one of these; empty means /home\\, /media\\, /mnt\\, /opt\\, /root\\, /srv\\, /tmp and /var/tmp"`
	ControlFiles []string `yaml:"control_files" json:"control_files" jsonschema:"description=Files that apply leaves out of what it takes from a copy-on-write workspace\\, unless --include-control is given: paths in any directory; * and ? stand for characters of a name\\, ** for any names"`
	Kept         int64    `yaml:"kept" json:"kept" jsonschema:"description=Changesets of each user: what ended sandboxes changed in copy-on-write workspaces; the oldest go first; 0 keeps none"`
	KeptBytes    Size     `yaml:"kept_bytes" json:"kept_bytes" jsonschema:"description=Room of root that the changesets of each user may take"`
	KeptFor      Duration `yaml:"kept_for" json:"kept_for" jsonschema:"description=How long a changeset is kept that is neither applied nor discarded"`
}

// Images bounds what may be imported.
type Images struct {
	MaxBytes   int64             `yaml:"max_bytes" json:"max_bytes" jsonschema:"description=Unpacked bytes of one image"`
	MaxEntries int64             `yaml:"max_entries" json:"max_entries" jsonschema:"description=Files and directories of one image"`
	Languages  map[string]string `yaml:"languages" json:"languages" jsonschema:"description=Images of root's by the language of a workspace: LANGUAGE to IMAGE; used where neither the request nor its profile names an image"`
	MaxRatio   int64             `yaml:"max_ratio" json:"max_ratio" jsonschema:"description=Bytes that one compressed byte of an archive may expand to\\, on average; counts from 64 MiB on"`
	Prune      Prune             `yaml:"prune" json:"prune"`
}

// Prune says when images go that nothing needs.
type Prune struct {
	MinFree   string   `yaml:"min_free" json:"min_free" jsonschema:"description=Room on the disk of root: a share or a size. While less is free\\, images go that nothing needs\\, the least recently used first. Empty: none go,example=10%,example=20G"`
	UnusedFor Duration `yaml:"unused_for" json:"unused_for" jsonschema:"description=An image that was stored or used within this time stays"`
}

// Free is MinFree: a number of bytes of a disk of size bytes. 0 is that no images go.
func (p Prune) Free(size int64) (int64, error) {
	share, ok := strings.CutSuffix(p.MinFree, "%")
	switch {
	case p.MinFree == "":
		return 0, nil
	case !ok:
		n, err := units.ParseSize(p.MinFree)
		return n, err
	}
	n, err := strconv.ParseInt(share, 10, 64)
	if err != nil || n < 1 || n > 99 {
		return 0, fmt.Errorf("%q is not in 1%% to 99%%", p.MinFree)
	}
	return size / 100 * n, nil
}

// Profile is a named set of defaults for a request. An absent field takes the
// value of the built-in profile strict.
type Profile struct {
	Image       string           `yaml:"image" json:"image"`
	Seccomp     string           `yaml:"seccomp" json:"seccomp" jsonschema:"enum=strict,enum=compat,enum=debug"`
	User        string           `yaml:"user" json:"user"`
	Env         []string         `yaml:"env" json:"env" jsonschema:"description=Variables\\, NAME=VALUE each"`
	Memory      string           `yaml:"memory" json:"memory" jsonschema:"example=512M"`
	CPUs        string           `yaml:"cpus" json:"cpus" jsonschema:"example=1.5"`
	CPUShares   int64            `yaml:"cpu_shares" json:"cpu_shares" jsonschema:"description=Weight against other sandboxes while CPUs are short\\, 2 to 262144"`
	PIDs        int64            `yaml:"pids" json:"pids"`
	Files       int64            `yaml:"open_files" json:"open_files"`
	Tmpfs       string           `yaml:"tmpfs" json:"tmpfs" jsonschema:"example=64M"`
	ShmSize     string           `yaml:"shm_size" json:"shm_size" jsonschema:"description=Size of /dev/shm; empty is that of each tmpfs,example=64M"`
	IORead      string           `yaml:"io_read_bps" json:"io_read_bps" jsonschema:"description=Bytes per second read from each disk; empty is unbounded,example=10M"`
	IOWrite     string           `yaml:"io_write_bps" json:"io_write_bps" jsonschema:"description=Bytes per second written to each disk\\, on cgroup v2; empty is unbounded,example=10M"`
	Disk        string           `yaml:"disk" json:"disk" jsonschema:"description=Size of a disk of each sandbox\\, with a /workspace that its user may write; empty is none,example=2G"`
	Inodes      int64            `yaml:"disk_inodes" json:"disk_inodes" jsonschema:"description=Files and directories on the disk; 0 is one for each 16K"`
	Caches      []string         `yaml:"caches" json:"caches" jsonschema:"description=Caches of sandboxes that name none: names of tools (cargo\\, go\\, maven\\, npm\\, nuget\\, pip\\, uv)\\, or NAME=PATH inside"`
	MergeCaches bool             `yaml:"merge_caches" json:"merge_caches" jsonschema:"description=What the command of a run wrote to its caches goes into them when it succeeded; otherwise it goes with the sandbox"`
	Rootfs      string           `yaml:"rootfs" json:"rootfs" jsonschema:"description=rw: the root of each sandbox can be written\\, on its disk; absent is ro,enum=ro,enum=rw"`
	RootUser    string           `yaml:"root_user" json:"root_user" jsonschema:"description=Who root may be inside: absent\\, nobody; plain\\, without capabilities; setup\\, with those that package managers need,enum=plain,enum=setup"`
	Network     ProfileNetwork   `yaml:"network" json:"network"`
	Routes      map[string]Route `yaml:"routes" json:"routes" jsonschema:"description=Servers that are reached as http://NAME.caisson.internal\\, with a credential that the sandbox never has"`
	Mounts      []Mount          `yaml:"mounts" json:"mounts" jsonschema:"description=Mounts of each sandbox\\, as if each request named them; one of the request on the same target replaces it"`
	Alerts      Alerts           `yaml:"alerts" json:"alerts"`
	Nested      Nested           `yaml:"nested" json:"nested"`
	Timeout     Duration         `yaml:"timeout" json:"timeout" jsonschema:"description=Most time of one command\\, and that of one that asks for none; 0 is none"`
	IdleTimeout Duration         `yaml:"idle_timeout" json:"idle_timeout" jsonschema:"description=After so long without work a sandbox that names no time is idle; 0 is never"`
	OnIdle      string           `yaml:"on_idle" json:"on_idle" jsonschema:"description=What happens to an idle sandbox: remove (the default) or pause\\, until somebody uses it,enum=remove,enum=pause"`
	Setup       Setup            `yaml:"setup" json:"setup"`
	Isolation   string           `yaml:"isolation" json:"isolation" jsonschema:"description=none runs commands as a user of the host\\, with its files and network; the profile must be named in unisolated\\, too. Absent is sandbox,enum=sandbox,enum=none"`
}

// Mount is a mount of a sandbox.
type Mount struct {
	Type     string `yaml:"type" json:"type" jsonschema:"enum=bind,enum=volume,enum=snapshot,enum=tmpfs"`
	Source   string `yaml:"source" json:"source" jsonschema:"description=Of a bind: directory of the host; of a volume or snapshot: its name"`
	Target   string `yaml:"target" json:"target" jsonschema:"description=Absolute path inside"`
	ReadOnly bool   `yaml:"readonly" json:"readonly" jsonschema:"description=Of a bind or volume"`
	Size     string `yaml:"size" json:"size" jsonschema:"description=Of a tmpfs; empty is the profile's tmpfs,example=64M"`
}

// Nested says what a profile's sandboxes may do with the sandboxes that they make.
type Nested struct {
	Enter bool `yaml:"enter" json:"enter" jsonschema:"description=Run commands in them and use their files; otherwise only their state\\, result and output"`
	Depth int  `yaml:"depth" json:"depth" jsonschema:"description=Generations below a sandbox\\, 1 to 4: 1 is children without children; absent is 1"`
}

// Alerts says what of a profile's sandboxes becomes an event.
type Alerts struct {
	Memory   Threshold `yaml:"memory" json:"memory"`
	CPU      Threshold `yaml:"cpu" json:"cpu"`
	PIDs     Threshold `yaml:"pids" json:"pids"`
	Tmpfs    Threshold `yaml:"tmpfs" json:"tmpfs"`
	Refusals int64     `yaml:"refusals" json:"refusals" jsonschema:"description=More refused connections and lookups than this"`
}

// Threshold is a share of a limit that is passed for some time.
type Threshold struct {
	Above string   `yaml:"above" json:"above" jsonschema:"example=90%"`
	For   Duration `yaml:"for" json:"for" jsonschema:"description=0s is at once"`
}

// Log shapes the daemon's own log.
type Log struct {
	Level  string `yaml:"level" json:"level" jsonschema:"enum=debug,enum=info,enum=warn,enum=error"`
	Format string `yaml:"format" json:"format" jsonschema:"enum=text,enum=json"`
}

// Default returns the configuration of a host without a file.
func Default() Config {
	return Config{
		Root:       DefaultRoot,
		State:      DefaultState,
		StopGrace:  Duration(10 * time.Second),
		Timeouts:   defaultTimeouts(),
		Containerd: Containerd{CallTimeout: Duration(time.Minute), Attempts: 4, Backoff: Duration(50 * time.Millisecond)},
		IDs:        IDs{Blocks: 512},
		Images:     Images{MaxBytes: 8 << 30, MaxEntries: 400_000, MaxRatio: 200, Prune: Prune{UnusedFor: Duration(7 * 24 * time.Hour)}},
		Workspaces: Workspaces{ControlFiles: defaultControlFiles, Kept: 16, KeptBytes: 8 << 30, KeptFor: Duration(7 * 24 * time.Hour)},
		Registries: defaultRegistries(),
		Sandboxes:  defaultSandboxes(),
		Warm:       defaultWarm,
		Log:        Log{Level: "info", Format: "text"},
		Audit:      defaultAudit(),
	}
}

// remedyFile is what to do about a file that cannot be read.
const remedyFile = "name a file that is there and can be read, or leave --config out: then " + DefaultFile + " is read if it is there"

// Load reads file over the defaults. An absent file is an error only where
// required is set: the default file need not exist.
func Load(file string, required bool) (Config, error) {
	c := Default()
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
		return c, nil
	case err != nil:
		return Config{}, sbxerr.WithRemedy(sbxerr.DaemonConf, "config.load", fmt.Errorf("the file of the configuration: %w", err), remedyFile)
	}
	if err := c.merge(data); err != nil {
		return Config{}, sbxerr.Wrap(sbxerr.DaemonConf, "config.load", fmt.Errorf("file %q: %w", file, err))
	}
	var n yaml.Node
	if yaml.Unmarshal(data, &n) == nil && len(n.Content) > 0 {
		c.source = &source{file, n.Content[0]}
	}
	return c, nil
}

func (c *Config) merge(data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err := dec.Decode(c)
	if errors.Is(err, io.EOF) { // an empty file
		return nil
	}
	if err != nil {
		return explain(err, data)
	}
	if err := dec.Decode(new(Config)); !errors.Is(err, io.EOF) {
		return errors.New("the file holds more than one document")
	}
	return nil
}

// Environment applies CAISSON_ROOT, CAISSON_STATE, CAISSON_SOCKET,
// CAISSON_BIN_DIR and CAISSON_CONTAINERD_ADDRESS.
func (c *Config) Environment(lookup func(string) (string, bool)) {
	for name, field := range map[string]*string{
		"CAISSON_ROOT":               &c.Root,
		"CAISSON_STATE":              &c.State,
		"CAISSON_SOCKET":             &c.Socket,
		"CAISSON_BIN_DIR":            &c.BinDir,
		"CAISSON_CONTAINERD_ADDRESS": &c.Containerd.Address,
	} {
		if v, ok := lookup(name); ok && v != "" {
			*field = v
		}
	}
}

// Complete fills in what follows from other settings and checks the whole. It also
// follows the symbolic links in Root and State.
func (c *Config) Complete() error {
	if c.Socket == "" {
		c.Socket = filepath.Join(c.State, "caisson.sock")
	}
	if c.Cgroup.Parent == "" {
		c.Cgroup.Parent = c.Instance()
	}
	c.completeSandboxes()
	return errors.Join(c.resolve(), c.Validate())
}

// Instance names this daemon among those of one host. The containerd namespace
// and the cgroup parent are called so.
func (c *Config) Instance() string {
	if c.instance != "" {
		return c.instance
	}
	if c.Root == DefaultRoot {
		return "caisson"
	}
	sum := sha256.Sum256([]byte(c.Root))
	return "caisson-" + hex.EncodeToString(sum[:4])
}
