"""Run commands of agents in sandboxes of caisson.

    from caisson import Sandbox

    with Sandbox.create() as box:
        print(box.run("echo hello").stdout)

Each class has a twin for asyncio: AsyncSandbox, AsyncClient, AsyncProcess.
"""

from . import codes
from ._forms import Size, Time
from ._options import AloneOptions, BuildOptions, CreateOptions, ExecOptions, ListOptions, NestedOptions, StartOptions, UpdateOptions
from ._async.client import AsyncClient
from ._async.forward import AsyncForwarded
from ._async.process import AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._sync.client import Client
from ._sync.forward import Forwarded
from ._sync.process import Process
from ._sync.sandbox import Sandbox
from .codes import (
    APIBroken,
    APIUsage,
    Busy,
    CommandAbsent,
    DaemonOff,
    ExecNotFound,
    Exists,
    FileAbsent,
    FileRights,
    ImageNotFound,
    Limits,
    NotFound,
    Paused,
    State,
)
from .errors import CaissonError, CommandFailed
from .host import HostEvent
from .types import Applied, Change, ChangeNote, Changes, Changeset, Event, Exited, FileEvent, FileInfo, Input, Mount, Output, ProcessInfo, Result, RouteUsage, SandboxInfo, Secret, Snapshot, Started, Template, Volume

__version__ = "0.1.0"

__all__ = [
    "APIBroken",
    "APIUsage",
    "AloneOptions",
    "AsyncClient",
    "AsyncForwarded",
    "AsyncProcess",
    "AsyncSandbox",
    "BuildOptions",
    "Busy",
    "CaissonError",
    "Applied",
    "Change",
    "ChangeNote",
    "Changes",
    "Changeset",
    "Client",
    "CommandAbsent",
    "CommandFailed",
    "CreateOptions",
    "DaemonOff",
    "Event",
    "ExecNotFound",
    "ExecOptions",
    "Exists",
    "Exited",
    "FileAbsent",
    "FileEvent",
    "FileInfo",
    "FileRights",
    "Forwarded",
    "HostEvent",
    "ImageNotFound",
    "Input",
    "Limits",
    "ListOptions",
    "Mount",
    "NestedOptions",
    "NotFound",
    "Output",
    "Paused",
    "Process",
    "ProcessInfo",
    "Result",
    "Sandbox",
    "SandboxInfo",
    "Size",
    "RouteUsage",
    "Secret",
    "Snapshot",
    "Template",
    "StartOptions",
    "Started",
    "State",
    "Time",
    "UpdateOptions",
    "Volume",
    "codes",
]
