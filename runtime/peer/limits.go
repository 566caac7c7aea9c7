package peer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
)

// Limits are the ceilings of one sandbox. ShmBytes and Disks are unused: /dev/shm is judged
// as a tmpfs.
type Limits settings.Limits

// Usage is the sum over several sandboxes, or a bound on it.
type Usage struct {
	Sandboxes   int64 // those being made too
	MemoryBytes int64 // the sum of their limits
	MilliCPU    int64 // the sum of their limits
	Execs       int64 // commands that run
	ImageBytes  int64 // of images, as stored
	PIDs        int64 // the sum of their limits of processes
	DiskBytes   int64 // the sum of the sizes of their disks, and of volumes with a size
}

// Standing is the current usage. The caller must hold the lock that keeps it true until
// the request is counted.
type Standing struct {
	All        Usage // of all sandboxes, whoever they are of
	Owner      Usage // of all sandboxes of the grant's Owner, their children too
	OwnerEnded int64 // those beside it that have ended and were not removed
	// Below is what each sandbox of the grant's Above has below it, in the same order.
	Below []Descendants
}

// Descendants are all generations below a sandbox.
type Descendants struct {
	Usage
	Ended int64 // those beside Usage that have ended and were not removed
}

// endless stands for "no bound".
const endless = math.MaxInt64

// DefaultTTL is the longest TTL of a listed peer whose rule names none.
const DefaultTTL = 24 * time.Hour

// DefaultLimits are the ceilings of one sandbox of a listed peer whose rule
// names none.
func DefaultLimits() Limits { return Limits(settings.Ceilings()) }

// DefaultQuota bounds all sandboxes of one listed uid together, if its rule names no quota.
func DefaultQuota() Usage {
	return Usage{Sandboxes: 16, MemoryBytes: 8 << 30, MilliCPU: 8000, Execs: 256, ImageBytes: 16 << 30, PIDs: 4096, DiskBytes: 16 * DefaultLimits().DiskBytes}
}

// DefaultBudget bounds the descendants of a sandbox with these limits together: as much again
// as the sandbox itself. Processes are bounded by the number of descendants, because each
// has at most the limit of its parent.
func DefaultBudget(l Limits) Usage {
	return Usage{Sandboxes: 8, MemoryBytes: l.MemoryBytes, MilliCPU: l.MilliCPU, Execs: 64}
}

// CheckLimits refuses limits above the ceilings, and a time to live above its
// own. A nil or zero ttl means no end; TTL gives the default. All reasons are reported at
// once.
func (g Grant) CheckLimits(l Limits, ttl *time.Duration) error {
	var errs []error
	for _, row := range settings.Limits(l).Exceeding(settings.Limits(g.rule.Limits)) {
		n, top := *row.Of((*settings.Limits)(&l)), *row.Of((*settings.Limits)(&g.rule.Limits))
		if n == 0 {
			errs = append(errs, fmt.Errorf("no %s is above the ceiling %s", row.Name, row.Unit.Format(top)))
			continue
		}
		errs = append(errs, fmt.Errorf("%s %s is above the ceiling %s", row.Name, row.Unit.Format(n), row.Unit.Format(top)))
	}
	return g.refusal(append(errs, g.aboveTTL(ttl))...)
}

// CheckLife refuses a time to live with which a sandbox that was made age ago would live for
// longer than any may from its creation on. CheckLimits bounds ttl itself.
func (g Grant) CheckLife(age time.Duration, ttl *time.Duration) error {
	if ttl == nil || *ttl > g.rule.TTL || *ttl <= g.life-age {
		return nil
	}
	return g.refusalWith("ask for no more than is left, or make another sandbox", fmt.Errorf("ttl %s is above the %s that are left: the ceiling of %s counts from the creation of the sandbox",
		*ttl, max(0, g.life-age).Truncate(time.Second), g.life))
}

// MaxTmpfs is the ceiling of a tmpfs.
func (g Grant) MaxTmpfs() int64 { return g.rule.Limits.TmpfsBytes }

// IORates are the ceilings of the rates of I/O, in bytes per second; 0 is none.
func (g Grant) IORates() (read, write int64) {
	return g.rule.Limits.IOReadBPS, g.rule.Limits.IOWriteBPS
}

func (g Grant) aboveTTL(ttl *time.Duration) error {
	top := g.rule.TTL.Truncate(time.Millisecond) // it may be the remaining time of a parent
	switch {
	case g.rule.TTL == endless || ttl != nil && *ttl > 0 && *ttl <= g.rule.TTL:
		return nil
	case ttl == nil || *ttl == 0:
		return fmt.Errorf("a sandbox without end is above the ceiling of its time to live, %s", top)
	}
	return fmt.Errorf("ttl %s is above the ceiling %s", *ttl, top)
}

// TTL returns the time to live of a sandbox for which asked was asked: the
// ceiling where nothing was, nil where there is none. Zero is asked for no end, and
// above any ceiling.
func (g Grant) TTL(asked *time.Duration) *time.Duration {
	switch {
	case g.rule.TTL == endless && asked != nil && *asked == 0:
		return nil
	case asked != nil || g.rule.TTL == endless:
		return asked
	}
	ttl := g.rule.TTL
	return &ttl
}

// IsRoot reports whether the grant is root's own, bound by an entry or not.
func (g Grant) IsRoot() bool { return g.rank == root }

// Unbounded reports whether the grant has no quota: it is root's or the
// daemon's own, where no entry binds root.
func (g Grant) Unbounded() bool { return g.free && g.rank != nested }

// CheckQuota refuses asked on top of the current usage. The code is Peer if it can never
// be granted, and Busy if it can be granted once something has ended. Only asked values
// count: a peer above its memory quota may still run a command.
func (g Grant) CheckQuota(now Standing, asked Usage) error {
	if g.rank == nobody {
		return g.refusal()
	}
	err := exceeds("the quota of "+g.Owner().String(), now.Owner, now.OwnerEnded, asked, g.rule.Quota)
	remedy := ""
	if len(now.Below) != len(g.above) {
		return sbxerr.New(sbxerr.Internal, "peer.quota", "%d sandboxes above %s, and the usage below %d of them", len(g.above), g.caller, len(now.Below))
	}
	for i, p := range g.above {
		whose := "the budget of " + g.caller.String()
		if i > 0 { // of which a caller inside knows nothing
			whose = "the budget of a sandbox above " + g.caller.String()
		}
		below := now.Below[i]
		if own := exceeds(whose, below.Usage, below.Ended, asked, p.Budget); own != nil {
			remedy = "end what runs in the children, give one less by -m and --cpus, or remove another one; the budget is set when the parent is made (create --nested)"
			err = errors.Join(err, own)
		}
	}
	code := sbxerr.Busy
	switch {
	case errors.Is(err, sbxerr.Peer):
		code = sbxerr.Peer
	case errors.Is(err, errHaveEnded):
		remedy = RemoveEnded
	case errors.Is(err, errOfDisks):
		remedy = "remove sandboxes that have a disk, or volumes that have a size, or ask for less"
	}
	return sbxerr.WithRemedy(code, "peer.quota", err, remedy)
}

// KeptEnded is how many sandboxes that have ended may be there for each that may live: their
// output takes the host's disk until they are removed.
const KeptEnded = 4

// RemoveEnded is the remedy where there are too many of them.
const RemoveEnded = "remove sandboxes that have ended: caisson rm SANDBOX"

// errHaveEnded says of sandboxes that are in the way of another one that it is enough
// to remove them.
var errHaveEnded = errors.New("have ended and were not removed")

// errOfDisks says what else is in the way of a disk.
var errOfDisks = errors.New("with the volumes that have a size")

// exceeds compares field by field, without a sum that could overflow. So many sandboxes have
// ended beside now.
func exceeds(of string, now Usage, ended int64, asked, most Usage) error {
	var errs []error
	for _, f := range []struct {
		name             string
		now, asked, most int64
		unit             settings.Unit
	}{
		{"sandboxes", now.Sandboxes, asked.Sandboxes, most.Sandboxes, settings.Count},
		{"memory", now.MemoryBytes, asked.MemoryBytes, most.MemoryBytes, settings.Bytes},
		{"cpus", now.MilliCPU, asked.MilliCPU, most.MilliCPU, settings.CPUs},
		{"execs", now.Execs, asked.Execs, most.Execs, settings.Count},
		{"pids", now.PIDs, asked.PIDs, most.PIDs, settings.Count},
		{"disk", now.DiskBytes, asked.DiskBytes, most.DiskBytes, settings.Bytes},
	} {
		switch {
		case f.asked < 0 || f.now < 0:
			errs = append(errs, sbxerr.New(sbxerr.Peer, "peer.quota", "%s: %d on top of %d is no usage", f.name, f.asked, f.now))
		case f.asked == 0:
		case f.asked > f.most:
			errs = append(errs, sbxerr.New(sbxerr.Peer, "peer.quota", "%s %s alone is above %s, %s", f.name, f.unit.Format(f.asked), of, f.unit.Format(f.most)))
		case f.asked > f.most-f.now:
			err := fmt.Errorf("%s %s is above the %s left of %s: %s of %s are in use",
				f.name, f.unit.Format(f.asked), f.unit.Format(max(0, f.most-f.now)), of, f.unit.Format(f.now), f.unit.Format(f.most))
			if f.name == "disk" {
				err = fmt.Errorf("%w, %w", err, errOfDisks)
			}
			errs = append(errs, err)
		}
	}
	if asked.Sandboxes > 0 && ended/KeptEnded >= most.Sandboxes {
		errs = append(errs, fmt.Errorf("%d sandboxes %w, the most of %s: %d for each of %d", ended, errHaveEnded, of, KeptEnded, most.Sandboxes))
	}
	return errors.Join(errs...)
}
