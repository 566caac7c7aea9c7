package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"time"

	caissonv1 "github.com/caisson-run/caisson/api/caisson/v1"
	"github.com/caisson-run/caisson/api/sbxerr"
	"github.com/caisson-run/caisson/api/settings"
	"github.com/caisson-run/caisson/cgroups"
	"github.com/caisson-run/caisson/initproto"
	"github.com/caisson-run/caisson/rootfs/mount"
	"github.com/caisson-run/caisson/runtime/peer"
)

// Request asks for a sandbox and the one command that it is made for.
type Request struct {
	Create CreateRequest
	Exec   ExecRequest
	// Learn lets the command reach all that is public, and tells in the result what
	// it reached. Only Run does that.
	Learn bool
	// LearnPrivate lets it reach names at private addresses too, but at none of the host.
	LearnPrivate bool
	// Keep has the sandbox stay after the command, as one of Create does. Only Run does that.
	Keep bool
}

// CreateRequest says what a sandbox is made of and how it is confined. An
// absent field takes the profile's value; what is named must be right: nothing
// is ignored.
type CreateRequest struct {
	Name           string   // unique among live sandboxes; empty is the ID
	Hostname       string   `json:",omitempty"` // empty is the ID
	Rootfs         string   `json:",omitempty"` // "ro" or "rw"; empty is the profile's
	From           string   `json:",omitempty"` // a snapshot whose disk it begins with, and whose settings where it names none
	SnapshotOnEnd  string   `json:",omitempty"` // name of the snapshot that is made of its disk when it ends
	Image          string   // empty is the profile's
	Language       string   // of the work; Planner.Languages has its image where nothing else names one
	LanguageReason string   // how the caller knows the language
	Profile        string   // empty is "strict"
	User           string   // name, uid or uid:gid of its commands; empty is the profile's
	Env            []string // K=V, of all its commands, added to the image's
	Network        string   // "none", "allow", "open" or "bridge"; empty is "allow" where Allow is given, else the profile's
	Allow          []string // egress rules, instead of the profile's; see package policy
	Deny           []string // egress rules, beside the profile's
	DNS            []string // resolvers to ask, among those that the operator allows
	Routes         []string // labels of routes, among those that the profile offers
	AllowECH       bool     // let TLS clients encrypt the name that they ask for, as the profile may
	Publish        []string // [ADDRESS:]PORT:PORT, ports of the host that lead to ports inside; see package ports
	Expose         []uint32 // ports inside to which links of the owner's other sandboxes may lead
	Links          []string // NAME=SANDBOX:PORT; see package policy
	Workspace      *WorkspaceRequest
	Mounts         []MountRequest    `json:",omitempty"` // beside the workspace
	Caches         []string          `json:",omitempty"` // names of tools, or NAME=PATH; none is the profile's
	Limits         *caissonv1.Limits // what is absent is the profile's; zero is an error and never means unlimited
	Labels         map[string]string
	Session        string // the caller's session ID
	Task           string // the caller's task ID
	// TTL ends the sandbox so long after its creation, IdleTimeout so long after
	// its last command ended, and removes it with what its commands wrote, also
	// while it is paused. Zero is never; nil is the profile's IdleTimeout, and the ceiling of
	// the caller's TTL, if there are such.
	TTL         *time.Duration
	IdleTimeout *time.Duration
	OnIdle      string `json:",omitempty"` // idle.Remove or idle.Pause; empty is the profile's
	// Nested gives the sandbox a socket by which it can make sandboxes of its
	// own. Nil is none.
	Nested *NestedRequest
	// Ensure returns the live sandbox of this Name when it was made with the
	// same settings, instead of refusing the name. One that has ended is replaced.
	Ensure bool
	// Replace ends and removes the caller's sandbox of this Name first.
	Replace bool
	// Build makes a sandbox for one step of an image's build: see oci.Config.Build. No call
	// of the API sets it.
	Build bool `json:",omitempty"`
	// Site lets names lead to private addresses in the mode open. Learning sets it.
	Site bool `json:",omitempty"`
	// Pooled makes a sandbox that waits for its request. No call of the API sets it.
	Pooled bool `json:",omitempty"`
	// Key makes a repeated request return the sandbox of the first one. Empty
	// is no key.
	Key string
}

// NestedRequest bounds what a sandbox may give to its children all together.
// Nil takes as much again as the sandbox itself has.
type NestedRequest struct {
	Sandboxes   *int64
	MemoryBytes *int64
	MilliCPU    *int64
}

// ExecRequest says what to run in a sandbox.
type ExecRequest struct {
	Args  []string // never through a shell
	Shell string   // a script for the image's /bin/sh, instead of Args
	Env   []string // K=V, added to the sandbox's
	Cwd   string   // absolute; empty is the workspace, else the image's
	User  string   // empty is the sandbox's
	Stdin bool     // the command gets an input; otherwise it reads /dev/null
	TTY   *WinSize // a terminal of this size; nil is none
	// Timeout ends the command. Nil is none.
	Timeout *time.Duration
	// OutputLimit bounds what is kept of each stream, in bytes. Nil is
	// [settings.DefaultOutputLimit].
	OutputLimit *int64
	// Rlimits lower resource limits below the sandbox's (setrlimit(2)).
	Rlimits []Rlimit
	// Limits bound the command and all that it starts, inside the sandbox's own
	// limits, by a cgroup of its own.
	Limits ExecLimits
	// Inputs are files that exist as long as the command runs.
	Inputs []InputRequest
}

// WinSize is the size of a terminal in characters.
type WinSize struct{ Rows, Cols uint16 }

// Rlimit is one resource limit by its name in setrlimit(2), such as
// RLIMIT_NOFILE. Soft must not exceed Hard, nor Hard the sandbox's.
type Rlimit struct {
	Name       string
	Soft, Hard uint64
}

// ExecLimits are the limits of one command's own cgroup. Nil leaves only the
// sandbox's; with all nil there is no cgroup.
type ExecLimits struct {
	MemoryBytes *int64
	MilliCPU    *int64
	PIDs        *int64
}

// WorkspaceRequest names a directory of the host to bind into the sandbox. A caller inside of
// a sandbox names one there.
type WorkspaceRequest struct {
	Dir  string // absolute path on the host, or inside of the calling sandbox
	Mode string // "rw", "ro", "cow" or "clone"; empty is "rw"
	Path string `json:",omitempty"` // where it is mounted inside, absolute; empty is WorkspacePath
}

// Point is where the workspace is mounted inside.
func (w *WorkspaceRequest) Point() string { return cmp.Or(w.Path, WorkspacePath) }

// MountRequest asks for one mount beside the workspace.
type MountRequest struct {
	Type      string // "bind", "volume", "snapshot" or "tmpfs"; for a build step also "tree" and "file"
	Source    string `json:",omitempty"` // of a bind: absolute path of a directory of the host; of a volume or snapshot: its name
	Target    string // where it is mounted inside, absolute
	ReadOnly  bool   `json:",omitempty"`
	SizeBytes *int64 `json:",omitempty"` // of a tmpfs; nil is that of every tmpfs
	Cow       bool   `json:",omitempty"` // of a volume or snapshot: what is written goes to the sandbox's disk
	// Layers are the directories of an image, the topmost first, of which a tree shows the file
	// or directory Source.
	Layers []string `json:"-"`
	// File is a file of memory, with ids of the inside.
	File *mount.MemoryFile `json:"-"`
}

// Targets are those of the mounts of type tmpfs, and of the binds with the workspace.
func (r CreateRequest) Targets() (tmpfs, binds []string) {
	if r.Workspace != nil {
		binds = append(binds, r.Workspace.Point())
	}
	for _, m := range r.Mounts {
		if m.Type == "tmpfs" {
			tmpfs = append(tmpfs, m.Target)
		} else {
			binds = append(binds, m.Target)
		}
	}
	return tmpfs, binds
}

// BindDirs are the directories of the host that r names beside the workspace.
func (r CreateRequest) BindDirs() (dirs []string) {
	for _, m := range r.Mounts {
		if m.Type == "bind" {
			dirs = append(dirs, m.Source)
		}
	}
	return dirs
}

// UnmarshalJSON reads the settings of a stored record. Older daemons spelled limits as Go does.
func (r *CreateRequest) UnmarshalJSON(text []byte) error {
	type plain CreateRequest
	stored := struct {
		*plain
		Limits map[string]*int64
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(text, &stored); err != nil || stored.Limits == nil {
		return err
	}
	r.Limits = &caissonv1.Limits{}
	for name, n := range stored.Limits {
		name = strings.ReplaceAll(name, "_", "")
		for i := range settings.Table {
			if strings.EqualFold(name, strings.ReplaceAll(settings.Table[i].Field, "_", "")) {
				*settings.Table[i].Asked(r.Limits) = n
			}
		}
	}
	return nil
}

// Limits bound one sandbox, resolved.
type Limits settings.Limits

// RatesIO reports whether the sandbox has a rate of I/O.
func (l Limits) RatesIO() bool { return l.IOReadBPS != 0 || l.IOWriteBPS != 0 }

// HardOpenFiles is how many files each process may open, after it raised its own limit.
func (l Limits) HardOpenFiles() int64 { return max(l.OpenFiles, hardOpenFiles) }

// Validate reports every limit that is out of range.
func (l Limits) Validate() error {
	errs := []error{l.Cgroup().Validate()}
	byMemory := tmpfsFor(l.MemoryBytes) // refused with the memory, where that is
	for i := range settings.Table {
		row := &settings.Table[i]
		n := *row.Of((*settings.Limits)(&l))
		if row.Controller == "" && (row.Zero == settings.Refused || n != byMemory) {
			errs = append(errs, row.Check(n))
		}
	}
	return errors.Join(errs...)
}

// Cgroup returns l in the form of package cgroups.
func (l Limits) Cgroup() cgroups.Limits { return cgroups.Limits(l) }

// Peer returns l in the form of package peer, which judges /dev/shm as a tmpfs.
func (l Limits) Peer() peer.Limits {
	own := peer.Limits(settings.Limits(l).Filled())
	own.ShmBytes, own.Disks = 0, ""
	return own
}

// Granted fills in the grant's defaults where r names nothing.
func (r CreateRequest) Granted(g peer.Grant) CreateRequest {
	r.TTL, r.Network = g.TTL(r.TTL), g.Network(r.Network, len(r.Allow)+len(r.Routes) > 0)
	return r
}

// NestedName is the API socket of a sandbox that may make sandboxes. It lies beside the
// socket of PID 1.
const NestedName = "api.sock"

// check refuses bounds that allow no child.
func (n *NestedRequest) check() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, f := range []struct {
		name  string
		bound *int64
	}{{"sandboxes", n.Sandboxes}, {"memory", n.MemoryBytes}, {"cpus", n.MilliCPU}} {
		if f.bound != nil && *f.bound <= 0 {
			errs = append(errs, sbxerr.New(sbxerr.Limits, "runtime.plan", "nested %s %d: give more than 0", f.name, *f.bound))
		}
	}
	return errors.Join(errs...)
}

// env tells commands where the API socket is.
func (n *NestedRequest) env() []string {
	if n == nil {
		return nil
	}
	return []string{"CAISSON_SOCKET=" + initproto.Dir + "/" + NestedName}
}
