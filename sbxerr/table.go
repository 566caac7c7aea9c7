package sbxerr

import "slices"

// table is the one place where codes are explained; docs/reference/errors.md is made
// from it (go run ./sbxerr/gendoc).
var table = []Description{
	{Unknown, "unclassified failure", ClassInternal, 500, false, "report it with the daemon's log: an error left its package without a code"},
	{Internal, "an invariant of the runtime did not hold", ClassInternal, 500, false, "report it with the daemon's log"},
	{Canceled, "the caller went away or cancelled", ClassTimeout, 499, true, "nothing: the operation was ended on request and what it had made was removed"},
	{Deadline, "a step took longer than it may", ClassTimeout, 504, true, "retry; if it stays, look for I/O or CPU pressure on the host"},
	{NoFiles, "no more files can be opened", ClassHost, 503, true, "retry when less runs; if it stays, raise the daemon's limit of open files (LimitNOFILE= of its unit, ulimit -n) or the host's (sysctl fs.file-max)"},

	{Config, "the request can never succeed as written", ClassInput, 400, false, "change what the message names"},
	{Limits, "a resource limit is absent or out of range", ClassInput, 400, false, "give a positive size such as 512M, a CPU count such as 1.5, or a count such as 256"},
	{Profile, "no such profile", ClassInput, 400, false, "name a profile that the message lists, or define it under profiles: in the daemon's configuration"},
	{Workspace, "the workspace directory is refused", ClassPolicy, 403, false, "name an existing directory inside the allowed roots (workspaces.allowed_roots in the configuration)"},
	{DaemonConf, "the daemon's configuration is refused", ClassInput, 400, false, "correct the key that the message names; docs/reference/configuration.md lists them all"},
	{Exists, "the name or ID is taken", ClassInput, 409, false, "choose another name, or remove the sandbox that holds it: caisson rm NAME"},
	{NotFound, "no such sandbox", ClassSandbox, 404, false, "caisson ls shows the sandboxes there are"},
	{State, "the sandbox is not in a state that allows this", ClassSandbox, 409, true, "caisson inspect SANDBOX shows the state; one that has ended can be read from and removed"},
	{Rights, "a right is missing", ClassHost, 403, false, "run the daemon as root, with the capabilities that the message names"},
	{Locked, "another daemon holds this root", ClassHost, 409, false, "use that daemon, stop it, or give this one its own --root, --state and --socket"},
	{IDRange, "no free block of host ids", ClassHost, 503, true, "remove sandboxes, or widen ids.blocks in the configuration"},
	{UserNS, "user namespaces cannot be used on this host", ClassHost, 503, false, "enable them: sysctl user.max_user_namespaces must be above 0"},
	{Busy, "there is too much at once: sandboxes, commands or requests", ClassPolicy, 429, true, "retry later, or end something first; of a bound in the configuration the message names the key (sandboxes.max, sandboxes.queue) or the quota of the peer: raise it there"},
	{Paused, "the sandbox is paused", ClassSandbox, 409, true, "let it go on first: caisson resume NAME"},
	{ExecNotFound, "the sandbox has no such command", ClassInput, 404, false, "caisson ps SANDBOX shows the commands there are"},
	{Processes, "a limit of processes leaves no room for another", ClassPolicy, 429, true, "end what runs in the sandbox (caisson kill --all ends a command with all that it started), or make one with more --pids"},
	{StatePath, "sandboxes cannot pass a directory above the daemon's state", ClassHost, 503, false, "let others pass it (chmod o+x DIR), or give another --state"},

	{ImageNotFound, "no such image", ClassInput, 404, false, "caisson image ls shows what there is; caisson image import or from-host makes one"},
	{ImageFormat, "the archive is not an image in a known form", ClassInput, 400, false, "give an OCI layout (tar or folder), a docker-archive (docker save), a root file system tar, or a folder"},
	{ImageContent, "the image holds what no image may hold", ClassPolicy, 422, false, "rebuild the image without the entry that the message names"},
	{ImageTooBig, "the image exceeds a limit of the import", ClassPolicy, 413, false, "make the image smaller, or raise images.max_bytes or images.max_entries in the configuration"},
	{ImageUser, "the user does not resolve", ClassInput, 400, false, "give numeric ids such as 1000:1000, or a name that is in the image's /etc/passwd"},
	{Mount, "a mount of the sandbox could not be made", ClassEngine, 500, false, "caisson doctor checks the file systems in use"},
	{IDMap, "the file system cannot map ids", ClassHost, 503, false, "put the directory on ext4, xfs or btrfs, or use a kernel with idmapped mounts for this file system"},
	{Overlay, "overlays cannot be made here", ClassHost, 503, false, "put the daemon's root on ext4, xfs or btrfs and load the overlay module"},
	{FromHost, "software of the host could not be collected", ClassInput, 422, false, "name an installed package or an existing path"},
	{ImageInUse, "the image is needed by a sandbox", ClassInput, 409, true, "remove the sandboxes that the message names first"},
	{FilePath, "the path cannot be used", ClassInput, 400, false, "give the absolute path of a file or directory in the sandbox"},
	{FileAbsent, "no such file or directory in the sandbox", ClassInput, 404, false, "check the path inside the sandbox: the directory that it lies in must be there too"},
	{FileRights, "the sandbox's user may not do this to the file", ClassInput, 403, false, "check the owner and mode inside the sandbox; its root file system is read-only"},
	{FileExists, "the file exists, or the directory is not empty", ClassInput, 409, false, "choose another name, or ask to replace or to remove recursively"},
	{FileKind, "the file is of another kind than needed", ClassInput, 422, false, "stat shows what the path is: only regular files are read and written, only directories listed"},
	{FileSpace, "the sandbox has no room left for the file", ClassInput, 413, false, "remove files inside, or give the sandbox more tmpfs or disk"},
	{FileTooBig, "a limit of the file operations is exceeded", ClassInput, 413, false, "copy in parts"},
	{Archive, "the archive is malformed or holds what may not be copied", ClassInput, 422, false, "give a whole tar that is not compressed, without the entry that the message names"},
	{FileFailed, "the sandbox's file system failed an operation", ClassSandbox, 500, false, "the message says why; what the kernel makes up, as in /proc, is left out of a copy of what lies above it, and often cannot be copied itself"},
	{ImageExists, "there is another image of that name", ClassInput, 409, false, "choose the name yourself: caisson image import --name NAME; that of an image of yours replaces it"},
	{ImageDamaged, "the stored copy of the image is damaged", ClassHost, 500, false, "import the image again, or remove it: caisson image rm"},
	{CopyTooBig, "the copy out of the sandbox is larger than the caller allows", ClassInput, 413, false, "name the largest size that you want: --max-bytes SIZE, or max_bytes in the API"},

	{Seccomp, "the seccomp filter cannot be enforced", ClassHost, 503, false, "use the runc of this installation; caisson doctor names the missing feature"},
	{SeccompProfile, "no such seccomp profile", ClassInput, 400, false, "use strict, compat or debug"},
	{SeccompMemory, "the host has no memory left for compiled filters", ClassHost, 503, true, "raise net.core.bpf_jit_limit (sysctl), and end what loads many filters on the host"},

	{Network, "the network namespace could not be made", ClassEngine, 500, false, "caisson doctor checks network namespaces"},
	{NetRule, "a filter rule was rejected", ClassEngine, 500, false, "caisson doctor checks the iptables flavour in use"},
	{NetworkMode, "the network mode is unknown or not offered", ClassPolicy, 400, false, "use none, allow or open, or bridge where the operator offers it"},

	{NetPolicy, "an egress policy is refused as written", ClassInput, 400, false, "write rules as HOST[:PORT][+PORT...][,private], for example github.com:443+22, *.example.com or 10.1.0.0/16:5432,private"},
	{PortTaken, "a port to publish is not free on the host", ClassInput, 409, false, "publish another port, or port 0, which picks a free one; caisson ls --json lists who publishes what"},

	{Cgroup, "a cgroup operation failed", ClassEngine, 500, false, "caisson doctor shows the cgroup layout"},
	{CgroupController, "a cgroup controller is missing", ClassHost, 503, false, "enable the controller that the message names (kernel command line or the parent's cgroup.subtree_control)"},
	{KernelMemory, "the sandbox took too much kernel memory that no limit counts", ClassSandbox, 409, false, "let programs inside hold fewer file locks and accept the connections that they listen for"},

	{Engine, "containerd failed an operation", ClassEngine, 502, true, "see the daemon's log and containerd.log in its root"},
	{EngineDown, "containerd does not answer", ClassEngine, 503, true, "retry: the daemon restarts its containerd by itself; a containerd of the host must be started by you"},
	{EngineVersion, "containerd or runc is too old or known to be vulnerable", ClassHost, 503, false, "use the binaries of the newest version of caisson, or update the host's"},
	{Init, "caisson-init did not answer or broke its protocol", ClassSandbox, 502, true, "remove the sandbox and start another"},
	{Posture, "the live sandbox differs from what was declared", ClassEngine, 500, false, "nothing was run: report the difference that the message names with caisson doctor --json"},
	{Binary, "a binary of the installation is missing", ClassHost, 503, false, "install caisson whole: make install, or --bin-dir DIR"},
	{NotExecutable, "the command cannot be executed", ClassInput, 422, false, "check the file's mode and its interpreter inside the image"},
	{CommandAbsent, "the command was not found", ClassInput, 404, false, "check the name and the PATH inside the image"},
	{StateDir, "the daemon's own files cannot be read or written", ClassHost, 500, false, "check space, inodes and rights of the daemon's root and state directories"},
	{Quarantined, "something in the daemon's directories cannot be removed, or is not its own, and is skipped", ClassHost, 500, false, "look at what the message names, remove what holds it, and run caisson cleanup"},
	{OutputLost, "output of the command was lost before its caller had it", ClassHost, 500, false, "make room on the daemon's root, then run the command again; or write its output to a file in the sandbox"},

	{EgressDenied, "no rule allows the destination", ClassPolicy, 403, false, "add the rule that the message names"},
	{EgressAddress, "the name leads to an address that is not public", ClassPolicy, 403, false, "if the host is meant to be internal, add private to its rule: HOST:PORT,private"},
	{EgressMismatch, "the connection does not name its host", ClassPolicy, 403, false, "send the name that was connected to in the HTTP Host header or in TLS SNI"},
	{EgressResolve, "an allowed name does not resolve", ClassHost, 502, true, "check the name, and the host's resolvers"},
	{EgressDial, "an allowed destination does not answer", ClassHost, 502, true, "check that the destination is reachable from the host"},
	{EgressBusy, "a limit of the sandbox's gateway is reached", ClassPolicy, 429, true, "use fewer connections or names at once, or retry later"},
	{Gateway, "the gateway of a sandbox failed", ClassEngine, 502, true, "retry: nothing gets out while it is down, and the daemon starts it again; see the daemon's log"},
	{EgressProxy, "the host's upstream proxy does not connect to the destination", ClassHost, 502, false, "ask who runs the proxy to let this host connect there"},
	{EgressProxyDown, "the host's upstream proxy does not answer", ClassHost, 502, true, "check the proxy, and network.upstream_proxy in the daemon's configuration; nothing public is reached without it"},
	{EgressECH, "a TLS hello may hide the name that a rule depends on", ClassPolicy, 403, false, "turn encrypted client hello (ECH) and its GREASE off in the client, or start the sandbox with --allow-ech"},

	{APIUsage, "the call is malformed", ClassInput, 400, false, "caisson help shows the usage"},
	{DaemonOff, "no daemon listens on the socket", ClassHost, 503, true, "start it as root: caissond (or set CAISSON_SOCKET to the socket of a running one)"},
	{APIBroken, "the connection to the daemon broke", ClassEngine, 502, true, "see whether the daemon runs; a foreground run ends with its connection"},
	{ClientIO, "the caller's own file, input or output failed", ClassInput, 400, false, "check that the file exists, its rights, and the space where it lies"},
	{Peer, "the peer may not do this", ClassPolicy, 403, false, "ask the operator for what the message names: peers: in the daemon's configuration says who may do what"},
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
