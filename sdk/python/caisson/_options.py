"""The options of the calls. Made by api/openapi/gen; do not edit."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from ._forms import Inputs, Rlimit, Size, Time
from .types import Mount
from .values import LiveNetwork, Network, OnIdle, RootFS, SandboxState

Table = Dict[str, Tuple[str, str]]
"""The field of the request and the form, by option."""

OUTPUT_LIMIT = 10485760
"""The bytes that a result keeps of each stream, by default."""


class NestedOptions(TypedDict, total=False):
    """What a sandbox may give to its children all together."""

    sandboxes: Optional[int]
    memory: Optional[Size]
    cpus: Optional[float]
    """A count such as 1.5."""


class SandboxOptions(TypedDict, total=False):
    """What a sandbox is made of. What is not given is the profile's."""

    name: Optional[str]
    """Unique; empty is the sandbox ID."""
    image: Optional[str]
    """Empty is the profile's."""
    profile: Optional[str]
    """Empty is "strict"."""
    user: Optional[str]
    """Name, uid, or uid:gid; empty is the profile's."""
    env: Optional[Mapping[str, str]]
    """Of all its commands, added to the image's."""
    network: Optional[Network]
    """"none", "allow", "open", or "bridge" where the operator offers it; empty is "allow"
    where allow is given, else the profile's. A child of a sandbox has "none" where it names
    nothing, and "none" or "allow"."""
    allow: Optional[Sequence[str]]
    """[METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque], instead of the
    profile's; without a port 80 and 443. Methods and a path, a pattern, are of requests by
    plain HTTP, which alone pass then. HOST is a name, *.NAME, an address or a CIDR. Of a
    child: rules that those of its parent cover (else SBX-406), and its parent's where it
    names none."""
    workspace: Optional[Union[str, os.PathLike[str]]]
    memory: Optional[Size]
    cpus: Optional[float]
    """A count such as 1.5."""
    pids: Optional[int]
    """Tasks, that is processes and threads, as the kernel counts."""
    open_files: Optional[int]
    tmpfs: Optional[Size]
    """Of each tmpfs."""
    cpu_shares: Optional[int]
    """Weight against other sandboxes while CPUs are short, 2 to 262144, as cpu.shares of
    cgroup v1. 1024 where neither request nor profile says otherwise."""
    shm_size: Optional[Size]
    """Of /dev/shm; where neither request nor profile says, that of each tmpfs."""
    io_read_bps: Optional[Size]
    """Bytes per second that are read from each disk with files of the sandbox, and written to
    it, at least 65536. Where neither request nor profile says, unbounded. Writes need a
    host with cgroup v2."""
    io_write_bps: Optional[Size]
    disk: Optional[Size]
    """Size of a file system of the sandbox's own, on the host's disk, with a /workspace that
    its user may write; 16 MiB to 1 TiB. Where neither request nor profile says, there is
    none."""
    disk_inodes: Optional[int]
    """Files and directories on it, 256 to one for each 4 KiB; absent is one for each 16 KiB."""
    labels: Optional[Mapping[str, str]]
    session: Optional[str]
    task: Optional[str]
    ttl: Optional[Time]
    """When its time is over a sandbox is ended and removed, paused or not, with the output and
    the results of its commands. Calls for it then have SBX-107, which says so for as long
    as the daemon remembers it: 1024 of them, the oldest of whoever had most forgotten
    first."""
    idle_timeout: Optional[Time]
    """Since no command ran and nobody worked on its files; with on_idle "pause" since nothing
    worked inside. Zero is never, absent the profile's."""
    nested: Optional[Union[bool, NestedOptions]]
    """A socket to make sandboxes of its own; absent is none."""
    deny: Optional[Sequence[str]]
    """As allow, beside the profile's; deny beats allow."""
    publish: Optional[Sequence[str]]
    """[ADDRESS:]PORT:PORT: TCP port of the host and port inside. The address is 127.0.0.1
    where none is given; port 0 of the host has a free one picked."""
    expose: Optional[Sequence[int]]
    """Ports inside to which links of the same owner's sandboxes may lead, from 54."""
    links: Optional[Sequence[str]]
    """NAME=SANDBOX:PORT: NAME, which has no dot, and PORT lead to that port of the sandbox,
    which exposes it. Such a sandbox is in the mode "allow" or "open"."""
    allow_ech: Optional[bool]
    """Let TLS clients encrypt the name that they ask for (encrypted_client_hello), also where
    a rule depends on it. The profile may say so as well."""
    language: Optional[str]
    """Language of the work, such as "python". Without an image here or in the profile,
    images.languages of the configuration says which image is for it, else it is base."""
    language_reason: Optional[str]
    """How the caller knows, such as the name of a file; the result repeats it."""
    mounts: Optional[Sequence[Mount]]
    """At most 16, beside the workspace."""
    hostname: Optional[str]
    """A label of RFC 1123: 1 to 63 letters, digits and - inside. Empty is the sandbox ID. Such
    a sandbox comes from no pool."""
    dns: Optional[Sequence[str]]
    """Resolvers to ask for names, ADDRESS or ADDRESS:PORT, at most 3, among those of
    network.dns_allowed in the configuration. Absent are those of network.dns."""
    rootfs: Optional[RootFS]
    """"ro", or "rw": the root can be written, and the sandbox's disk holds what is written. If
    no limit sizes the disk, sandboxes.disk of the configuration does. Empty is the
    profile's."""
    from_: Optional[str]
    """Name of a snapshot. The sandbox begins with a copy of its disk, and has its image,
    profile, user, env, network policy, limits and labels where the request names none."""
    snapshot_on_end: Optional[str]
    """Name of a snapshot that is made of the disk when the sandbox ends, whatever ends it. If
    there is one of that name by then, it is followed by a dash and some letters."""
    caches: Optional[Sequence[str]]
    """Caches of package managers, by name: cargo, go, maven, npm, nuget, pip or uv, or
    NAME=PATH for one of another tool, mounted at PATH. Each is the caller's volume
    caisson-cache-NAME, which many sandboxes read; what one writes goes to its disk. Absent
    are the profile's."""
    on_idle: Optional[OnIdle]
    """What happens when the sandbox was idle for idle_timeout, which is at least a second for
    "pause": "remove", or "pause" until somebody uses it. Empty is the profile's, else
    "remove"."""
    routes: Optional[Sequence[str]]
    """Names of routes that the profile has on request, beside those of each of its sandboxes.
    Of a child: routes that its parent has, and no other (else SBX-406). Root also gives
    routes whole, as NAME={upstream: URL, credential: SECRET}, in YAML or JSON. The keys are
    those of a route in the configuration."""


class CreateOptions(SandboxOptions, total=False):
    """How a sandbox is made."""

    ensure: Optional[bool]
    """Return the live sandbox of the name when it was made with the same settings. What Update
    changed since does not count, and stays. A sandbox of the name that has ended is removed
    and replaced. One that was made for one command, whose result it holds, is not."""
    replace: Optional[bool]
    """End and remove the caller's sandbox of the name first, live or not. A request that is
    refused removes nothing. Not with ensure."""


class ExecOptions(TypedDict, total=False):
    """How a command is run."""

    env: Optional[Mapping[str, str]]
    """Added to the sandbox's."""
    workdir: Optional[str]
    """Absolute; empty is the workspace, else the image's."""
    user: Optional[str]
    """Empty is the sandbox's."""
    timeout: Optional[Time]
    """Absent is none."""
    output_limit: Optional[Size]
    """Per stream; absent is 10 MiB."""
    rlimits: Optional[Mapping[str, Rlimit]]
    """Below the sandbox's."""
    memory: Optional[Size]
    cpus: Optional[float]
    """A count such as 1.5."""
    pids: Optional[int]
    inputs: Optional[Inputs]
    """Files that exist as long as the command runs: 16 at most, of 1 MiB each and 2 MiB
    together. Their content is kept nowhere and told to nobody."""


class StartOptions(ExecOptions, total=False):
    """How a command in the background is started."""

    stdin: Optional[bool]
    """The command gets an input, sent with SendInput or StreamInput."""
    tty: Optional[Union[bool, Tuple[int, int]]]
    """A terminal of this size; absent is none."""


class AloneOptions(SandboxOptions, total=False):
    """How a command is run in a sandbox of its own."""

    workdir: Optional[str]
    """Absolute; empty is the workspace, else the image's."""
    timeout: Optional[Time]
    """Absent is none."""
    output_limit: Optional[Size]
    """Per stream; absent is 10 MiB."""
    rlimits: Optional[Mapping[str, Rlimit]]
    """Below the sandbox's."""
    inputs: Optional[Inputs]
    """Files that exist as long as the command runs: 16 at most, of 1 MiB each and 2 MiB
    together. Their content is kept nowhere and told to nobody."""
    learn: Optional[bool]
    """Let the command reach all that is public (the mode "open"), and tell in the result what
    it reached. Not with detach or keep."""
    learn_private: Optional[bool]
    """With learn: let it reach names at private addresses too (RFC 1918, RFC 4193), but at
    none of the host itself."""
    keep: Optional[bool]
    """The sandbox stays, as one of Create does, for further commands and for the output and
    the result of this one. The caller that goes away ends the command alone. Where the
    command does not start, nothing stays. Not with detach."""


class UpdateOptions(TypedDict, total=False):
    """What can be changed of a sandbox."""

    memory: Optional[Size]
    cpus: Optional[float]
    """A count such as 1.5."""
    pids: Optional[int]
    ttl: Optional[Time]
    """From now; zero is never."""
    idle_timeout: Optional[Time]
    """Zero is never."""
    labels: Optional[Mapping[str, str]]
    """Merged; an empty value removes the label."""
    network: Optional[LiveNetwork]
    """Replace those of the request that made the sandbox; absent keeps them. What is open and
    no longer allowed is cut. The policies of its children follow. Those of a child stay
    within its parent's. One of "allow", "open"."""
    allow: Optional[Sequence[str]]
    deny: Optional[Sequence[str]]
    cpu_shares: Optional[int]
    """As in Limits."""
    io_read_bps: Optional[Size]
    """As in Limits; 0 takes a rate away."""
    io_write_bps: Optional[Size]
    on_idle: Optional[OnIdle]
    """As in SandboxSpec. One of "remove", "pause"."""
    publish: Optional[Sequence[str]]
    """The published ports as they are open, all of them, with other clients:
    ADDRESS:PORT:PORT@CIDR+CIDR, and any may connect without @. Connections of others are
    cut."""


class ListOptions(TypedDict, total=False):
    """Selects sandboxes: those that have all that is given."""

    labels: Optional[Mapping[str, str]]
    session: Optional[str]
    task: Optional[str]
    name: Optional[str]
    """A pattern of path.Match, such as "build-*"."""
    states: Optional[Sequence[SandboxState]]
    """Any of these. With "removed", also sandboxes that are gone and of which History has the
    use. One of "creating", "adopting", "running", "paused", "stopping", "exited",
    "removing", "removed"."""
    older_than: Optional[Time]
    """Since it was created."""


class BuildOptions(TypedDict, total=False):
    """How an image is built. Settings of a sandbox are those of each RUN."""

    args: Optional[Mapping[str, str]]
    """Values of ARG."""
    target: Optional[str]
    """Name or number of the stage; empty: the last."""
    no_cache: Optional[bool]
    """Do all steps again."""
    timeout: Optional[Time]
    """Of each RUN; absent: none."""
    secrets: Optional[Mapping[str, Union[str, bytes]]]
    """Files for RUN --mount=type=secret, by id. At most 500 KiB each. Nothing keeps them."""
    needs_only: Optional[bool]
    """Build nothing: the one message holds needs."""
    profile: Optional[str]
    """Empty is "strict"."""
    network: Optional[Network]
    """"none", "allow", "open", or "bridge" where the operator offers it; empty is "allow"
    where allow is given, else the profile's. A child of a sandbox has "none" where it names
    nothing, and "none" or "allow"."""
    allow: Optional[Sequence[str]]
    """[METHOD[,METHOD…] ]HOST[:PORT][+PORT…][/PATH][,private][,opaque], instead of the
    profile's; without a port 80 and 443. Methods and a path, a pattern, are of requests by
    plain HTTP, which alone pass then. HOST is a name, *.NAME, an address or a CIDR. Of a
    child: rules that those of its parent cover (else SBX-406), and its parent's where it
    names none."""
    memory: Optional[Size]
    cpus: Optional[float]
    """A count such as 1.5."""
    pids: Optional[int]
    """Tasks, that is processes and threads, as the kernel counts."""
    open_files: Optional[int]
    tmpfs: Optional[Size]
    """Of each tmpfs."""
    cpu_shares: Optional[int]
    """Weight against other sandboxes while CPUs are short, 2 to 262144, as cpu.shares of
    cgroup v1. 1024 where neither request nor profile says otherwise."""
    shm_size: Optional[Size]
    """Of /dev/shm; where neither request nor profile says, that of each tmpfs."""
    io_read_bps: Optional[Size]
    """Bytes per second that are read from each disk with files of the sandbox, and written to
    it, at least 65536. Where neither request nor profile says, unbounded. Writes need a
    host with cgroup v2."""
    io_write_bps: Optional[Size]
    disk: Optional[Size]
    """Size of a file system of the sandbox's own, on the host's disk, with a /workspace that
    its user may write; 16 MiB to 1 TiB. Where neither request nor profile says, there is
    none."""
    disk_inodes: Optional[int]
    """Files and directories on it, 256 to one for each 4 KiB; absent is one for each 16 KiB."""
    deny: Optional[Sequence[str]]
    """As allow, beside the profile's; deny beats allow."""
    allow_ech: Optional[bool]
    """Let TLS clients encrypt the name that they ask for (encrypted_client_hello), also where
    a rule depends on it. The profile may say so as well."""


NESTED: Table = {
    "sandboxes": ("sandboxes", "count"),
    "memory": ("memory_bytes", "size"),
    "cpus": ("milli_cpu", "cpus"),
}

SANDBOX: Table = {
    "name": ("name", "text"),
    "image": ("image", "text"),
    "profile": ("profile", "text"),
    "user": ("user", "text"),
    "env": ("env", "map"),
    "network": ("network", "text"),
    "allow": ("allow", "texts"),
    "workspace": ("workspace", "workspace"),
    "memory": ("limits.memory_bytes", "size"),
    "cpus": ("limits.milli_cpu", "cpus"),
    "pids": ("limits.pids", "count"),
    "open_files": ("limits.open_files", "count"),
    "tmpfs": ("limits.tmpfs_bytes", "size"),
    "cpu_shares": ("limits.cpu_shares", "count"),
    "shm_size": ("limits.shm_bytes", "size"),
    "io_read_bps": ("limits.io_read_bps", "size"),
    "io_write_bps": ("limits.io_write_bps", "size"),
    "disk": ("limits.disk_bytes", "size"),
    "disk_inodes": ("limits.disk_inodes", "count"),
    "labels": ("labels", "map"),
    "session": ("session", "text"),
    "task": ("task", "text"),
    "ttl": ("ttl", "time"),
    "idle_timeout": ("idle_timeout", "time"),
    "nested": ("nested", "nested"),
    "deny": ("deny", "texts"),
    "publish": ("publish", "texts"),
    "expose": ("expose", "counts"),
    "links": ("links", "texts"),
    "allow_ech": ("allow_ech", "flag"),
    "language": ("language", "text"),
    "language_reason": ("language_reason", "text"),
    "mounts": ("mounts", "mounts"),
    "hostname": ("hostname", "text"),
    "dns": ("dns", "texts"),
    "rootfs": ("rootfs", "text"),
    "from_": ("from", "text"),
    "snapshot_on_end": ("snapshot_on_end", "text"),
    "caches": ("caches", "texts"),
    "on_idle": ("on_idle", "text"),
    "routes": ("routes", "texts"),
}

CREATE: Table = {
    "name": ("name", "text"),
    "image": ("image", "text"),
    "profile": ("profile", "text"),
    "user": ("user", "text"),
    "env": ("env", "map"),
    "network": ("network", "text"),
    "allow": ("allow", "texts"),
    "workspace": ("workspace", "workspace"),
    "memory": ("limits.memory_bytes", "size"),
    "cpus": ("limits.milli_cpu", "cpus"),
    "pids": ("limits.pids", "count"),
    "open_files": ("limits.open_files", "count"),
    "tmpfs": ("limits.tmpfs_bytes", "size"),
    "cpu_shares": ("limits.cpu_shares", "count"),
    "shm_size": ("limits.shm_bytes", "size"),
    "io_read_bps": ("limits.io_read_bps", "size"),
    "io_write_bps": ("limits.io_write_bps", "size"),
    "disk": ("limits.disk_bytes", "size"),
    "disk_inodes": ("limits.disk_inodes", "count"),
    "labels": ("labels", "map"),
    "session": ("session", "text"),
    "task": ("task", "text"),
    "ttl": ("ttl", "time"),
    "idle_timeout": ("idle_timeout", "time"),
    "nested": ("nested", "nested"),
    "deny": ("deny", "texts"),
    "publish": ("publish", "texts"),
    "expose": ("expose", "counts"),
    "links": ("links", "texts"),
    "allow_ech": ("allow_ech", "flag"),
    "language": ("language", "text"),
    "language_reason": ("language_reason", "text"),
    "mounts": ("mounts", "mounts"),
    "hostname": ("hostname", "text"),
    "dns": ("dns", "texts"),
    "rootfs": ("rootfs", "text"),
    "from_": ("from", "text"),
    "snapshot_on_end": ("snapshot_on_end", "text"),
    "caches": ("caches", "texts"),
    "on_idle": ("on_idle", "text"),
    "routes": ("routes", "texts"),
    "ensure": ("ensure", "flag"),
    "replace": ("replace", "flag"),
}

EXEC: Table = {
    "env": ("env", "map"),
    "workdir": ("workdir", "text"),
    "user": ("user", "text"),
    "timeout": ("timeout", "time"),
    "output_limit": ("output_limit_bytes", "size"),
    "rlimits": ("rlimits", "rlimits"),
    "memory": ("limits.memory_bytes", "size"),
    "cpus": ("limits.milli_cpu", "cpus"),
    "pids": ("limits.pids", "count"),
    "inputs": ("inputs", "inputs"),
}

START: Table = {
    "env": ("env", "map"),
    "workdir": ("workdir", "text"),
    "user": ("user", "text"),
    "timeout": ("timeout", "time"),
    "output_limit": ("output_limit_bytes", "size"),
    "rlimits": ("rlimits", "rlimits"),
    "memory": ("limits.memory_bytes", "size"),
    "cpus": ("limits.milli_cpu", "cpus"),
    "pids": ("limits.pids", "count"),
    "inputs": ("inputs", "inputs"),
    "stdin": ("stdin", "flag"),
    "tty": ("tty", "terminal"),
}

ALONE: Table = {
    "name": ("sandbox.name", "text"),
    "image": ("sandbox.image", "text"),
    "profile": ("sandbox.profile", "text"),
    "user": ("sandbox.user", "text"),
    "env": ("sandbox.env", "map"),
    "network": ("sandbox.network", "text"),
    "allow": ("sandbox.allow", "texts"),
    "workspace": ("sandbox.workspace", "workspace"),
    "memory": ("sandbox.limits.memory_bytes", "size"),
    "cpus": ("sandbox.limits.milli_cpu", "cpus"),
    "pids": ("sandbox.limits.pids", "count"),
    "open_files": ("sandbox.limits.open_files", "count"),
    "tmpfs": ("sandbox.limits.tmpfs_bytes", "size"),
    "cpu_shares": ("sandbox.limits.cpu_shares", "count"),
    "shm_size": ("sandbox.limits.shm_bytes", "size"),
    "io_read_bps": ("sandbox.limits.io_read_bps", "size"),
    "io_write_bps": ("sandbox.limits.io_write_bps", "size"),
    "disk": ("sandbox.limits.disk_bytes", "size"),
    "disk_inodes": ("sandbox.limits.disk_inodes", "count"),
    "labels": ("sandbox.labels", "map"),
    "session": ("sandbox.session", "text"),
    "task": ("sandbox.task", "text"),
    "ttl": ("sandbox.ttl", "time"),
    "idle_timeout": ("sandbox.idle_timeout", "time"),
    "nested": ("sandbox.nested", "nested"),
    "deny": ("sandbox.deny", "texts"),
    "publish": ("sandbox.publish", "texts"),
    "expose": ("sandbox.expose", "counts"),
    "links": ("sandbox.links", "texts"),
    "allow_ech": ("sandbox.allow_ech", "flag"),
    "language": ("sandbox.language", "text"),
    "language_reason": ("sandbox.language_reason", "text"),
    "mounts": ("sandbox.mounts", "mounts"),
    "hostname": ("sandbox.hostname", "text"),
    "dns": ("sandbox.dns", "texts"),
    "rootfs": ("sandbox.rootfs", "text"),
    "from_": ("sandbox.from", "text"),
    "snapshot_on_end": ("sandbox.snapshot_on_end", "text"),
    "caches": ("sandbox.caches", "texts"),
    "on_idle": ("sandbox.on_idle", "text"),
    "routes": ("sandbox.routes", "texts"),
    "workdir": ("exec.workdir", "text"),
    "timeout": ("exec.timeout", "time"),
    "output_limit": ("exec.output_limit_bytes", "size"),
    "rlimits": ("exec.rlimits", "rlimits"),
    "inputs": ("exec.inputs", "inputs"),
    "learn": ("learn", "flag"),
    "learn_private": ("learn_private", "flag"),
    "keep": ("keep", "flag"),
}

UPDATE: Table = {
    "memory": ("memory_bytes", "size"),
    "cpus": ("milli_cpu", "cpus"),
    "pids": ("pids", "count"),
    "ttl": ("ttl", "time"),
    "idle_timeout": ("idle_timeout", "time"),
    "labels": ("labels", "map"),
    "network": ("network", "text"),
    "allow": ("allow", "rules"),
    "deny": ("deny", "rules"),
    "cpu_shares": ("cpu_shares", "count"),
    "io_read_bps": ("io_read_bps", "size"),
    "io_write_bps": ("io_write_bps", "size"),
    "on_idle": ("on_idle", "text"),
    "publish": ("publish", "rules"),
}

LIST: Table = {
    "labels": ("labels", "map"),
    "session": ("session", "text"),
    "task": ("task", "text"),
    "name": ("name", "text"),
    "states": ("states", "texts"),
    "older_than": ("older_than", "time"),
}

BUILD: Table = {
    "args": ("args", "map"),
    "target": ("target", "text"),
    "no_cache": ("no_cache", "flag"),
    "timeout": ("timeout", "time"),
    "secrets": ("secrets", "secrets"),
    "needs_only": ("needs_only", "flag"),
    "profile": ("sandbox.profile", "text"),
    "network": ("sandbox.network", "text"),
    "allow": ("sandbox.allow", "texts"),
    "memory": ("sandbox.limits.memory_bytes", "size"),
    "cpus": ("sandbox.limits.milli_cpu", "cpus"),
    "pids": ("sandbox.limits.pids", "count"),
    "open_files": ("sandbox.limits.open_files", "count"),
    "tmpfs": ("sandbox.limits.tmpfs_bytes", "size"),
    "cpu_shares": ("sandbox.limits.cpu_shares", "count"),
    "shm_size": ("sandbox.limits.shm_bytes", "size"),
    "io_read_bps": ("sandbox.limits.io_read_bps", "size"),
    "io_write_bps": ("sandbox.limits.io_write_bps", "size"),
    "disk": ("sandbox.limits.disk_bytes", "size"),
    "disk_inodes": ("sandbox.limits.disk_inodes", "count"),
    "deny": ("sandbox.deny", "texts"),
    "allow_ech": ("sandbox.allow_ech", "flag"),
}


CALLS = [
    (r"caisson update --", "Sandbox.update with --"),
    (r"caisson create --mount type=snapshot,src=[^\s;:()]*", "Sandbox.create() with a mount of type snapshot"),
    (r"caisson create --", "Sandbox.create with --"),
    (r"caisson spec --", "Client.spec with --"),
    (r"\(create --nested\)", "(nested of Sandbox.create)"),
    (r"caisson run\b(?! --)", "Client.run()"),
    (r"by -m and --cpus", "by memory and cpus"),
    (r"caisson ls(?: --json)?", "Client.list()"),
    (r"caisson ps SANDBOX", "Sandbox.processes()"),
    (r"caisson inspect SANDBOX", "Sandbox.inspect()"),
    (r"caisson resume [^\s,;:()]+", "Sandbox.resume()"),
    (r"caisson rm (?:--force )?[^\s,;:()]+", "Sandbox.remove()"),
    (r"caisson kill --all", "Process.kill()"),
    (r"caisson port [^\s,;:()]+", "Sandbox.ports"),
    (r"caisson cp", "Sandbox.files.copy_in()"),
    (r"caisson policy log SANDBOX", "Sandbox.policy.traffic()"),
    (r"caisson policy check", "Sandbox.policy.check()"),
    (r"caisson image pull, import or from-host", "Client.images.pull(), load() or from_host()"),
    (r"(?:caisson image import|import it with) --name NAME", "Client.images.load() with a name"),
    (r"caisson image import", "Client.images.load()"),
    (r"caisson image save", "Client.images.save()"),
    (r"caisson image prune --filter unused", "Client.images.prune() with unused=True"),
    (r"caisson image ls", "Client.images.list()"),
    (r"caisson image rm", "Client.images.remove()"),
    (r"caisson image pull", "Client.images.pull()"),
    (r"caisson image build", "Client.images.build()"),
    (r"caisson volume rm or prune", "Client.volumes.remove() or prune()"),
    (r"caisson config reload", "Client.reload_config()"),
    (r"caisson secret ls", "Client.secrets.list()"),
    (r"caisson secret set", "Client.secrets.set()"),
    (r"caisson secret rm", "Client.secrets.remove()"),
    (r"caisson volume ls", "Client.volumes.list()"),
    (r"caisson snapshot ls", "Client.snapshots.list()"),
    (r"caisson snapshot export", "Client.snapshots.save()"),
    (r"caisson snapshot import(?: FILE)?", "Client.snapshots.load()"),
    (r"caisson snapshot rm(?: [^\s,;:()]+)?", "Client.snapshots.remove()"),
    (r"caisson template ls", "Client.templates.list()"),
    (r"caisson template inspect [^\s,;:()]+", "Client.templates.get()"),
    (r"caisson template build [^\s,;:()]+", "Client.templates.build()"),
    (r"caisson changes ls", "Client.changesets.list()"),
    (r"caisson apply SANDBOX PATH", "Sandbox.apply() with paths"),
    (r"caisson apply [^\s,;:()]+", "Sandbox.apply()"),
    (r"caisson diff", "Sandbox.diff()"),
    (r"caisson doctor(?: --json)?", "Client.doctor()"),
    (r"caisson cleanup", "Client.cleanup()"),
    (r"caisson help shows the usage", "the README of the SDK shows the calls"),
]
"""The commands of remedies, and what is called instead."""

FLAGS = {
    "link": "links",
    "volume": "mounts",
    "secret": "secrets",
    "path": "paths",
    "package": "packages",
    "max-bytes": "max_bytes",
    "from": "from_",
}
"""Flags that an option has another name for."""

LISTS = {"allow", "deny", "publish", "expose", "links", "mounts", "dns", "caches", "routes", "states"}

SWITCHES = {"nested", "allow_ech", "ensure", "replace", "stdin", "learn", "learn_private", "keep", "no_cache", "needs_only"}

OTHERS = {"sandboxes", "memory", "cpus", "name", "image", "profile", "user", "env", "network", "workspace", "pids", "open_files", "tmpfs", "cpu_shares", "shm_size", "io_read_bps", "io_write_bps", "disk", "disk_inodes", "labels", "session", "task", "ttl", "idle_timeout", "language", "language_reason", "hostname", "rootfs", "from_", "snapshot_on_end", "on_idle", "workdir", "timeout", "output_limit", "rlimits", "inputs", "tty", "older_than", "args", "target", "secrets"}
