"""What the calls return. Sizes are in bytes, durations in seconds, times in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional, Sequence, Union

from .values import (
    AttemptKind, AttemptVerdict, Cause, ChangeKind, CheckStatus, FileChange, FileType, ImageSource,
    Isolation, LayerState, LeftoverKind, Limit, MountType, Network, OnIdle, PausedBy, ProcessState, Reason, RootFS,
    SandboxState, SharedLimit, Source, Stream, Support, TemplateState, UsageScope, WorkspaceMode,
)

ABSENT: Any = ""
"""What a message leaves out."""


@dataclass(frozen=True)
class Egress:
    """What went through the gateway for one sandbox."""

    open: int = 0
    allowed: int = 0
    refused: int = 0
    failed: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    lookups_answered: int = 0
    lookups_refused: int = 0
    lost: int = 0
    requests: int = 0
    """By routes, with those of the sandboxes made inside; so are the next ones."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """A destination that was refused. needs is the rule that would allow it."""

    name: str = ""
    port: int = 0
    code: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Stage:
    """One step of the making of a sandbox. duration is in seconds."""

    name: str = ""
    duration: float = 0.0


@dataclass(frozen=True)
class Learned:
    """The smallest policy that would have allowed what a sandbox reached."""

    rules: List[str] = field(default_factory=list)
    warnings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class ResultUsage:
    """What a command used. What is not counted is None."""

    cpu: float = 0.0
    peak_memory_bytes: Optional[int] = None
    max_rss_bytes: int = 0
    cpu_throttled: float = 0.0
    cpu_throttled_periods: int = 0
    io_read_bytes: Optional[int] = None
    io_write_bytes: Optional[int] = None


@dataclass(frozen=True)
class ResultSandbox:
    """The sandbox that a command ran in."""

    id: str = ""
    network: Network = ABSENT
    image_verified: str = ""
    """The rule that the image was verified by when it was pulled."""
    limits_hit: List[SharedLimit] = field(default_factory=list)
    """Hit while the command ran, by it or by something else."""
    egress: Optional[Egress] = None


@dataclass(frozen=True)
class Result:
    """How a command ended, and its output as far as it was kept.

    exit_code is 128+n after signal n, 124 after a timeout, 126 or 127 if the command
    could not be executed.
    """

    exit_code: int = 0
    signal: int = 0
    reason: Reason = ABSENT
    cause: Cause = ABSENT
    """Of the reason "canceled" alone."""
    source: Source = ABSENT
    timed_out: bool = False
    oom_killed: bool = False
    pids_limit_hit: bool = False
    limits_hit: List[Limit] = field(default_factory=list)
    full_tmpfs: List[str] = field(default_factory=list)
    """The tmpfs, by path inside, that were full when the command failed."""
    full_volumes: List[str] = field(default_factory=list)
    """The volumes with a size that were full then."""
    read_only_hint: bool = False
    """The command failed, and its standard error ends with "Read-only file system"."""
    stdout_bytes: int = 0
    """All that the command wrote, also what was not kept."""
    stderr_bytes: int = 0
    truncated: bool = False
    lost_bytes: int = 0
    duration: float = 0.0
    stages: List[Stage] = field(default_factory=list)
    """Of the making of its sandbox, in order."""
    warnings: List[str] = field(default_factory=list)
    remaining: int = 0
    ended_processes: int = 0
    """Of the command, ended with it as its time was over or its call was canceled."""
    exec_id: str = ""
    request_id: str = ""
    """Of the call that brought the result."""
    refusals: List[Refusal] = field(default_factory=list)
    """At most 10 that were refused while the command ran. Without a network they have no name."""
    learned: Optional[Learned] = None
    usage: ResultUsage = field(default_factory=ResultUsage)
    sandbox: ResultSandbox = field(default_factory=ResultSandbox)

    stdout_data: bytes = b""
    """The first and the last half of the limit, if the command wrote more."""
    stderr_data: bytes = b""
    stdout_skipped: int = 0
    """Bytes that are left out between the two halves."""
    stderr_skipped: int = 0

    @property
    def stdout(self) -> str:
        """The kept output as text. Bytes that are not UTF-8 become U+FFFD."""
        return self.stdout_data.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """The kept errors as text."""
        return self.stderr_data.decode(errors="replace")

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class ProcessInfo:
    """One command of a sandbox."""

    id: str = ""
    sandbox_id: str = ""
    args: List[str] = field(default_factory=list)
    state: ProcessState = ABSENT
    pid: int = 0
    tty: bool = False
    stdin: bool = False
    started_at: Optional[datetime] = None
    ended_at: Optional[datetime] = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    result: Optional[Result] = None


@dataclass(frozen=True)
class Started:
    """The command runs."""

    sandbox_id: str = ""
    sandbox_name: str = ""
    exec: ProcessInfo = ProcessInfo()
    warnings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Output:
    """A part of one stream of a command.

    offset is that of the first byte in the stream. If skipped is not
    0, so many bytes are not kept any more, and data is empty. time is when its first byte
    came, if logs was asked for timestamps and it is known.
    """

    stream: Stream
    offset: int
    data: bytes = b""
    skipped: int = 0
    time: Optional[datetime] = None

    @property
    def text(self) -> str:
        """The data as text. A character may be cut by the end of a part."""
        return self.data.decode(errors="replace")

    @property
    def end(self) -> int:
        """The offset after this part."""
        return self.offset + len(self.data) + self.skipped


@dataclass(frozen=True)
class Exited:
    """The command has ended. It is the last event. The result has no output."""

    result: Result


Event = Union[Started, Output, Exited]


@dataclass(frozen=True)
class Port:
    """A port of the host that leads to a port inside."""

    address: str = ""
    host_port: int = 0
    port: int = 0
    clients: List[str] = field(default_factory=list)
    """Addresses and CIDRs that may connect; empty is any."""


@dataclass(frozen=True)
class Workspace:
    """A directory of the host that is bound into the sandbox."""

    dir: str = ""
    mode: WorkspaceMode = ABSENT
    path: str = ""
    """Inside, if it is not /workspace."""


@dataclass(frozen=True)
class Mount:
    """A mount beside the workspace.

    The source of a bind is a directory of the host, that of a volume or a snapshot is its name.
    A tmpfs may have a size, else it has that of every tmpfs.
    """

    type: MountType = ABSENT
    target: str = ""
    source: str = ""
    read_only: bool = False
    size_bytes: Optional[int] = None
    cow: bool = False
    """Of a volume, which stays as it is: writes go to the sandbox's disk."""


@dataclass(frozen=True)
class Input:
    """A private file for one command, owned by the command's user.

    A path without / is a name in /dev/shm/caisson-input. An absolute one lies on a tmpfs of
    the sandbox. mode None is 0o400.
    """

    path: str
    data: Union[str, bytes]
    mode: Optional[int] = None


@dataclass(frozen=True)
class SandboxInfo:
    """One sandbox, as it was when the call returned."""

    id: str = ""
    name: str = ""
    state: SandboxState = ABSENT
    image: str = ""
    profile: str = ""
    args: List[str] = field(default_factory=list)
    created_at: Optional[datetime] = None
    exited_at: Optional[datetime] = None
    result: Optional[Result] = None
    labels: Dict[str, str] = field(default_factory=dict)
    session: str = ""
    task: str = ""
    pid: int = 0
    workspace: Optional[Workspace] = None
    mounts: List[Mount] = field(default_factory=list)
    expires_at: Optional[datetime] = None
    idle_timeout: Optional[float] = None
    idle_since: Optional[datetime] = None
    idle_at: Optional[datetime] = None
    """When the idle timeout is over if nothing happens."""
    on_idle: OnIdle = ABSENT
    """What happens then: "remove" or "pause"."""
    paused_by: PausedBy = ABSENT
    """"caller", or "idle": whoever uses the sandbox wakes it."""
    owner_uid: int = 0
    parent: str = ""
    execs: int = 0
    network: Network = ABSENT
    ports: List[Port] = field(default_factory=list)
    exposed: List[int] = field(default_factory=list)
    warnings: List[str] = field(default_factory=list)
    """Limits that were lowered, and choices made for the caller."""
    isolation: Isolation = ABSENT
    """"sandbox", or "none": its commands run as a user of the host, with its files and network."""
    replaced: str = ""
    """Of create alone: the ID of the sandbox of that name that this one replaces."""


@dataclass(frozen=True)
class Limits:
    """The limits of a sandbox."""

    memory_bytes: int = 0
    milli_cpu: int = 0
    cpu_shares: int = 0
    pids: int = 0
    open_files: int = 0
    tmpfs_bytes: int = 0
    shm_bytes: int = 0
    io_read_bps: int = 0
    """Bytes per second with each disk; 0 is unbounded."""
    io_write_bps: int = 0
    disk_bytes: Optional[int] = None
    disk_inodes: Optional[int] = None


@dataclass(frozen=True)
class PostureCheck:
    """One comparison of the live sandbox with its declaration."""

    name: str = ""
    declared: str = ""
    live: str = ""


@dataclass(frozen=True)
class SandboxDetail:
    """All that is known of one sandbox."""

    sandbox: SandboxInfo = SandboxInfo()
    limits: Limits = Limits()
    cgroup: str = ""
    image_digest: str = ""
    egress: Optional[Egress] = None
    network_failure: str = ""
    allow_ech: bool = False
    routes: List[str] = field(default_factory=list)
    """Names of its routes."""
    host_id_base: int = 0
    """The first of its IDs on the host."""
    host_id_size: int = 0
    posture: List[PostureCheck] = field(default_factory=list)
    oci_spec_json: bytes = b""


@dataclass(frozen=True)
class Cleaned:
    """What clean ended and removed. A directory of /tmp counts as one."""

    processes: int = 0
    files: int = 0


@dataclass(frozen=True)
class Rewound:
    """What rewind ended: the IDs of commands, and how many processes in all."""

    execs: List[str] = field(default_factory=list)
    processes: int = 0


@dataclass(frozen=True)
class SeccompRule:
    """One line of a seccomp profile. Without a condition it always holds."""

    syscalls: List[str] = field(default_factory=list)
    action: str = ""
    condition: str = ""
    why: str = ""


@dataclass(frozen=True)
class Spec:
    """What run would build."""

    oci_spec_json: bytes = b""
    cgroup_values: Dict[str, str] = field(default_factory=dict)
    mounts: List[str] = field(default_factory=list)
    seccomp_rules: List[SeccompRule] = field(default_factory=list)
    seccomp_profile: str = ""
    network_rules: List[str] = field(default_factory=list)
    seccomp_pfc: str = ""
    """The compiled filter, if it was asked for."""


@dataclass(frozen=True)
class Leftover:
    """Something of the daemon's that no live sandbox owns."""

    kind: LeftoverKind = ABSENT
    id: str = ""
    reason: str = ""
    removed: bool = False


@dataclass(frozen=True)
class FileInfo:
    """One entry of a sandbox's file system."""

    path: str = ""
    type: FileType = ABSENT
    size_bytes: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    modified_at: Optional[datetime] = None
    link: str = ""
    path_bytes: bytes = b""
    """The path if it is not UTF-8."""


class Listing(List[FileInfo]):
    """The entries of a directory. truncated: there are more than the daemon lists."""

    truncated: bool = False


@dataclass(frozen=True)
class FileEvent:
    """One change below a watched directory."""

    path: str = ""
    type: FileChange = ABSENT
    path_bytes: bytes = b""
    """The path if it is not UTF-8."""


@dataclass(frozen=True)
class Copied:
    """What a copy moved. left_out names what a copy out of a sandbox leaves behind."""

    entries: int = 0
    bytes: int = 0
    left_out: List[str] = field(default_factory=list)
    """Names of some of them, if there are very many."""
    left_out_count: int = 0


@dataclass(frozen=True)
class AddressVerdict:
    """What a policy makes of an address of a name."""

    address: str = ""
    allowed: bool = False
    rule: str = ""
    code: str = ""
    reason: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a policy makes of a destination. needs is the rule that would allow it."""

    network: Network = ABSENT
    host: str = ""
    port: int = 0
    allowed: bool = False
    rule: str = ""
    code: str = ""
    reason: str = ""
    remedy: str = ""
    needs: str = ""
    addresses: List[AddressVerdict] = field(default_factory=list)
    """If the check named some."""


@dataclass(frozen=True)
class PolicyLine:
    """One rule of a policy and what it does."""

    rule: str = ""
    effect: str = ""


@dataclass(frozen=True)
class Attempt:
    """One attempt of a sandbox to reach something, and its verdict."""

    time: Optional[datetime] = None
    kind: AttemptKind = ABSENT
    verdict: AttemptVerdict = ABSENT
    name: str = ""
    port: int = 0
    type: str = ""
    address: str = ""
    rule: str = ""
    code: str = ""
    reason: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0
    duration: float = 0.0
    skipped: int = 0
    peer: str = ""
    model: str = ""
    """Of a request to a model: which one answered."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """Of the tokens, in the unit of the configured prices."""
    cursor: str = ""
    """A place to begin after."""
    sandbox_id: str = ""
    needs: str = ""
    """The rule that would allow it."""


@dataclass(frozen=True)
class Image:
    """One image of the daemon."""

    name: str = ""
    digest: str = ""
    size_bytes: int = 0
    created_at: Optional[datetime] = None
    source: ImageSource = ABSENT
    owner: int = 0
    damaged: str = ""
    verified: str = ""
    """The rule of the configuration that it was pulled by."""
    target_digest: str = ""
    """That its name led to in the registry: an index, or source_digest."""
    source_digest: str = ""
    """Of its manifest in the registry."""


@dataclass(frozen=True)
class Pruned:
    """Images that were removed, and the bytes that no other image has of them."""

    images: List[Image] = field(default_factory=list)
    freed_bytes: int = 0


@dataclass(frozen=True)
class DiskUsage:
    """The room that one image takes.

    shared_bytes are of its stored size, in layers that another image has too. unpacked_bytes
    are of its unpacked layers, beside the stored ones.
    """

    image: Image = Image()
    shared_bytes: int = 0
    unpacked_bytes: int = 0


@dataclass(frozen=True)
class ImageUsage:
    """The room that images take. stored_bytes counts shared layers once."""

    images: List[DiskUsage] = field(default_factory=list)
    stored_bytes: int = 0


@dataclass(frozen=True)
class Volume:
    """One volume. used_by holds the names of the sandboxes that use it."""

    name: str = ""
    owner: int = 0
    created_at: Optional[datetime] = None
    used_by: List[str] = field(default_factory=list)
    size_bytes: int = 0
    """What it can hold, with what its file system needs; 0: nothing bounds it."""
    inodes: int = 0
    used_bytes: int = 0
    """How much of its size is used, with what its file system needs."""
    used_inodes: int = 0


@dataclass(frozen=True)
class Secret:
    """One secret of routes, without its value. Its times are since the daemon started."""

    name: str = ""
    source: str = ""
    """Such as "file:PATH"; of a command its program alone."""
    read_at: Optional[datetime] = None
    used_at: Optional[datetime] = None
    """When a request with it was answered last."""
    error: str = ""
    """Why its value cannot be read now; empty: it can."""
    routes: List[str] = field(default_factory=list)
    """That use it, as PROFILE/ROUTE."""
    kept: bool = False
    """It was set by a call, not by the configuration."""
    refresh: Optional[float] = None
    """Seconds after which one that a call set is read again; None: as the configuration has it."""


@dataclass(frozen=True)
class ChangeState:
    """What is there under a name."""

    type: FileType = ABSENT
    mode: int = 0
    size_bytes: int = 0
    link: str = ""


@dataclass(frozen=True)
class Change:
    """A name under which a copy-on-write workspace differs from the directory of the host.

    Paths are below the workspace.
    """

    kind: ChangeKind = ABSENT
    path: str = ""
    old_path: str = ""
    """Of a renamed directory. Changes in it are listed separately."""
    old: Optional[ChangeState] = None
    """What the host has; None if it was added."""
    new: Optional[ChangeState] = None
    """What the workspace has; None if it was deleted, with all that it held."""
    path_bytes: bytes = b""
    """The path if it is not UTF-8."""
    old_path_bytes: bytes = b""
    control: bool = False
    """It is a control file: apply leaves it out unless it is asked for."""


@dataclass(frozen=True)
class Changeset:
    """What an ended sandbox changed in its copy-on-write workspace. It has the ID of the sandbox."""

    id: str = ""
    name: str = ""
    owner: int = 0
    workspace: str = ""
    kept_at: Optional[datetime] = None
    session: str = ""
    labels: Dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0


@dataclass(frozen=True)
class ChangeNote:
    """Something about a path of a workspace."""

    path: str = ""
    reason: str = ""
    path_bytes: bytes = b""
    """The path if it is not UTF-8."""


@dataclass(frozen=True)
class Applied:
    """What apply wrote to the host, or would write."""

    changes: List[Change] = field(default_factory=list)
    control: List[Change] = field(default_factory=list)
    """Control files, such as .git/hooks, which were left out."""
    conflicts: List[ChangeNote] = field(default_factory=list)
    """What the host changed as well."""
    left: List[ChangeNote] = field(default_factory=list)
    """What was not applied, and why."""
    notes: List[ChangeNote] = field(default_factory=list)
    """What was applied otherwise than it is in the workspace."""


class Changes(List[Change]):
    """Changes by name. truncated: there are more than the daemon lists."""

    truncated: bool = False
    patch: bytes = b""
    """What git apply takes, if it was asked for."""
    left: Sequence[ChangeNote] = ()
    """What the patch has no content of, and why."""


@dataclass(frozen=True)
class Snapshot:
    """The disk of a sandbox as it was once.

    rootfs is "rw" if it has what was written to the root, "ro" if it has /workspace alone.
    """

    name: str = ""
    owner: int = 0
    created_at: Optional[datetime] = None
    sandbox_id: str = ""
    sandbox_name: str = ""
    image: str = ""
    image_digest: str = ""
    rootfs: RootFS = ABSENT
    disk_bytes: int = 0
    """The size of the disk."""
    used_bytes: int = 0
    """What files take of it."""
    path: str = ""
    """The directory that it has, to be mounted; empty: it has the disk."""


@dataclass(frozen=True)
class Template:
    """The result of the set-up of a profile."""

    profile: str = ""
    base: str = ""
    """Name of the image that it begins with."""
    state: TemplateState = ABSENT
    key: str = ""
    """SHA-256 of all that goes into it."""
    image: Optional[Image] = None
    """Of a ready one."""
    built_at: Optional[datetime] = None
    """The end of the last build."""
    took: float = 0.0
    """Seconds of that build."""
    error: str = ""
    """Why it failed, or cannot begin."""
    log: str = ""
    """Of the last build; empty in lists."""


@dataclass(frozen=True)
class RouteUsage:
    """What requests by one route took together."""

    scope: UsageScope = ABSENT
    route: str = ""
    sandbox_id: str = ""
    """Of the scope sandbox."""
    sandbox_name: str = ""
    """Of the scope sandbox."""
    session: str = ""
    profile: str = ""
    owner: int = 0
    requests: int = 0
    bytes: int = 0
    """Of bodies, both ways."""
    input_tokens: int = 0
    cached_tokens: int = 0
    """Of input_tokens: from the model's cache."""
    stored_tokens: int = 0
    """Of input_tokens: put into the model's cache."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Of output_tokens: not part of the answer."""
    cost: float = 0.0
    """In the unit of the configured prices."""
    estimated_requests: int = 0
    """Requests whose tokens are an estimate."""
    updated_at: Optional[datetime] = None


@dataclass(frozen=True)
class LayerProgress:
    """How far a layer of a pull is."""

    digest: str = ""
    size_bytes: int = 0
    received_bytes: int = 0
    state: LayerState = ABSENT


@dataclass(frozen=True)
class PullProgress:
    """A line about a pull, or its layers where one has changed."""

    message: str = ""
    layers: List[LayerProgress] = field(default_factory=list)


@dataclass(frozen=True)
class BuildStep:
    """A step of a build that begins. Without an instruction it is output of the step's command."""

    step: int = 0
    steps: int = 0
    line: int = 0
    instruction: str = ""
    cached: bool = False
    stdout: bytes = b""
    stderr: bytes = b""


@dataclass(frozen=True)
class Version:
    """The versions of the daemon and of its engine."""

    version: str = ""
    commit: str = ""
    go_version: str = ""
    containerd: str = ""
    containerd_address: str = ""
    """If it is not the daemon's own."""
    runc: str = ""
    root: str = ""
    instance: str = ""


@dataclass(frozen=True)
class Ping:
    """Whether the daemon can run something now, and else why not."""

    ready: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Capability:
    """How a setting is honoured here."""

    field: str = ""
    support: Support = ABSENT
    detail: str = ""


@dataclass(frozen=True)
class Reloaded:
    """The keys of a configuration that was read again, and the digest of the one in force."""

    changed: List[str] = field(default_factory=list)
    needs_restart: List[str] = field(default_factory=list)
    digest: str = ""


@dataclass(frozen=True)
class Check:
    """One finding about the host."""

    name: str = ""
    status: CheckStatus = ABSENT
    detail: str = ""
    code: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Doctor:
    """What works on this host."""

    ok: bool = False
    checks: List[Check] = field(default_factory=list)


@dataclass(frozen=True)
class PoolStats:
    """A pool of ready sandboxes. target of them are to be ready now; refill is the time to make one."""

    profile: str = ""
    image: str = ""
    ready: int = 0
    filling: int = 0
    size: int = 0
    hits: int = 0
    misses: int = 0
    failures: int = 0
    refill: float = 0.0
    target: int = 0
    max: int = 0


@dataclass(frozen=True)
class NetworkStats:
    """What went through the gateway for a live sandbox."""

    sandbox_id: str = ""
    name: str = ""
    network: Network = ABSENT
    egress: Optional[Egress] = None


@dataclass(frozen=True)
class Resources:
    """What sandboxes take of a host."""

    milli_cpu: int = 0
    memory_bytes: int = 0
    sandboxes: int = 0
    disk_bytes: int = 0
    """Below the daemon's root, without sandboxes.disk_reserve."""


@dataclass(frozen=True)
class HostInfo:
    """What the daemon counts: sandboxes by state, running commands, waiting requests."""

    sandboxes: Dict[str, int] = field(default_factory=dict)
    execs: int = 0
    queued: int = 0
    pools: List[PoolStats] = field(default_factory=list)
    networks: List[NetworkStats] = field(default_factory=list)
    capacity: Resources = Resources()
    """What your sandboxes may have together: of the host, or of your quota where that is less."""
    available: Resources = Resources()
    """Capacity without the limits of the sandboxes that live. More can be made: memory and CPUs are shared."""
