package settings

import "slices"

// Set is a closed set of values of strings of the API. The OpenAPI document and the types of
// both SDKs are made from it.
type Set struct {
	Name    string   // of its type in the SDKs
	Values  []string // in the order in which they are told
	Fields  []string // of the API, as MESSAGE.FIELD
	OrEmpty []string // fields that may be empty too
}

// States are those that a sandbox may have. Only its history is left of a removed one.
var States = []string{"creating", "adopting", "running", "paused", "stopping", "exited", "removing", "removed"}

// Sets has every closed set. tests/layering compares it with the constants of the daemon.
var Sets = [...]Set{
	{
		Name: "SandboxState", Values: States,
		Fields: []string{"Sandbox.state", "SandboxStats.state", "HistoryResponse.state", "ListRequest.states", "StatsRequest.states"},
	},
	{Name: "ProcessState", Values: []string{"starting", "running", "exited"}, Fields: []string{"Exec.state"}},
	{
		Name: "Network", Values: []string{"none", "allow", "open", "bridge"},
		Fields:  []string{"CheckPolicyResponse.network", "ExplainPolicyResponse.network", "NetworkStats.network", "EventData.network"},
		OrEmpty: []string{"SandboxSpec.network", "PolicyQuery.network", "ResultSandbox.network", "Sandbox.network"},
	},
	{Name: "LiveNetwork", Values: []string{"allow", "open"}, Fields: []string{"UpdateRequest.network"}},
	{
		Name: "Isolation", Values: []string{"sandbox", "none"},
		Fields: []string{"EventData.isolation"}, OrEmpty: []string{"Sandbox.isolation"},
	},
	{
		Name: "RootFS", Values: []string{"ro", "rw"},
		Fields:  []string{"Snapshot.rootfs"},
		OrEmpty: []string{"SandboxSpec.rootfs"},
	},
	{Name: "OnIdle", Values: []string{"remove", "pause"}, Fields: []string{"UpdateRequest.on_idle"}, OrEmpty: []string{"SandboxSpec.on_idle", "Sandbox.on_idle"}},
	{Name: "PausedBy", Values: []string{"caller", "idle"}, OrEmpty: []string{"Sandbox.paused_by"}},
	{Name: "WorkspaceMode", Values: []string{"rw", "ro", "cow", "clone"}, OrEmpty: []string{"Workspace.mode"}},
	{Name: "MountType", Values: []string{"bind", "volume", "snapshot", "tmpfs"}, Fields: []string{"Mount.type"}},
	{
		Name:   "Reason",
		Values: []string{"exited", "signaled", "timeout", "oom", "canceled", "lost", "expired", "kernel_memory"},
		Fields: []string{"Result.reason"},
	},
	{Name: "Source", Values: []string{"command", "runtime"}, OrEmpty: []string{"Result.source"}},
	{
		Name:    "Cause",
		Values:  []string{"stopped", "removed", "daemon_stopped", "caller_left", "parent_ended", "sandbox_ended"},
		OrEmpty: []string{"Result.cause"},
	},
	{Name: "Limit", Values: []string{"memory", "pids", "cpu", "tmpfs", "disk", "volume"}, Fields: []string{"Result.limits_hit"}},
	{Name: "SharedLimit", Values: []string{"memory", "pids"}, Fields: []string{"ResultSandbox.limits_hit"}},
	{Name: "Stream", Values: []string{"stdout", "stderr"}, OrEmpty: []string{"LogsRequest.stream"}},
	{
		Name:   "LeftoverKind",
		Values: []string{"remains", "sandbox", "container", "cgroup", "output", "disk", "snapshot", "foreign"},
		Fields: []string{"Leftover.kind"},
	},
	{Name: "TemplateState", Values: []string{"ready", "building", "failed", "absent"}, Fields: []string{"Template.state"}},
	{Name: "FileType", Values: []string{"file", "directory", "symlink", "fifo", "socket", "device"}, Fields: []string{"FileInfo.type", "ChangeState.type"}},
	{Name: "ChangeKind", Values: []string{"added", "modified", "deleted", "renamed"}, Fields: []string{"Change.kind"}},
	{Name: "ConflictSide", Values: []string{"ours", "theirs"}, OrEmpty: []string{"ApplyRequest.conflicts"}},
	{Name: "FileChange", Values: []string{"create", "write", "remove", "rename", "chmod", "overflow"}, Fields: []string{"FileEvent.type"}},
	{Name: "FileAction", Values: []string{"read", "write", "make", "move", "remove", "copy_in", "copy_out"}, Fields: []string{"EventData.action"}},
	{
		Name:   "ImageSource",
		Values: []string{"oci-layout", "docker-archive", "rootfs", "from-host", "embedded", "registry", "build", "build-cache"},
		Fields: []string{"Image.source"},
	},
	{Name: "LayerState", Values: []string{"waiting", "fetching", "fetched", "stored", "present"}, Fields: []string{"LayerProgress.state"}},
	{
		Name:   "AttemptKind",
		Values: []string{"connection", "lookup", "link", "inbound", "packet", "request", "gap"},
		Fields: []string{"TrafficResponse.kind", "EventData.kind"},
	},
	{
		Name:    "AttemptVerdict",
		Values:  []string{"allowed", "refused", "failed", "cut", "idle", "stopped", "answered", "empty", "absent"},
		Fields:  []string{"EventData.verdict"},
		OrEmpty: []string{"TrafficResponse.verdict"},
	},
	{Name: "UsageScope", Values: []string{"sandbox", "session", "hour"}, Fields: []string{"RouteUsage.scope"}},
	{Name: "Support", Values: []string{"enforced", "best_effort", "unsupported"}, Fields: []string{"Capability.support"}},
	{Name: "CheckStatus", Values: []string{"ok", "warn", "fail", "unknown"}, Fields: []string{"DoctorCheck.status"}},
	{
		Name:   "ErrorClass",
		Values: []string{"invalid_input", "policy_refusal", "host", "engine_failure", "sandbox_down", "timeout", "internal"},
		Fields: []string{"ErrorDetail.class", "Error.class"},
	},
}

// SetOf returns the set of a field, and whether it may be empty; nil: its values are open.
func SetOf(field string) (set *Set, orEmpty bool) {
	for i := range Sets {
		if set = &Sets[i]; slices.Contains(set.Fields, field) {
			return set, false
		}
		if slices.Contains(set.OrEmpty, field) {
			return set, true
		}
	}
	return nil, false
}
