package runtime

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/gateway/policy"
	"github.com/caisson-run/caisson/gateway/route/budget"
	"github.com/caisson-run/caisson/netns"
	"github.com/caisson-run/caisson/owndir"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/idle"
	"github.com/caisson-run/caisson/runtime/layers"
	"github.com/caisson-run/caisson/runtime/peer"
	"github.com/caisson-run/caisson/runtime/plan"
)

// recordVersion is raised when a record changes in a way that an older daemon
// would misread.
const recordVersion = 6

// childRecordVersion is that of a child with a network. A daemon that knows no such record would
// leave the child what its parent may no longer reach.
const childRecordVersion = 7

// record is what is kept of a sandbox outside this process: enough for another
// daemon to go on with it. It lies on tmpfs: it dies with the boot, like the
// sandbox.
type record struct {
	Version      int                    `json:"version"`
	Boot         string                 `json:"boot"`
	ID           string                 `json:"id"`
	Name         string                 `json:"name"`
	Image        string                 `json:"image"`
	ImageDigest  string                 `json:"image_digest"`
	ChainID      string                 `json:"chain_id"`
	Verified     string                 `json:"verified,omitempty"` // the rule that the image was verified by
	Layers       []layers.Mark          `json:"layers"`             // the topmost first
	Profile      string                 `json:"profile"`
	Preset       *plan.Profile          `json:"preset,omitempty"` // its values when the sandbox was made; nil from an older daemon
	Network      netns.Mode             `json:"network"`
	Asked        plan.NetworkRequest    `json:"asked"`
	Policy       policy.Spec            `json:"policy"`  // of egress; zero in the modes none and bridge
	Ports        []Port                 `json:"ports"`   // of the host, as they were opened first
	Exposed      []uint16               `json:"exposed"` // to which links may lead
	User         plan.User              `json:"user"`
	Env          []string               `json:"env"` // of every command
	Cwd          string                 `json:"cwd"` // where a command names none
	CreatedAt    time.Time              `json:"created_at"`
	Labels       map[string]string      `json:"labels"`
	Session      string                 `json:"session"`
	Task         string                 `json:"task"`
	Workspace    *plan.WorkspaceRequest `json:"workspace"`
	CowBase      mount.Base             `json:"cow_base,omitzero"` // what its copy-on-write workspace began with
	Mounts       []plan.MountRequest    `json:"mounts,omitempty"`  // beside the workspace
	Merges       bool                   `json:"merges,omitempty"`  // what it wrote to caches goes into them
	Limits       plan.Limits            `json:"limits"`
	Changing     *plan.Limits           `json:"changing"` // what they are being changed to
	HostIDBase   uint32                 `json:"host_id_base"`
	DiskSince    time.Time              `json:"disk_since,omitzero"`     // when it got its disk by a rewind; zero: when it was made
	DiskIDBase   uint32                 `json:"disk_id_base,omitempty"`  // of the ids on its disk; 0 is HostIDBase
	WritableRoot bool                   `json:"writable_root,omitempty"` // what is written to the root is on the disk
	OwnerUID     uint32                 `json:"owner_uid"`
	OwnerGID     uint32                 `json:"owner_gid"`
	OwnerGroups  []uint32               `json:"owner_groups"`
	OwnerSystem  bool                   `json:"owner_system"`           // it is the daemon's own
	Nested       *peer.Usage            `json:"nested"`                 // what its descendants may have; nil is no socket
	NestedEnter  bool                   `json:"nested_enter"`           // it may enter its children
	NestedDepth  int                    `json:"nested_depth,omitempty"` // generations below it; 0 is 1, of an older daemon
	Held         *mount.Identity        `json:"held,omitempty"`         // ids on disk of a workspace held for its children; nil is none
	Parent       string                 `json:"parent"`
	Ancestors    []string               `json:"ancestors,omitempty"` // above its parent, the nearest first
	Bill         budget.Bill            `json:"bill,omitzero"`       // of its requests by routes
	Key          string                 `json:"key"`                 // of idempotency
	Settings     plan.CreateRequest     `json:"settings"`            // as it was asked for
	Began        *plan.CreateRequest    `json:"began,omitempty"`     // what it took from a snapshot

	Born    moment `json:"born,omitempty"` // when its TTL began; 0 where an older daemon made it
	Expires moment `json:"expires"`        // by its TTL
	idle.Clock
	FileWork bool `json:"file_work,omitempty"` // somebody works on files

	// Main is the command that the sandbox is for: it ends with it. 0 is none.
	Main     uint32   `json:"main"`
	MainArgs []string `json:"main_args"`
	Detached bool     `json:"detached"` // it stays after its end until it is removed
	Pooled   bool     `json:"pooled"`   // it waits for its request
	Ready    bool     `json:"ready"`    // it is all that was asked for
	Paused   bool     `json:"paused"`
	// Attaching says that it gets a workspace while it lives, or a snapshot at AttachingTo.
	Attaching   bool   `json:"attaching,omitempty"`
	AttachingTo string `json:"attaching_to,omitempty"`
	Halted      bool   `json:"halted,omitempty"` // it stands still while its disk is copied
	// Rewinding is the first id on the disk that it gets; nil: it gets none.
	Rewinding *uint32 `json:"rewinding,omitempty"`
	StopBy    moment  `json:"stop_by"`  // when the stop that is under way ends it; 0 is none
	Removing  bool    `json:"removing"` // it does not stay when it has ended

	PID      int    `json:"pid"`       // of PID 1, on the host
	PIDBegan uint64 `json:"pid_began"` // in ticks since the boot

	HostMounts []mount.Place `json:"host_mounts,omitempty"` // without isolation: the root and all below it

	FilterDigest string `json:"filter_digest"` // of the seccomp filters of PID 1, as they were found

	Warnings []string  `json:"warnings"`
	Stages   []Stage   `json:"stages"`
	ExitedAt time.Time `json:"exited_at"` // zero while it lives
	Stripped bool      `json:"stripped"`  // it holds nothing but what it keeps after its end
}

// execRecord is what is kept of one command.
type execRecord struct {
	Number      uint32         `json:"-"` // under which it is kept
	Args        []string       `json:"args"`
	Stdin       bool           `json:"stdin"` // it was started with an input
	TTY         bool           `json:"tty"`
	Detached    bool           `json:"detached"`
	OutputLimit int64          `json:"output_limit"`
	Deadline    moment         `json:"deadline"`
	Timeout     time.Duration  `json:"timeout"`
	Began       moment         `json:"began"`
	StartedAt   time.Time      `json:"started_at"`
	EndedAt     time.Time      `json:"ended_at"`
	Cgroup      string         `json:"cgroup"`           // of its own, below the sandbox's; empty is none
	Tag         uint32         `json:"tag,omitempty"`    // number of the cgroup that only tells what belongs to it; 0 is none
	Counted     limitCounts    `json:"counted"`          // for the sandbox before it began, see tally
	Used        cgroups.CPUUse `json:"used"`             // of a main command: for the making of its sandbox
	Over        Reason         `json:"over,omitempty"`   // why it is being ended: its time is over or it was canceled; empty is neither
	Ending      *ending        `json:"ending,omitempty"` // of a main command, before it is known what it took
	Result      *Result        `json:"result"`           // nil until it ended
	Caller      string         `json:"caller"`           // who asked for it, and
	RequestID   string         `json:"request_id"`       // by which call
}

// maxRecord bounds a record that is read, in bytes. One with the longest arguments,
// environment and policy is far smaller.
const maxRecord = 16 << 20

// writeRecord replaces the record at path in one step.
func writeRecord(path string, r any) error {
	const op = "runtime.record"
	data, err := json.Marshal(r)
	if err != nil {
		return sbxerr.Wrap(sbxerr.Internal, op, err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, op, err)
	}
	return sbxerr.Wrap(sbxerr.StateDir, op, owndir.Rename(tmp, filepath.Base(path)))
}

// writeLocked writes the record of s as it is now: with s.mu held, so that of two who
// write it the later one has the last word.
func (h *host) writeLocked(s *sandbox) error {
	return writeRecord(h.paths.record(s.id), s.record)
}

// readRecord reads what writeRecord wrote. What is torn, of another version or
// of another boot is an error: it is not guessed at.
func readRecord(path, boot string) (record, error) {
	var r record
	if err := readJSON(path, &r); err != nil {
		return record{}, err
	}
	known := r.Version == recordVersion || r.Version == childRecordVersion
	if !known || r.Boot != boot || !idForm.MatchString(r.ID) {
		return record{}, sbxerr.New(sbxerr.StateDir, "runtime.record",
			"record %q is of version %d and boot %q, not %d and %q", path, r.Version, r.Boot, recordVersion, boot)
	}
	return r, nil
}

func readJSON(path string, v any) error {
	data, err := owndir.ReadFile(path, maxRecord)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return sbxerr.Wrap(sbxerr.StateDir, "runtime.record", fmt.Errorf("read %q: %w", path, err))
	}
	return nil
}

// makeDir makes one directory with exactly mode, whatever the umask.
func makeDir(path string, mode fs.FileMode) error {
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.mkdir", owndir.Mkdir(path, mode))
}

func makeFile(path string) error {
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.mkfile", owndir.WriteFile(path, nil))
}

// removeFiles unlinks files and removes empty directories; absent ones are
// success.
func removeFiles(paths ...string) error {
	return sbxerr.Wrap(sbxerr.StateDir, "runtime.remove", owndir.Remove(paths...))
}

// newRecord returns the record of a sandbox with plan p, created at this wall-clock time.
func newRecord(p *plan.Sandbox, boot string, created time.Time) record {
	r := p.Request
	rec := record{
		Version: recordVersion, Boot: boot, ID: p.ID, Name: p.Name, Image: p.Image.Key(), ImageDigest: p.Image.Digest, ChainID: p.Image.ChainID, Verified: p.Image.Verified,
		Profile: p.ProfileName, Preset: &p.Profile, Network: p.Network, Asked: p.Asked(), Policy: p.Policy, Exposed: p.Exposed, User: p.User, Env: p.Env, Cwd: p.Cwd, CreatedAt: created,
		Labels: maps.Clone(r.Labels), Session: r.Session, Task: r.Task, Workspace: r.Workspace, Mounts: p.MountRequests, Limits: p.Limits,
		Key: r.Key, Settings: p.Settings, WritableRoot: p.WritableRoot,
	}
	if p.From != nil {
		rec.DiskIDBase, rec.Began = p.From.IDBase, &p.From.Request
	}
	rec.IdleTimeout, rec.OnIdle = p.IdleTimeout, p.OnIdle // a run takes the latter back
	if r.Nested != nil {
		most := usageOf(*r.Nested, p.Limits)
		rec.Nested, rec.NestedEnter, rec.NestedDepth = &most, p.Profile.NestedEnter, p.Grant.Depth(p.Profile.NestedDepth)
	}
	rec.belong(p.Grant)
	rec.Bill = billOf(p, rec)
	if rec.follows() {
		rec.Version = childRecordVersion
	}
	return rec
}

// keepRecord writes the record of s as it is now. A failure is logged: the
// sandbox goes on, and only a daemon that comes after this one would miss it.
func (h *host) keepRecord(s *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateRemoving { // its directory goes
		return
	}
	if err := h.writeLocked(s); err != nil {
		h.log.Error("keep record", "sandbox", s.id, "err", err)
	}
}

// above are the IDs of the parent of a sandbox and its ancestors, the nearest first.
func (r record) above() []string {
	if r.Parent == "" {
		return nil
	}
	return append([]string{r.Parent}, r.Ancestors...)
}

// belong notes to whom a sandbox belongs that is made under g.
func (r *record) belong(g peer.Grant) {
	o := g.Owner()
	r.OwnerUID, r.OwnerGID, r.OwnerGroups, r.OwnerSystem = o.UID, o.GID, o.Groups, o.IsSystem()
	if above := g.Above(); len(above) > 0 {
		r.Parent, r.Ancestors = above[0], above[1:]
	}
}
