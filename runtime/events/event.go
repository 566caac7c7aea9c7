package events

import (
	"bytes"
	"encoding/json"
	"path"
	"time"
)

// Type names what happened.
type Type string

// The types. What is about a command, a file or an attempt to connect is about a
// sandbox, too.
const (
	DaemonStarted  Type = "daemon.started" // with the digest of its configuration
	DaemonStopped  Type = "daemon.stopped"
	ConfigChanged  Type = "config.changed"  // the configuration was reloaded, with its digests
	AuditRecovered Type = "audit.recovered" // a record that was torn when a daemon was killed was cut off
	AuditBroken    Type = "audit.broken"    // the audit log is not what was signed
	EngineUp       Type = "engine.up"
	EngineDown     Type = "engine.down"

	SandboxCreated Type = "sandbox.created"
	SandboxAdopted Type = "sandbox.adopted" // from an earlier daemon
	SandboxUpdated Type = "sandbox.updated"
	SandboxPaused  Type = "sandbox.paused"
	SandboxResumed Type = "sandbox.resumed"
	SandboxCleaned Type = "sandbox.cleaned" // its processes were ended and its /tmp emptied
	SandboxRewound Type = "sandbox.rewound" // its processes were ended and it got the files of a snapshot
	SandboxEnded   Type = "sandbox.ended"
	SandboxRemoved Type = "sandbox.removed"

	ExecStarted  Type = "exec.started" // before the command can do anything
	ExecFailed   Type = "exec.failed"  // it was not started
	ExecSignaled Type = "exec.signaled"
	ExecEnded    Type = "exec.ended"

	LimitHit      Type = "limit.hit"
	LimitCleared  Type = "limit.cleared" // the limit of CPU no longer holds the sandbox back
	AlertRaised   Type = "alert.raised"  // a sandbox passed a threshold of its profile
	AlertCleared  Type = "alert.cleared" // it no longer does
	NetworkTried  Type = "network.tried" // a connection, lookup or packet, allowed or not
	FileRead      Type = "file.read"
	FileWritten   Type = "file.written"
	FileChanged   Type = "file.changed" // made, moved or removed
	ImageImported Type = "image.imported"
	ImageRemoved  Type = "image.removed"
	VolumeCreated Type = "volume.created"
	VolumeRemoved Type = "volume.removed"
	VolumeMerged  Type = "volume.merged"
	VolumeFailed  Type = "volume.failed" // what a run wrote could not be merged, and is lost

	SecretSet     Type = "secret.set" // by a call
	SecretRemoved Type = "secret.removed"

	KeyAdded   Type = "key.added" // callers from the network may use it
	KeyRemoved Type = "key.removed"

	SnapshotCreated Type = "snapshot.created"
	SnapshotRemoved Type = "snapshot.removed"

	TemplateBuilt  Type = "template.built"  // the set-up of a profile was done
	TemplateFailed Type = "template.failed" // it was not

	WorkspaceApplied Type = "workspace.applied" // changes of a copy-on-write workspace were written to the host

	ChangesetKept    Type = "changeset.kept"    // a sandbox ended with changes in its copy-on-write workspace
	ChangesetFailed  Type = "changeset.failed"  // they could not be kept: the disk stays until they can
	ChangesetRemoved Type = "changeset.removed" // it was applied, discarded, or past its retention

	PoolFailed  Type = "pool.failed" // a ready sandbox could not be made
	CallRefused Type = "call.refused"

	// Lost stands for events that a reader did not get, because it was too slow. It is
	// no event of the host and has no ID.
	Lost Type = "events.lost"
)

// Types lists the types that Emit takes, in the order of the documentation.
func Types() []Type {
	return []Type{
		DaemonStarted, DaemonStopped, ConfigChanged, AuditRecovered, AuditBroken, EngineUp, EngineDown,
		SandboxCreated, SandboxAdopted, SandboxUpdated, SandboxPaused, SandboxResumed, SandboxCleaned, SandboxRewound, SandboxEnded, SandboxRemoved,
		ExecStarted, ExecFailed, ExecSignaled, ExecEnded,
		LimitHit, LimitCleared, AlertRaised, AlertCleared, NetworkTried, FileRead, FileWritten, FileChanged, ImageImported, ImageRemoved, VolumeCreated, VolumeRemoved, VolumeMerged, VolumeFailed, SecretSet, SecretRemoved, KeyAdded, KeyRemoved, SnapshotCreated, SnapshotRemoved, TemplateBuilt, TemplateFailed, WorkspaceApplied, ChangesetKept, ChangesetFailed, ChangesetRemoved, PoolFailed, CallRefused,
	}
}

// Event is one thing that happened on the host.
type Event struct {
	ID     string // its place in the stream, see Cursor
	Source string // the daemon
	Time   time.Time
	Type   Type
	Scope  Scope
	Data   Data

	// Trace is the traceparent of the call that led to the event (W3C Trace Context, section
	// 3.2), empty if none did. It is for observers alone: no record has it.
	Trace string

	size int // of its JSON, in bytes
}

// Scope says who may know of an event.
type Scope struct {
	Host   bool   // root and the daemon alone
	Owner  uint32 // UID of the user to whom it belongs
	Parent string // ID of the sandbox from inside of which it came; empty is none
}

// Subject names what the event is about, as a path of the API.
func (e *Event) Subject() string {
	switch d := &e.Data; {
	case d.SandboxID != "" && d.ExecID != "":
		return path.Join("sandboxes", d.SandboxID, "execs", d.ExecID)
	case d.SandboxID != "":
		return path.Join("sandboxes", d.SandboxID)
	case d.Image != "":
		return path.Join("images", d.Image)
	case d.Volume != "":
		return path.Join("volumes", d.Volume)
	case d.Snapshot != "":
		return path.Join("snapshots", d.Snapshot)
	}
	return ""
}

// Prefix begins the type of every event on the wire, as CloudEvents asks for.
const Prefix = "run.caisson."

// envelope is an event in the JSON form of CloudEvents 1.0.
type envelope struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"`
	Source      string    `json:"source"`
	Type        string    `json:"type"`
	Time        time.Time `json:"time"`
	Subject     string    `json:"subject,omitempty"`
	Data        *Data     `json:"data"`
}

// MarshalJSON is the form that the audit log has, and the API.
func (e *Event) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := e.encode(&b)
	return b.Bytes(), err
}

// encode writes e as one line of JSON without its end.
func (e *Event) encode(to *bytes.Buffer) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	err := enc.Encode(envelope{"1.0", e.ID, e.Source, Prefix + string(e.Type), e.Time, e.Subject(), &e.Data})
	to.Truncate(max(0, to.Len()-1))
	return err
}
