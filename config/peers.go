package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Peer says what some users of the host, beside root, may do. Of several that
// are for a caller, the first counts. A size or count that is absent takes a
// default of its own; there is no way to say "unlimited".
type Peer struct {
	UIDs       []Account  `yaml:"uids" json:"uids" jsonschema:"description=Users\\, by name or number"`
	Groups     []Account  `yaml:"groups" json:"groups" jsonschema:"description=Groups\\, by name or number\\, of the calling process"`
	Profiles   []string   `yaml:"profiles" json:"profiles" jsonschema:"description=Profiles beside strict; compat\\, debug and dev only when they are named"`
	Workspaces []string   `yaml:"workspaces" json:"workspaces" jsonschema:"description=Workspaces must lie in one of these; absent does not narrow what the user itself may read or write"`
	Limits     PeerLimits `yaml:"limits" json:"limits"`
	Quota      PeerQuota  `yaml:"quota" json:"quota"`
	Network    bool       `yaml:"network" json:"network" jsonschema:"description=May name network modes and destinations\\, and publish ports on addresses that are not loopback; otherwise the profile says what a sandbox reaches"`
	Images     bool       `yaml:"images" json:"images" jsonschema:"description=May import and remove images"`
	Volumes    bool       `yaml:"volumes" json:"volumes" jsonschema:"description=May have volumes\\, whose size caisson does not bound"`
}

// PeerLimits are ceilings of one sandbox.
type PeerLimits struct {
	Memory    Size     `yaml:"memory" json:"memory" jsonschema:"description=Memory of one sandbox"`
	CPUs      CPUs     `yaml:"cpus" json:"cpus" jsonschema:"description=CPUs of one sandbox"`
	CPUShares int64    `yaml:"cpu_shares" json:"cpu_shares" jsonschema:"description=CPU shares of one sandbox"`
	PIDs      int64    `yaml:"pids" json:"pids" jsonschema:"description=Processes of one sandbox"`
	Tmpfs     Size     `yaml:"tmpfs" json:"tmpfs" jsonschema:"description=Each tmpfs of one sandbox"`
	Files     int64    `yaml:"open_files" json:"open_files" jsonschema:"description=Open files of one process; 4096 or more\\, which each process may raise its limit to"`
	Disk      Size     `yaml:"disk" json:"disk" jsonschema:"description=Disk of one sandbox"`
	Inodes    int64    `yaml:"disk_inodes" json:"disk_inodes" jsonschema:"description=Files and directories on the disk of one sandbox\\, where it names them"`
	TTL       Duration `yaml:"ttl" json:"ttl" jsonschema:"description=Longest life of one sandbox; also what one gets that asks for none"`
}

// PeerQuota bounds all sandboxes of one user together.
type PeerQuota struct {
	Sandboxes int64 `yaml:"sandboxes" json:"sandboxes" jsonschema:"description=Sandboxes of one user"`
	Memory    Size  `yaml:"memory" json:"memory" jsonschema:"description=Sum of their memory limits"`
	CPUs      CPUs  `yaml:"cpus" json:"cpus" jsonschema:"description=Sum of their CPU limits"`
	PIDs      int64 `yaml:"pids" json:"pids" jsonschema:"description=Sum of their limits of processes"`
	Execs     int64 `yaml:"execs" json:"execs" jsonschema:"description=Commands that run in them"`
	Disk      Size  `yaml:"disk" json:"disk" jsonschema:"description=Sum of the sizes of their disks\\, and of the volumes of the user that have a size"`
	Images    Size  `yaml:"images" json:"images" jsonschema:"description=Stored bytes of their images"`
}

// leastFiles is the lowest ceiling of open files that holds: each process of a
// sandbox may raise its own limit to it.
const leastFiles = 4096

// accountForm is a name of a user or group, or a number (useradd(8)).
var accountForm = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]{0,31}\$?|[0-9]{1,10})$`)

func (c *Config) validatePeers() error {
	var errs []error
	if c.SocketGroup != "" {
		errs = append(errs, checkAccount("socket_group", c.SocketGroup))
		if len(c.Peers) == 0 {
			errs = append(errs, errors.New("socket_group: nobody but root may call without peers"))
		}
	}
	for i, p := range c.Peers {
		for _, err := range p.validate(c) {
			errs = append(errs, fmt.Errorf("peers[%d].%w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (p Peer) validate(c *Config) []error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(p.UIDs)+len(p.Groups) == 0 {
		errs = append(errs, errors.New("uids: the entry is for nobody: name uids or groups"))
	}
	for _, a := range p.UIDs {
		add(checkAccount("uids", a))
		add(c.checkForeign("uids", a))
	}
	for _, a := range p.Groups {
		add(checkAccount("groups", a))
		add(c.checkForeign("groups", a))
	}
	for _, name := range p.Profiles {
		if !profileName.MatchString(name) {
			errs = append(errs, fmt.Errorf("profiles: %q is no name", name))
		}
	}
	if p.Workspaces != nil && len(p.Workspaces) == 0 {
		errs = append(errs, errors.New("workspaces: it is empty: leave it out, or name directories"))
	}
	for _, dir := range p.Workspaces {
		add(absolute("workspaces", dir))
	}
	for key, n := range map[string]int64{"limits.pids": p.Limits.PIDs, "limits.ttl": int64(p.Limits.TTL), "quota.sandboxes": p.Quota.Sandboxes, "quota.execs": p.Quota.Execs, "quota.pids": p.Quota.PIDs} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: it must be above 0", key))
		}
	}
	if n := p.Limits.Files; n != 0 && n < leastFiles {
		errs = append(errs, fmt.Errorf("limits.open_files: %d is below %d, which each process may raise its limit to", n, leastFiles))
	}
	return errs
}

// overflowID is what the kernel shows for whoever has no id here.
const overflowID = 65534

func checkAccount(key string, a Account) error {
	if !accountForm.MatchString(string(a)) {
		return fmt.Errorf("%s: %q is neither a name nor a number", key, a)
	}
	n, err := strconv.ParseUint(string(a), 10, 64)
	switch {
	case err != nil: // a name
		return nil
	case n >= math.MaxUint32:
		return fmt.Errorf("%s: %q is no id", key, a)
	case n == overflowID:
		return fmt.Errorf("%s: %q is what the kernel shows for whoever has no id here", key, a)
	}
	return nil
}

// checkForeign refuses an id that a sandbox's user has on the host.
func (c *Config) checkForeign(key string, a Account) error {
	n, err := strconv.ParseUint(string(a), 10, 64)
	base, end := uint64(c.IDs.Base), uint64(c.IDs.Base)+uint64(c.IDs.Blocks)*blockSize
	if err == nil && base > 0 && n >= base && n < end {
		return fmt.Errorf("%s: %q lies in the ids of the sandboxes, %d to %d", key, a, base, end-1)
	}
	return nil
}
