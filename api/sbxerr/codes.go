package sbxerr

// The codes. Append only: a golden file makes a removal or a renumbering fail.
const (
	Unknown  Code = "SBX-000" // a bug: some error left its package unwrapped
	Internal Code = "SBX-001" // an invariant of the runtime did not hold
	Canceled Code = "SBX-002" // the caller went away or cancelled
	Deadline Code = "SBX-003" // a step of the runtime took longer than it may
	NoFiles  Code = "SBX-004" // the daemon, or the host, may open no more files

	Config        Code = "SBX-101" // the request can never succeed as written
	Limits        Code = "SBX-102" // a resource limit is absent or out of range
	Profile       Code = "SBX-103" // no such profile
	Workspace     Code = "SBX-104" // the directory of a workspace or mount is refused
	DaemonConf    Code = "SBX-105" // the daemon's configuration is refused
	Exists        Code = "SBX-106" // the name or ID is taken
	NotFound      Code = "SBX-107" // no such sandbox
	State         Code = "SBX-108" // the sandbox is not in a state that allows this
	Rights        Code = "SBX-109" // a right (root, a capability) is missing
	Locked        Code = "SBX-110" // another daemon holds this root
	IDRange       Code = "SBX-111" // no free block of host ids, or the range is taken
	UserNS        Code = "SBX-112" // user namespaces cannot be used on this host
	Busy          Code = "SBX-113" // too many sandboxes, commands or requests at once
	Paused        Code = "SBX-114" // the sandbox is paused
	ExecNotFound  Code = "SBX-115" // the sandbox has no such command
	Processes     Code = "SBX-116" // a limit of processes leaves no room for another
	StatePath     Code = "SBX-117" // sandboxes cannot pass a directory above the daemon's state
	ExecForgotten Code = "SBX-118" // the command has ended, and its result is no longer kept
	Unisolated    Code = "SBX-119" // a setting cannot be enforced without isolation
	Backup        Code = "SBX-120" // a backup is cut short, was changed, or has another version
	RestoreExists Code = "SBX-121" // items of a backup exist already

	ImageNotFound Code = "SBX-201" // no such image
	ImageFormat   Code = "SBX-202" // the archive is not an image in a known form
	ImageContent  Code = "SBX-203" // the image holds what no image may hold
	ImageTooBig   Code = "SBX-204" // the image exceeds a limit of the import
	ImageUser     Code = "SBX-205" // the image's or the request's user does not resolve
	Mount         Code = "SBX-206" // a mount of the sandbox could not be made
	IDMap         Code = "SBX-207" // the file system cannot map ids
	Overlay       Code = "SBX-208" // the file system or kernel cannot do overlays
	FromHost      Code = "SBX-209" // software of the host could not be collected
	ImageInUse    Code = "SBX-210" // the image is needed by a sandbox
	FilePath      Code = "SBX-211" // the path in the sandbox is not one that can be used
	FileAbsent    Code = "SBX-212" // no such file or directory in the sandbox
	FileRights    Code = "SBX-213" // the sandbox's user may not do this to the file
	FileExists    Code = "SBX-214" // the file exists, or the directory is not empty
	FileKind      Code = "SBX-215" // the file is of another kind than the operation needs
	FileSpace     Code = "SBX-216" // the sandbox has no room left for the file
	FileTooBig    Code = "SBX-217" // a file, tree or archive exceeds a limit of the file operations
	Archive       Code = "SBX-218" // the archive is malformed or holds what may not be copied
	FileFailed    Code = "SBX-219" // the sandbox's file system refused or failed an operation
	ImageExists   Code = "SBX-220" // there is another image of that name
	ImageDamaged  Code = "SBX-221" // the stored copy of the image is damaged
	CopyTooBig    Code = "SBX-223" // a copy out of the sandbox is larger than the caller allows

	PullRefused     Code = "SBX-224" // the configuration does not allow to fetch this image
	Registry        Code = "SBX-225" // the registry does not answer, or not as it should
	RegistryAuth    Code = "SBX-226" // the registry does not give the image to this user
	ImageUnverified Code = "SBX-227" // the image is not what a policy of verification demands
	Dockerfile      Code = "SBX-228" // a line of a Dockerfile is refused
	BuildFailed     Code = "SBX-229" // a step of a build failed
	Bundle          Code = "SBX-230" // a bundle is not what its manifest and signature say

	VolumeNotFound Code = "SBX-231" // no such volume
	VolumeInUse    Code = "SBX-232" // the volume is needed by a sandbox
	ImageProcess   Code = "SBX-233" // the process that reads an image, a Dockerfile or changes ended
	Disk           Code = "SBX-234" // a disk for a sandbox could not be made

	SnapshotNotFound Code = "SBX-235" // no such snapshot
	SnapshotImage    Code = "SBX-236" // the image of a snapshot is another now
	SnapshotDisk     Code = "SBX-237" // the sandbox has no disk of which to make a snapshot

	SnapshotWorkspace Code = "SBX-238" // a snapshot would leave out what changed in a copy-on-write workspace

	ApplyConflict Code = "SBX-239" // the host changed what is to be applied
	ApplyRenamed  Code = "SBX-240" // a live sandbox needs a directory under its old name
	ApplyFailed   Code = "SBX-241" // the directory of the host does not take the changes

	ChangesetNotFound Code = "SBX-242" // no such changeset
	VolumeSize        Code = "SBX-243" // the volume has another size

	TemplateFailed   Code = "SBX-244" // the set-up of a profile failed
	TemplateNotFound Code = "SBX-245" // the profile has no set-up

	SnapshotMismatch Code = "SBX-246" // a snapshot does not fit a live sandbox
	SnapshotArchive  Code = "SBX-247" // an archive holds no snapshot
	SnapshotVersion  Code = "SBX-248" // an archive holds a snapshot of a newer version
	SnapshotName     Code = "SBX-249" // a name in a snapshot means something else in an archive
	CloneSource      Code = "SBX-250" // the directory cannot be cloned
	CloneImage       Code = "SBX-251" // the image has no git to make a clone with
	CloneFailed      Code = "SBX-252" // git in the sandbox could not make the clone
	SnapshotPath     Code = "SBX-253" // no snapshot can be made of the directory

	Seccomp        Code = "SBX-301" // the filter is invalid or cannot be enforced here
	SeccompProfile Code = "SBX-302" // no such seccomp profile
	SeccompMemory  Code = "SBX-303" // the host has no memory left for compiled filters
	SeccompUnread  Code = "SBX-304" // the filter in force cannot be read back or compared

	Network     Code = "SBX-401" // the sandbox's network namespace could not be made
	NetRule     Code = "SBX-402" // a filter rule was rejected; nothing was let through
	NetworkMode Code = "SBX-403" // the network mode is unknown or not offered
	NetPolicy   Code = "SBX-404" // an egress policy is refused as written
	PortTaken   Code = "SBX-405" // a port to publish is not free on the host
	NetChild    Code = "SBX-406" // a child would have more network than its parent
	PortClosed  Code = "SBX-407" // nothing listens on a port inside the sandbox

	RouteNotOffered Code = "SBX-408" // a request names a route that its profile does not offer
	PortClient      Code = "SBX-409" // a client is not one of those for which a port is published

	Cgroup           Code = "SBX-501" // a cgroup could not be made, read or removed
	CgroupController Code = "SBX-502" // a controller that a limit needs is missing
	KernelMemory     Code = "SBX-503" // the sandbox took too much kernel memory that no limit counts
	SocketMemory     Code = "SBX-504" // the memory of sockets cannot be counted

	Engine        Code = "SBX-601" // containerd refused or failed an operation
	EngineDown    Code = "SBX-602" // containerd does not answer
	EngineVersion Code = "SBX-603" // containerd or runc is too old or known to be vulnerable
	Init          Code = "SBX-604" // caisson-init did not answer or broke its protocol
	Posture       Code = "SBX-605" // the live sandbox differs from what was declared
	Binary        Code = "SBX-606" // a binary of the installation is missing or not usable
	NotExecutable Code = "SBX-607" // the command exists but cannot be executed
	CommandAbsent Code = "SBX-608" // the command was not found
	StateDir      Code = "SBX-609" // the daemon's own files cannot be read or written
	Quarantined   Code = "SBX-610" // something in the daemon's directories is skipped
	OutputLost    Code = "SBX-611" // output of the command was lost before its caller had it

	EgressDenied   Code = "SBX-701" // no rule of the sandbox allows the destination
	EgressAddress  Code = "SBX-702" // the name leads to an address that is not public
	EgressMismatch Code = "SBX-703" // a connection does not name the host that it was made to
	EgressResolve  Code = "SBX-704" // an allowed name does not resolve
	EgressDial     Code = "SBX-705" // an allowed destination does not answer
	EgressBusy     Code = "SBX-706" // a limit of the sandbox's gateway is reached
	Gateway        Code = "SBX-707" // the gateway of a sandbox failed; nothing gets out meanwhile

	EgressProxy     Code = "SBX-708" // the operator's upstream proxy does not connect to an allowed destination
	EgressProxyDown Code = "SBX-709" // the operator's upstream proxy does not answer

	EgressECH Code = "SBX-710" // a TLS hello may hide the name that a rule depends on

	EgressRoute Code = "SBX-711" // a route does not pass a request or its answer on
	Secret      Code = "SBX-712" // a secret is absent or its value cannot be used
	Budget      Code = "SBX-713" // the budget of a route is used up

	SecretNotFound Code = "SBX-714" // no such secret
	SecretInUse    Code = "SBX-715" // a route uses the secret

	APIUsage  Code = "SBX-801" // the call or command line is malformed
	DaemonOff Code = "SBX-802" // no daemon listens on the socket
	APIBroken Code = "SBX-803" // the connection to the daemon broke
	ClientIO  Code = "SBX-804" // the caller's own file, input or output failed
	Peer      Code = "SBX-805" // the peer may not do this

	EventsGone   Code = "SBX-806" // the events after a cursor are no longer kept
	EventsFilter Code = "SBX-807" // a filter of events cannot be read

	PageToken Code = "SBX-808" // the page was called without its token, or with a stale one
	PageGuard Code = "SBX-809" // the page does not serve this request

	KeyRefused  Code = "SBX-810" // a caller from the network shows no key or certificate that counts
	NotRemote   Code = "SBX-811" // it is not for callers from the network
	KeyNotFound Code = "SBX-812" // there is no such key
	NoContext   Code = "SBX-813" // there is no such context of the command line
	TLSRefused  Code = "SBX-814" // the TLS connection to the daemon cannot be trusted, or is refused

	AuditWrite  Code = "SBX-901" // a record of the audit log cannot be written
	AuditBroken Code = "SBX-902" // the audit log was changed, cut or reordered
	ExportAway  Code = "SBX-903" // a receiver of the audit log cannot be reached
)

// Class says who can act on a failure.
type Class string

// The classes, a small closed set.
const (
	ClassInput    Class = "invalid_input"  // the caller must change the request
	ClassPolicy   Class = "policy_refusal" // the operator does not allow it
	ClassHost     Class = "host"           // the host lacks something; see doctor
	ClassEngine   Class = "engine_failure" // containerd, runc or the kernel failed
	ClassSandbox  Class = "sandbox_down"   // the sandbox is not there or not able
	ClassTimeout  Class = "timeout"        // a deadline passed
	ClassInternal Class = "internal"       // a bug
)

// Description is what a Code means to its reader.
type Description struct {
	Code      Code
	Summary   string // one line, lower case, no full stop
	Class     Class
	HTTP      int  // status of the same failure over HTTP
	Retryable bool // the same call may succeed later without a change
	Remedy    string
}
