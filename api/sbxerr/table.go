package sbxerr

import "slices"

// table is the one place where codes are explained; docs/reference/errors.md is made
// from it (go run ./sbxerr/gendoc).
var table = []Description{
	{Unknown, "unclassified failure", ClassInternal, 500, false, "report it with the daemon's log: an error left its package without a code"},
	{Internal, "an invariant of the runtime did not hold", ClassInternal, 500, false, "report it with the daemon's log"},
	{Canceled, "the caller disconnected or canceled the call", ClassTimeout, 499, true, "nothing to do: the operation was canceled and its changes were undone"},
	{Deadline, "a step took too long", ClassTimeout, 504, true, "retry; if it persists, check I/O and CPU pressure on the host"},
	{NoFiles, "no more files can be opened", ClassHost, 503, true, "retry when fewer sandboxes run; if it persists, raise the daemon's limit of open files (LimitNOFILE= of its unit, ulimit -n) or the host's (sysctl fs.file-max)"},

	{Config, "the request can never succeed as written", ClassInput, 400, false, "correct the value that the message names"},
	{Limits, "a resource limit is absent or out of range", ClassInput, 400, false, "give a positive size such as 512M, a CPU count such as 1.5, or a count such as 256"},
	{Profile, "no such profile", ClassInput, 400, false, "name a profile that the message lists, or define it under profiles: in the daemon's configuration"},
	{Workspace, "the directory of a workspace or mount is refused", ClassPolicy, 403, false, "name an existing directory inside the allowed roots (workspaces.allowed_roots in the configuration)"},
	{DaemonConf, "the daemon's configuration is refused", ClassInput, 400, false, "correct the key that the message names; docs/reference/configuration.md lists them all"},
	{Exists, "the name or ID is taken", ClassInput, 409, false, "choose another name, or remove the sandbox that holds it: caisson rm --force NAME"},
	{NotFound, "no such sandbox", ClassSandbox, 404, false, "list sandboxes: caisson ls"},
	{State, "the state of the sandbox does not allow this", ClassSandbox, 409, true, "check the state: caisson inspect SANDBOX; an exited sandbox only has logs and can be removed"},
	{Rights, "a right is missing", ClassHost, 403, false, "run the daemon as root, with the capabilities that the message names"},
	{Locked, "another daemon holds this root", ClassHost, 409, false, "use that daemon, stop it, or give this one its own --root, --state and --socket"},
	{IDRange, "no free block of host ids", ClassHost, 503, true, "remove sandboxes, or widen ids.blocks in the configuration"},
	{UserNS, "user namespaces cannot be used on this host", ClassHost, 503, false, "enable them: sysctl user.max_user_namespaces must be above 0"},
	{Busy, "too many sandboxes, commands or requests at once", ClassPolicy, 429, true, "retry later, or end something first; a bound that can be raised is named in the message with its configuration key (sandboxes.max, sandboxes.queue) or peer quota"},
	{Paused, "the sandbox is paused", ClassSandbox, 409, true, "resume it first: caisson resume NAME"},
	{ExecNotFound, "the sandbox has no such command", ClassInput, 404, false, "list its commands: caisson ps SANDBOX"},
	{Processes, "a process limit is reached", ClassPolicy, 429, true, "end processes in the sandbox (caisson kill --all ends a command with all its processes), or create a sandbox with more --pids"},
	{StatePath, "a directory above the daemon's state is closed to sandboxes", ClassHost, 503, false, "open it (chmod o+x DIR), or use another --state"},
	{ExecForgotten, "the command has ended, and its result is no longer kept", ClassSandbox, 404, false, "ask before so many later commands have ended, or raise sandboxes.kept_execs"},
	{Unisolated, "the setting cannot be enforced without isolation", ClassInput, 400, false, "leave it out, or use a profile with isolation, such as strict"},

	{ImageNotFound, "no such image", ClassInput, 404, false, "list images: caisson image ls; get one with caisson image pull, import or from-host"},
	{ImageFormat, "the archive has no known image format", ClassInput, 400, false, "give an OCI layout (tar or folder), a docker-archive (docker save), a root file system tar, or a folder"},
	{ImageContent, "the image has a forbidden entry", ClassPolicy, 422, false, "rebuild the image without the entry that the message names"},
	{ImageTooBig, "the image exceeds an import limit", ClassPolicy, 413, false, "make the image smaller, or raise images.max_bytes or images.max_entries in the configuration"},
	{ImageUser, "the user does not resolve", ClassInput, 400, false, "give numeric ids such as 1000:1000, or a name that is in the image's /etc/passwd"},
	{Mount, "a mount of the sandbox failed", ClassEngine, 500, false, "caisson doctor checks the file systems in use"},
	{IDMap, "the file system cannot map ids", ClassHost, 503, false, "put the directory on ext4, xfs or btrfs, or use a kernel with idmapped mounts for this file system"},
	{Overlay, "overlay mounts do not work here", ClassHost, 503, false, "put the daemon's root on ext4, xfs or btrfs and load the overlay module"},
	{FromHost, "software of the host could not be collected", ClassInput, 422, false, "name an installed package or an existing path"},
	{ImageInUse, "a sandbox uses the image", ClassInput, 409, true, "remove the sandboxes that the message names first"},
	{FilePath, "the path cannot be used", ClassInput, 400, false, "give the absolute path of a file or directory in the sandbox"},
	{FileAbsent, "no such file or directory in the sandbox", ClassInput, 404, false, "check the path inside the sandbox; its parent directory must exist too"},
	{FileRights, "the sandbox's user may not do this to the file", ClassInput, 403, false, "check the owner and mode inside the sandbox; its root file system is read-only"},
	{FileExists, "the file exists, or the directory is not empty", ClassInput, 409, false, "choose another name, or ask to replace or to remove recursively"},
	{FileKind, "the file has the wrong type", ClassInput, 422, false, "check the type with stat: only regular files can be read and written, and only directories listed"},
	{FileSpace, "the sandbox has no room left for the file", ClassInput, 413, false, "remove files inside, or give the sandbox more tmpfs or disk"},
	{FileTooBig, "a limit of file operations is exceeded", ClassInput, 413, false, "copy in parts"},
	{Archive, "the archive is malformed or has a forbidden entry", ClassInput, 422, false, "give a complete, uncompressed tar without the entry that the message names"},
	{FileFailed, "the sandbox's file system failed an operation", ClassSandbox, 500, false, "the message names the reason; files that the kernel generates, as in /proc, are left out of copies and often cannot be copied"},
	{ImageExists, "another image has this name", ClassInput, 409, false, "choose the name: caisson image import --name NAME; the name of one of your images replaces it"},
	{ImageDamaged, "the stored copy of the image is damaged", ClassHost, 500, false, "import the image again, or remove it: caisson image rm"},
	{CopyTooBig, "the copy out of the sandbox is larger than the caller allows", ClassInput, 413, false, "raise the bound: --max-bytes SIZE, or max_bytes in the API"},
	{PullRefused, "the configuration does not allow this image to be fetched", ClassPolicy, 403, false, "allow the registry under registries: in the daemon's configuration, or import the image from a file"},
	{Registry, "the registry does not answer as it should", ClassHost, 502, true, "check that the registry can be reached from the daemon's host; a pull that is repeated goes on where it was"},
	{RegistryAuth, "the registry does not give the image to this user", ClassInput, 403, false, "log in to the registry (docker login), or check the name"},
	{ImageUnverified, "the image is not verified as the configuration demands", ClassPolicy, 403, false, "use a digest or a signed image that registries.verify in the daemon's configuration accepts"},
	{Dockerfile, "a line of the Dockerfile is refused", ClassInput, 400, false, "correct the line that the message names; docs/reference/images.md lists the supported instructions"},
	{BuildFailed, "a step of the build failed", ClassInput, 422, false, "look at the output of the step; give it more --memory, --timeout or --allow if it lacks that"},
	{Bundle, "the bundle is damaged or not signed by the key", ClassInput, 422, false, "copy the bundle again, or name the key of its maker; nothing was loaded"},
	{VolumeNotFound, "no such volume", ClassInput, 404, false, "list volumes: caisson volume ls; create makes one, and so does the first sandbox that mounts it"},
	{VolumeInUse, "a sandbox uses the volume", ClassInput, 409, true, "remove the sandboxes that the message names first"},
	{ImageProcess, "the process that reads an image, a Dockerfile or changes ended", ClassHost, 503, true, "try again; nothing of the work was kept"},
	{SnapshotNotFound, "no such snapshot", ClassInput, 404, false, "list snapshots: caisson snapshot ls"},
	{SnapshotImage, "the image of the snapshot is another now", ClassInput, 409, false, "tag the image that the message names under that name again, or make a snapshot of a sandbox of the new one"},
	{SnapshotDisk, "the sandbox has no disk to make a snapshot of", ClassInput, 409, false, "create the sandbox with --rootfs rw, or with --disk for a /workspace of its own"},
	{SnapshotWorkspace, "a snapshot has no changes of a copy-on-write workspace", ClassInput, 409, false, "create the sandbox with the files on its own disk: --disk SIZE, and caisson cp DIR SANDBOX:/workspace"},
	{ApplyConflict, "the host changed what is to be applied", ClassInput, 409, false, "say which side counts: ours (the host's) or theirs (the sandbox's); or name other paths: caisson apply SANDBOX PATH"},
	{ApplyRenamed, "a renamed directory cannot be applied while the sandbox lives", ClassInput, 409, false, "name the other paths, or have the sandbox move the files into a new directory (mkdir, mv old/* new/)"},
	{ApplyFailed, "the directory of the host does not take the changes", ClassHost, 503, false, "the message names the reason; nothing was changed, or the next command on the sandbox finishes it"},
	{ChangesetNotFound, "no such changeset", ClassInput, 404, false, "list changesets: caisson changes ls; one goes when it is applied, discarded or past its retention"},
	{VolumeSize, "the volume has another size", ClassInput, 409, false, "leave the size out, or give the one that it has; for another one copy the files to a new volume"},
	{TemplateFailed, "the set-up of the profile failed", ClassInput, 422, false, "look at its log: caisson template inspect PROFILE; root builds it again with caisson template build PROFILE"},
	{TemplateNotFound, "the profile has no set-up", ClassInput, 404, false, "list the profiles that have one: caisson template ls; setup: in a profile of the configuration gives it one"},
	{CloneSource, "the directory cannot be cloned", ClassInput, 422, false, "name a git repository with its working tree and all its objects, or take the files as they are: --workspace DIR:cow"},
	{CloneImage, "the image has no git to make a clone with", ClassInput, 422, false, "name an image with git and a shell, or take --workspace DIR:cow"},
	{CloneFailed, "git in the sandbox could not make the clone", ClassInput, 422, false, "do what git says in the message, or take --workspace DIR:cow"},
	{Disk, "a disk for a sandbox could not be made", ClassHost, 503, false, "caisson doctor says what the host lacks: e2fsprogs, loop devices or room below root"},

	{Seccomp, "the seccomp filter cannot be enforced", ClassHost, 503, false, "use the runc of this installation; caisson doctor names the missing feature"},
	{SeccompProfile, "no such seccomp profile", ClassInput, 400, false, "use strict, compat or debug"},
	{SeccompMemory, "the host has no memory left for compiled filters", ClassHost, 503, true, "raise net.core.bpf_jit_limit (sysctl), or end host programs that load many filters"},
	{SeccompUnread, "the seccomp filter in force cannot be read back", ClassHost, 503, false, "no command ran; caisson doctor names what keeps the daemon from reading filters"},

	{Network, "the network namespace could not be created", ClassEngine, 500, false, "caisson doctor checks network namespaces"},
	{NetRule, "a filter rule was rejected", ClassEngine, 500, false, "caisson doctor checks the iptables flavour in use"},
	{NetworkMode, "the network mode is unknown or not offered", ClassPolicy, 400, false, "use none, allow or open, or bridge where the operator offers it"},

	{NetPolicy, "an egress policy is refused as written", ClassInput, 400, false, "write rules as HOST[:PORT][+PORT...][,private][,opaque], for example github.com:443+22, *.example.com or 10.1.0.0/16:5432,private"},
	{PortTaken, "a published port is taken on the host", ClassInput, 409, false, "publish another port, or port 0 to pick a free one; caisson ls --json lists published ports"},
	{PortClosed, "nothing listens on the port inside the sandbox", ClassSandbox, 409, true, "start the server first, and have it listen on localhost or on all addresses"},
	{NetChild, "a child sandbox would have more network than its parent", ClassPolicy, 403, false, "allow destinations that the parent may reach, or have the parent's policy widened from outside: caisson update --allow"},

	{Cgroup, "a cgroup operation failed", ClassEngine, 500, false, "caisson doctor shows the cgroup layout"},
	{CgroupController, "a cgroup controller is missing", ClassHost, 503, false, "enable the controller that the message names (kernel command line or the parent's cgroup.subtree_control)"},
	{KernelMemory, "the sandbox used too much kernel memory outside its limits", ClassSandbox, 409, false, "hold fewer file locks and sockets inside, read error queues of sockets, and accept pending connections"},
	{SocketMemory, "the memory of sockets cannot be counted", ClassHost, 503, false, "use Linux 5.17 or later with CONFIG_DEBUG_INFO_BTF, mount cgroup2, give the daemon CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and start it again"},

	{Engine, "containerd failed an operation", ClassEngine, 502, true, "see the daemon's log and containerd.log in its root"},
	{EngineDown, "containerd does not answer", ClassEngine, 503, true, "retry: the daemon restarts its own containerd; start a containerd of the host yourself"},
	{EngineVersion, "containerd or runc is too old or known to be vulnerable", ClassHost, 503, false, "use the binaries of the newest version of caisson, or update the host's"},
	{Init, "caisson-init did not answer or broke its protocol", ClassSandbox, 502, true, "remove the sandbox and start another"},
	{Posture, "the live sandbox differs from its declaration", ClassEngine, 500, false, "no command ran; report the difference in the message with caisson doctor --json"},
	{Binary, "a binary of the installation is missing", ClassHost, 503, false, "install all binaries: make install, or use --bin-dir DIR"},
	{NotExecutable, "the command cannot be executed", ClassInput, 422, false, "check the file's mode and its interpreter inside the image"},
	{CommandAbsent, "the command was not found", ClassInput, 404, false, "check the name and the PATH inside the image"},
	{StateDir, "the daemon's own files cannot be read or written", ClassHost, 500, false, "check space, inodes and rights of the daemon's root and state directories"},
	{Quarantined, "an entry in the daemon's directories cannot be removed, or is not its own, and is skipped", ClassHost, 500, false, "check the entry that the message names, remove its user, and run caisson cleanup"},
	{OutputLost, "output of the command was lost before the caller read it", ClassHost, 500, false, "free space on the daemon's root and run the command again, or write its output to a file in the sandbox"},

	{EgressDenied, "no rule allows the destination", ClassPolicy, 403, false, "add the rule that the message names"},
	{EgressAddress, "the name resolves to an address that is not public", ClassPolicy, 403, false, "if the host is internal, add private to its rule: HOST:PORT,private"},
	{EgressMismatch, "the connection does not name its host", ClassPolicy, 403, false, "send the name of the connection in the HTTP Host header or in TLS SNI"},
	{EgressResolve, "an allowed name does not resolve", ClassHost, 502, true, "check the name, and the host's resolvers"},
	{EgressDial, "an allowed destination does not answer", ClassHost, 502, true, "check that the destination is reachable from the host"},
	{EgressBusy, "a limit of the sandbox's gateway is reached", ClassPolicy, 429, true, "use fewer connections or names at once, or retry later"},
	{Gateway, "the gateway of a sandbox failed", ClassEngine, 502, true, "retry: the daemon restarts it, and nothing leaves the sandbox meanwhile; see the daemon's log"},
	{EgressProxy, "the host's upstream proxy does not connect to the destination", ClassHost, 502, false, "ask the operator of the proxy to allow the destination"},
	{EgressProxyDown, "the host's upstream proxy does not answer", ClassHost, 502, true, "check the proxy, and network.upstream_proxy in the daemon's configuration; public addresses are only reached through it"},
	{EgressECH, "a TLS hello may hide the name that a rule depends on", ClassPolicy, 403, false, "turn encrypted client hello (ECH) and its GREASE off in the client, or start the sandbox with --allow-ech"},
	{EgressRoute, "a route does not pass a request or its answer on", ClassPolicy, 403, false, "send what the route of the profile allows, in plain HTTP/1.1"},
	{Secret, "a secret is absent or its value cannot be used", ClassHost, 502, false, "check the source of the secret in the daemon's configuration, then reload the daemon"},
	{Budget, "the budget of a route is used up", ClassPolicy, 429, false, "wait until its scope is over, or have the operator raise budget of the profile's route"},
	{SecretNotFound, "no such secret", ClassInput, 404, false, "list secrets: caisson secret ls; caisson secret set adds one"},
	{SecretInUse, "a route uses the secret", ClassInput, 409, false, "take it out of the routes that the message names, then caisson config reload"},

	{APIUsage, "the call is malformed", ClassInput, 400, false, "caisson help shows the usage"},
	{DaemonOff, "no daemon listens on the socket", ClassHost, 503, true, "start it as root: caissond (or set CAISSON_SOCKET to the socket of a running one)"},
	{APIBroken, "the connection to the daemon broke", ClassEngine, 502, true, "check that the daemon runs; a foreground run ends with its connection"},
	{ClientIO, "the caller's own file, input or output failed", ClassInput, 400, false, "check that the file exists, its permissions, and free space"},
	{Peer, "the peer may not do this", ClassPolicy, 403, false, "ask the operator to grant it under peers: in the daemon's configuration"},
	{EventsGone, "the events after a cursor are no longer kept", ClassInput, 404, false, "read on without since; the audit log of the host has what was missed"},
	{EventsFilter, "a filter of events cannot be read", ClassInput, 400, false, "give KEY=VALUE, such as type=exec.ended or sandbox=NAME"},
	{PageToken, "the page was called without its token, or with a stale one", ClassPolicy, 401, false, "run caisson page as root on the host, and open the URL that it prints"},
	{PageGuard, "the page does not serve this request", ClassPolicy, 403, false, "open the page by the URL that caisson page prints; use the daemon's socket for other calls"},

	{AuditWrite, "a record of the audit log cannot be written", ClassHost, 503, true, "free space on the disk of the audit log; with audit.required nothing runs until then"},
	{AuditBroken, "the audit log was changed, cut or reordered", ClassHost, 500, false, "keep a copy of the log as it is, and compare it with one that was stored elsewhere"},
	{ExportAway, "a receiver of the audit log cannot be reached", ClassHost, 503, true, "start the receiver that audit.export names; records wait in the log until audit.max_bytes or audit.max_age"},
}

// Describe returns the row of c.
func Describe(c Code) (Description, bool) {
	i := slices.IndexFunc(table, func(d Description) bool { return d.Code == c })
	if i < 0 {
		return Description{Code: c, Class: ClassInternal, HTTP: 500}, false
	}
	return table[i], true
}

// All returns every row, in the order of the codes.
func All() []Description { return slices.Clone(table) }
