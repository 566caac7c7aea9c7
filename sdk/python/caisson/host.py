"""What the host tells: its events, and what sandboxes use.

Sizes are in bytes, times in UTC. Percents of a CPU may be above 100.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import List, Optional

from .types import ABSENT, ProcessInfo, Stage
from .values import AttemptKind, AttemptVerdict, FileAction, Isolation, Network, SandboxState


@dataclass(frozen=True)
class SandboxStats:
    """What one sandbox uses. A value that the host does not count is None."""

    sandbox_id: str = ""
    name: str = ""
    state: SandboxState = ABSENT
    cpu_percent: float = 0.0
    """Of the last second."""
    cpu: float = 0.0
    """Seconds since it was made, of all CPUs."""
    milli_cpu: int = 0
    memory_bytes: int = 0
    peak_memory_bytes: Optional[int] = None
    memory_limit_bytes: int = 0
    pids: int = 0
    """Tasks, that is processes and threads."""
    pids_limit: int = 0
    io_read_bytes: Optional[int] = None
    io_write_bytes: Optional[int] = None
    sent_bytes: int = 0
    received_bytes: int = 0
    cpu_pressure: Optional[float] = None
    """Percent of the last 10 s in which a process waited for it."""
    memory_pressure: Optional[float] = None
    io_pressure: Optional[float] = None
    processes: Optional[int] = None
    """PID 1 included."""


@dataclass(frozen=True)
class Stats:
    """What sandboxes use at one time, the oldest sandbox first."""

    time: Optional[datetime] = None
    sandboxes: List[SandboxStats] = field(default_factory=list)


@dataclass(frozen=True)
class UsageSample:
    """The use of a sandbox since the sample before. memory_bytes and pids are the most."""

    time: Optional[datetime] = None
    cpu_percent: float = 0.0
    memory_bytes: int = 0
    pids: int = 0
    io_read_bytes: int = 0
    io_write_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(frozen=True)
class History:
    """The use of a sandbox over time, the oldest sample first."""

    sandbox_id: str = ""
    name: str = ""
    state: SandboxState = ABSENT
    memory_limit_bytes: int = 0
    milli_cpu: int = 0
    pids_limit: int = 0
    samples: List[UsageSample] = field(default_factory=list)
    created_at: Optional[datetime] = None
    image: str = ""
    """Of one that is gone, as ended_at and execs."""
    ended_at: Optional[datetime] = None
    execs: List[ProcessInfo] = field(default_factory=list)
    """The last 20 commands, the oldest first, with the first 512 bytes of their arguments."""


@dataclass(frozen=True)
class EventMount:
    """A mount of a sandbox that was made."""

    type: str = ""
    source: str = ""
    target: str = ""
    read_only: bool = False
    size_bytes: Optional[int] = None
    cow: bool = False


@dataclass(frozen=True)
class EventInput:
    """A private file for a command."""

    path: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class EventData:
    """Describes an event. Fields that do not apply to it are zero."""

    caller: str = ""
    """It is "uid 1000", "sandbox ID" or "the daemon"."""
    request_id: str = ""
    """Of the call that led to the event."""
    sandbox_id: str = ""
    name: str = ""
    """Of the sandbox."""
    exec_id: str = ""
    session: str = ""
    task: str = ""
    profile: str = ""
    pooled: bool = False
    """Made for a pool."""
    image: str = ""
    image_digest: str = ""
    network: Network = ABSENT
    policy_digest: str = ""
    """SHA-256 of the effective egress policy as JSON."""
    filter_digest: str = ""
    """SHA-256 of the seccomp filters that PID 1 has in force."""
    workspace: str = ""
    """Directory of the host."""
    mounts: List[EventMount] = field(default_factory=list)
    """Beside the workspace."""
    memory_bytes: int = 0
    """The limits."""
    milli_cpu: int = 0
    pids: int = 0
    stages: List[Stage] = field(default_factory=list)
    """Of the creation."""
    args: List[str] = field(default_factory=list)
    """Of a command, at most 32 KiB."""
    args_digest: str = ""
    """SHA-256 of all args, each with a zero byte at its end; where args has less."""
    args_bytes: int = 0
    """Of which args_digest is."""
    env: List[str] = field(default_factory=list)
    """Names of variables, never values."""
    cwd: str = ""
    user: str = ""
    """Inside."""
    exit_code: Optional[int] = None
    signal: int = 0
    reason: str = ""
    """Of an end or a refusal."""
    stdin_bytes: int = 0
    """That the command's pipe took."""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    lost_bytes: int = 0
    """Of output that the disk did not take."""
    cpu: float = 0.0
    peak_memory_bytes: int = 0
    duration: float = 0.0
    limit: str = ""
    """That was hit: "memory", "pids", "kernel_memory", "time", "output"; of an alert also "cpu", "refusals"."""
    kind: AttemptKind = ABSENT
    """Of an attempt to connect, as in TrafficResponse."""
    verdict: AttemptVerdict = ABSENT
    """Likewise."""
    host: str = ""
    """Name that was asked for."""
    port: int = 0
    address: str = ""
    peer: str = ""
    """That came in from outside."""
    rule: str = ""
    """That decided."""
    skipped: int = 0
    """Attempts before this one that have no event."""
    sent_bytes: int = 0
    received_bytes: int = 0
    request: str = ""
    """To a route: method and path, without the query."""
    status: int = 0
    """Of its answer."""
    credential: str = ""
    """That was added: the name of a secret."""
    input_tokens: int = 0
    """Of the end of a sandbox: what models read for its requests by routes."""
    output_tokens: int = 0
    cost: float = 0.0
    """In the unit of the configured prices."""
    action: FileAction = ABSENT
    """On a file: "read", "write", "make", "move", "remove", "copy_in", "copy_out"."""
    path: str = ""
    """Inside."""
    to: str = ""
    """Of a move."""
    bytes: int = 0
    call: str = ""
    """Procedure of the API."""
    code: str = ""
    """Of a failure."""
    message: str = ""
    """Of a failure of the host."""
    version: str = ""
    """Of the daemon."""
    config_digest: str = ""
    """SHA-256 of the effective configuration as JSON."""
    lost: int = 0
    """Events that the reader missed."""
    config_digest_before: str = ""
    """As config_digest, before the configuration was reloaded."""
    keys: List[str] = field(default_factory=list)
    """Of the configuration, whose values changed."""
    isolation: Isolation = ABSENT
    image_verified: str = ""
    """The rule that the image was verified by when it was pulled."""
    volume: str = ""
    snapshot: str = ""
    changes: int = 0
    inputs: List[EventInput] = field(default_factory=list)


@dataclass(frozen=True)
class HostEvent:
    """One event of the host, in the form of CloudEvents 1.0.

    type is such as "run.caisson.exec.ended", subject such as "sandboxes/ID/execs/1".
    """

    specversion: str = ""
    id: str = ""
    """Unique on this host, and a place to begin after. Empty of "run.caisson.events.lost"."""
    source: str = ""
    type: str = ""
    time: Optional[datetime] = None
    subject: str = ""
    data: EventData = EventData()


LOST = "run.caisson.events.lost"
"""The type of the event that says that events are missing before it."""
