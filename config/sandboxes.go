package config

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"time"
)

// Sandboxes bounds how many there are and how long they last without a daemon
// or a caller.
type Sandboxes struct {
	Max          int64    `yaml:"max" json:"max" jsonschema:"description=Sandboxes at the same time\\, with those that wait in pools; 0 is ids.blocks"`
	MaxCreating  int64    `yaml:"max_creating" json:"max_creating" jsonschema:"description=Sandboxes that are made at the same time; 0 is four for each CPU"`
	MaxRunning   int64    `yaml:"max_running" json:"max_running" jsonschema:"description=Sandboxes that run at the same time\\, without those that wait in pools; requests past it wait; 0 sets no bound but max"`
	Queue        int64    `yaml:"queue" json:"queue" jsonschema:"description=Requests that wait for max_creating\\, and as many for max_running; what is past it is refused at once"`
	AttachGrace  Duration `yaml:"attach_grace" json:"attach_grace" jsonschema:"description=A foreground command lasts so long without its caller"`
	OrphanGrace  Duration `yaml:"orphan_grace" json:"orphan_grace" jsonschema:"description=A sandbox lasts so long without a daemon"`
	CleanEvery   Duration `yaml:"clean_every" json:"clean_every" jsonschema:"description=Time between looks for what belongs to no sandbox\\, which is removed; 0 is at the start alone"`
	PerShim      int64    `yaml:"per_shim" json:"per_shim" jsonschema:"description=Sandboxes that share one shim process"`
	KeepOnExit   bool     `yaml:"keep_on_exit" json:"keep_on_exit" jsonschema:"description=Leave sandboxes running when the daemon is stopped\\, for the next one"`
	KeptExecs    int64    `yaml:"kept_execs" json:"kept_execs" jsonschema:"description=Ended commands of one sandbox whose result and output are kept"`
	KeptUsage    int64    `yaml:"kept_usage" json:"kept_usage" jsonschema:"description=Sandboxes of which the use over time is kept after their end\\, at most 200K each"`
	KeptUsageFor Duration `yaml:"kept_usage_for" json:"kept_usage_for" jsonschema:"description=How long it is kept"`
	Disk         Size     `yaml:"disk" json:"disk" jsonschema:"description=Size of the disk of a sandbox whose root can be written\\, where neither request nor profile has one"`
	VolumeSize   Size     `yaml:"volume_size" json:"volume_size" jsonschema:"description=Size of a volume or cache for which none is asked when it is made; 0: nothing bounds it"`
	DiskReserve  Size     `yaml:"disk_reserve" json:"disk_reserve" jsonschema:"description=Room on the disk of root that is left to the host: no sandbox gets a disk that is larger than what is free besides"`
	KeptOutput   Size     `yaml:"kept_output" json:"kept_output" jsonschema:"description=Bytes of output that are kept of one sandbox"`
}

// Pool keeps sandboxes ready for requests with one profile and image.
type Pool struct {
	Profile string `yaml:"profile" json:"profile" jsonschema:"description=Profile of the requests that it serves; empty is strict"`
	Image   string `yaml:"image" json:"image" jsonschema:"description=Image of the requests that it serves; empty is the profile's"`
	Size    int64  `yaml:"size" json:"size" jsonschema:"description=Sandboxes that are kept ready"`
	Max     int64  `yaml:"max" json:"max" jsonschema:"description=Sandboxes that it may grow to when requests find it empty; 0 is size"`
}

// defaultWarm is what a host without configuration keeps ready, at most. It takes about
// 5 MB each.
const defaultWarm = 4

func defaultSandboxes() Sandboxes {
	return Sandboxes{
		Queue: 1024, AttachGrace: Duration(10 * time.Second), OrphanGrace: Duration(10 * time.Minute), CleanEvery: Duration(10 * time.Minute),
		PerShim: 16, KeepOnExit: true, KeptExecs: 1024, KeptUsage: 256, KeptUsageFor: Duration(7 * 24 * time.Hour), KeptOutput: 256 << 20, Disk: 2 << 30, DiskReserve: 1 << 30,
	}
}

// ForRoot is how many of the most sandboxes there may be are left to root's own
// requests: a tenth, at least one, but not the only one.
func (s Sandboxes) ForRoot() int64 { return min(max(1, s.Max/10), s.Max-1) }

// complete fills in what follows from the host and from other settings.
func (c *Config) completeSandboxes() {
	s := &c.Sandboxes
	if s.Max == 0 {
		s.Max = int64(c.IDs.Blocks)
	}
	if s.MaxCreating == 0 {
		s.MaxCreating = 4 * int64(goruntime.NumCPU())
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		if p.Profile == "" {
			p.Profile = "strict"
		}
		if p.Max == 0 {
			p.Max = p.Size
		}
	}
}

func (c *Config) validateSandboxes() error {
	s := c.Sandboxes
	var errs []error
	for _, f := range []struct {
		key              string
		value, low, high int64
	}{
		{"max", s.Max, 1, int64(c.IDs.Blocks)}, // each needs a block of ids
		{"max_creating", s.MaxCreating, 1, 1024},
		{"max_running", s.MaxRunning, 0, int64(c.IDs.Blocks)},
		{"queue", s.Queue, 0, 1 << 20},
		{"per_shim", s.PerShim, 1, 256},
		{"kept_execs", s.KeptExecs, 1, 1 << 16},
		{"kept_usage", s.KeptUsage, 0, 1 << 16},
		{"disk", int64(s.Disk), 16 << 20, 1 << 40},
		{"disk_reserve", int64(s.DiskReserve), 0, 1 << 50},
		{"kept_output", int64(s.KeptOutput), 2 << 20, 1 << 40}, // two streams of what Exec keeps of each
	} {
		if f.value < f.low || f.value > f.high {
			errs = append(errs, fmt.Errorf("sandboxes.%s: %d is not in %d to %d", f.key, f.value, f.low, f.high))
		}
	}
	if n := int64(s.VolumeSize); n != 0 && (n < 16<<20 || n > 1<<40) {
		errs = append(errs, fmt.Errorf("sandboxes.volume_size: %d is neither 0 nor in %d to %d", n, 16<<20, 1<<40))
	}
	if v := time.Duration(s.CleanEvery); v > 0 && v < time.Second {
		errs = append(errs, fmt.Errorf("sandboxes.clean_every: %s is neither 0 nor at least 1s", v))
	}
	for _, f := range []struct {
		key       string
		value     Duration
		low, high time.Duration
	}{
		{"attach_grace", s.AttachGrace, 0, time.Hour},
		{"orphan_grace", s.OrphanGrace, time.Second, 30 * 24 * time.Hour},
		{"kept_usage_for", s.KeptUsageFor, time.Minute, 366 * 24 * time.Hour},
		{"clean_every", s.CleanEvery, 0, 24 * time.Hour},
	} {
		if v := time.Duration(f.value); v < f.low || v > f.high {
			errs = append(errs, fmt.Errorf("sandboxes.%s: %s is not in %s to %s", f.key, v, f.low, f.high))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validatePools() error {
	var errs []error
	if c.Warm < 0 || c.Warm > 64 {
		errs = append(errs, fmt.Errorf("warm: %d is not in 0 to 64", c.Warm))
	}
	seen := map[[2]string]int{}
	sandboxes, all := c.Sandboxes, int64(0)
	if sandboxes.Max < 1 { // which is refused already
		sandboxes.Max = int64(c.IDs.Blocks)
	}
	most := sandboxes.Max - sandboxes.ForRoot()
	bound := fmt.Sprintf("sandboxes.max, %d, without the %d for root", sandboxes.Max, sandboxes.ForRoot())
	for i, p := range c.Pools {
		if !profileName.MatchString(p.Profile) {
			errs = append(errs, fmt.Errorf("pools[%d].profile: %q is no name", i, p.Profile))
		}
		if p.Size < 1 || p.Max < p.Size || p.Max > most {
			errs = append(errs, fmt.Errorf("pools[%d]: size %d and max %d must be 1 to %d (%s), and max not below size", i, p.Size, p.Max, most, bound))
			continue
		}
		key := [2]string{p.Profile, p.Image}
		if j, ok := seen[key]; ok {
			errs = append(errs, fmt.Errorf("pools[%d]: pools[%d] is for the same profile %q and image %q", i, j, p.Profile, p.Image))
		}
		seen[key] = i
		all += p.Size
	}
	if all > most {
		errs = append(errs, fmt.Errorf("pools: their sizes are %d together, above %d (%s)", all, most, bound))
	}
	return errors.Join(errs...)
}
