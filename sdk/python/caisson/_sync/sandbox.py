# Made by tools/unasync.py from _async/sandbox.py; do not edit.
"""Sandboxes."""

from __future__ import annotations

import os
import uuid
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, Type, Union

from .. import _spec
from .._endpoint import endpoint
from .._events import Collector, Place, TextCallback
from .._forms import Time, duration, request, workspace
from .._options import CREATE, EXEC, START, UPDATE, CreateOptions, ExecOptions, StartOptions, UpdateOptions
from .._spec import Command
from .._wire import Data, Request, decode, error_of, present, removed, sandbox_path, timestamp
from ..codes import ExecNotFound, NotFound
from ..errors import CaissonError
from ..host import History, SandboxStats, Stats
from ..types import Applied, Changes, Cleaned, Event, Port, ProcessInfo, Result, Rewound, SandboxDetail, SandboxInfo, Snapshot
from ..values import ConflictSide
from .changesets import changes_of
from .files import Files
from .forward import Forwarded
from .http import Transport
from .policy import Policy
from .process import Foreground, Process, checked, ended_within, start

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import Client


class Sandbox:
    """A sandbox in which commands are run.

    As a context manager it is removed at the end of the block, with its processes and
    all that they wrote outside of the workspace.
    """

    def __init__(self, transport: Transport, info: SandboxInfo, own: bool = False) -> None:
        self._transport, self._own = transport, own
        self.info = info
        """The sandbox as it was when a call of this object last returned it."""
        self.files = Files(transport, info.id)
        self.policy = Policy(transport, info.id)

    @classmethod
    def create(
        cls, from_image: Optional[str] = None, /, *, client: Optional[Client] = None, **options: Unpack[CreateOptions]
    ) -> Sandbox:
        """Makes a sandbox. The image may be given first, without its name.

        What is not given is the profile's. workspace is a directory of the host, with :ro
        at its end to be read only, with :cow to be copy-on-write. allow holds rules HOST[:PORT][+PORT...]; without any,
        nothing is reached. CreateOptions explains each option.
        ensure returns the live sandbox of that name, if it was made with the same settings;
        one that has ended is replaced. replace removes a live one first.
        """
        if from_image is not None:
            if options.get("image") is not None:
                raise TypeError("image: it is given twice")
            options["image"] = from_image
        body = request(CREATE, options)
        ensure, name = body.get("ensure"), options.get("name")
        if not ensure:
            body["idempotency_key"] = uuid.uuid4().hex  # so the call can be made again
        call = Request("POST", "/v1/sandboxes", body=body, repeatable=not ensure or name is not None)
        transport = client.transport if client else Transport(endpoint(), Transport.RECONNECT)
        try:
            return cls(transport, decode(SandboxInfo, transport.call(call)), own=client is None)
        except BaseException:
            if client is None:
                transport.close()
            raise

    @property
    def id(self) -> str:
        """The ID, which is never used again."""
        return self.info.id

    @property
    def name(self) -> str:
        """The name, which is the ID where none was given."""
        return self.info.name

    @property
    def ports(self) -> List[Port]:
        """The ports of the host that lead inside."""
        return self.info.ports

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.remove()
        except NotFound:  # its time was over, or it was removed in the block
            pass

    def run(
        self,
        command: Command,
        *,
        input: Optional[Data] = None,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        check: bool = False,
        **options: Unpack[ExecOptions],
    ) -> Result:
        """Runs a command and returns its result.

        Text is a script for the shell, a list is the arguments. input is text, bytes, a
        file or an iterable of bytes. on_stdout and on_stderr get text as it comes; the
        command waits for them. The result holds output_limit bytes of each stream.
        check raises CommandFailed unless the exit code is 0. If the call is interrupted,
        the command is killed. memory, cpus and pids bound this command alone.
        ExecOptions explains each option.
        """
        spec = _spec.command(EXEC, command, options, stdin=input is not None)
        collector = Collector(_spec.output_limit(spec), on_stdout, on_stderr)
        foreground = Foreground(self._transport, Place(self.id), collector)
        call = Request("POST", sandbox_path(self.id, "execs"), body={"exec": spec, "attach": True})
        return checked(foreground.run(call, input, resume=True), check)

    def start(self, command: Command, **options: Unpack[StartOptions]) -> Process:
        """Starts a command in the background, which runs on without this program.

        stdin gives it an input, for send. tty gives it a terminal of (rows, columns) with
        an input. The daemon keeps output_limit bytes of each stream.
        """
        info = start(self._transport, self.id, _spec.command(START, command, options))
        return Process(self._transport, self.id, info, own=True)

    def connect(self, process_id: str) -> Process:
        """Returns a command that was started before, perhaps by another program.

        Others may send input too: so after a break, send does not send again.
        """
        for info in self.processes():
            if info.id == process_id:
                return Process(self._transport, self.id, info, own=False)
        raise ExecNotFound(
            f"the sandbox {self.name} has no command {process_id!r}", class_="invalid_input",
            remedy="list its commands: Sandbox.processes()",
        )

    def processes(self) -> List[ProcessInfo]:
        """Returns the commands of the sandbox, the oldest first."""
        infos = self._transport.entries(Request("GET", sandbox_path(self.id, "execs")), "execs")
        return [decode(ProcessInfo, each) for each in infos]

    def logs(
        self,
        process_id: str = "",
        *,
        follow: bool = False,
        timestamps: bool = False,
        since: Optional[datetime] = None,
        until: Optional[datetime] = None,
    ) -> Iterator[Event]:
        """Iterates over the kept output of a command; by default of the sandbox's own.

        It ends with what there is now, or with follow at the end of the command. With
        timestamps each part has its time. since leaves out what came before it, and until
        what came after it.
        """
        place = Place(self.id, later=since is not None)
        query = {
            "exec_id": process_id, "follow": follow, "timestamps": timestamps,
            "since": timestamp(since), "until": timestamp(until),
        }
        with self._transport.open(Request("GET", sandbox_path(self.id, "logs"), query)) as response:
            for line in response.lines():
                event = place.read(line)
                if event is not None:
                    yield event

    def update(self, **options: Unpack[UpdateOptions]) -> SandboxInfo:
        """Changes what is given. ttl counts from now; a label with an empty value goes."""
        body = request(UPDATE, options)
        return self._told(Request("PATCH", sandbox_path(self.id), body=body, repeatable=True))

    def attach_workspace(self, directory: Union[str, "os.PathLike[str]"]) -> SandboxInfo:
        """Mounts a directory of the host on /workspace, without a restart: DIR[:ro|:cow].

        The sandbox has no workspace of the host yet, and no files in /workspace.
        """
        body = {"workspace": workspace(directory)}
        return self._told(Request("POST", sandbox_path(self.id, "workspace"), body=body))

    def attach_snapshot(self, snapshot: str, path: Optional[str] = None) -> SandboxInfo:
        """Mounts the directory that a snapshot keeps, copy-on-write, without a restart.

        path is an existing directory, by default the one that the snapshot is of.
        """
        body = present(snapshot=snapshot, path=path)
        return self._told(Request("POST", sandbox_path(self.id, "snapshots"), body=body))

    def pause(self) -> SandboxInfo:
        """Freezes all processes."""
        return self._told(Request("POST", sandbox_path(self.id, "pause")))

    def resume(self) -> SandboxInfo:
        """Lets the processes of a paused sandbox go on."""
        return self._told(Request("POST", sandbox_path(self.id, "resume")))

    def stop(self, grace: Optional[Time] = None) -> SandboxInfo:
        """Ends all processes: TERM, and KILL after a grace. Their output stays."""
        body = present(grace=duration(grace))
        return self._told(Request("POST", sandbox_path(self.id, "stop"), body=body))

    def clean(self) -> Cleaned:
        """Ends every process, with its listeners, and empties /tmp. Other files stay."""
        return decode(Cleaned, self._transport.call(Request("POST", sandbox_path(self.id, "clean"), body={})))

    def restart(self) -> SandboxInfo:
        """Replaces the sandbox by a new one of the same settings, whose ID this object has then.

        Files and commands of the old one go, and so do changes by update.
        """
        self._told(Request("POST", sandbox_path(self.id, "restart"), body={}))
        self.files = Files(self._transport, self.id)
        self.policy = Policy(self._transport, self.id)
        return self.info

    def diff(self, *, patch: bool = False, include_control: bool = False) -> Changes:
        """Returns what changed in a copy-on-write workspace, workspace="DIR:cow".

        patch: with a patch that git apply takes, of control files only with include_control.
        """
        query = present(patch=patch or None, include_control=include_control or None)
        return changes_of(self._transport.call(Request("GET", sandbox_path(self.id, "diff"), query=query)))

    def apply(
        self,
        paths: Sequence[str] = (),
        *,
        dry_run: bool = False,
        conflicts: Optional[ConflictSide] = None,
        include_control: bool = False,
    ) -> Applied:
        """Writes the changes of a copy-on-write workspace into the host's directory.

        paths: they and all below them; none is all. conflicts: "ours" keeps what the host
        changed as well, "theirs" takes the sandbox's; otherwise that is refused.
        """
        body = present(paths=list(paths), dry_run=dry_run, conflicts=conflicts, include_control=include_control)
        return decode(Applied, self._transport.call(Request("POST", sandbox_path(self.id, "apply"), body=body)))

    def snapshot(self, name: Optional[str] = None, path: Optional[str] = None) -> Snapshot:
        """Copies the disk, while the processes stand still. create begins with it: from_=NAME.

        The sandbox has a disk with rootfs="rw", or with disk. Without a name one is made up.
        With a path it is that directory alone: Mount(type="snapshot", source=NAME, target=PATH).
        """
        body = present(ref=self.id, name=name, path=path)
        return decode(Snapshot, self._transport.call(Request("POST", "/v1/snapshots", body=body)))

    def rewind(self, snapshot: str) -> Rewound:
        """Gives the sandbox the files of a snapshot of its own image. Its commands end first.

        Its ID, name, ports, network policy and mounts of the host stay.
        """
        body = {"snapshot": snapshot}
        return decode(Rewound, self._transport.call(Request("POST", sandbox_path(self.id, "rewind"), body=body)))

    def forward(self, port: int) -> Forwarded:
        """Connects to a port on localhost inside, published or not."""
        call = Request("POST", sandbox_path(self.id, "forward", str(port)), duplex=True)
        return Forwarded(self._transport.open(call))

    def fork(self, count: int = 1) -> List[Union[Sandbox, CaissonError]]:
        """Makes sandboxes with the files and settings of this one, as create does from a snapshot.

        Each succeeds or fails alone: in place of one that failed is its error.
        """
        call = Request("POST", sandbox_path(self.id, "fork"), body={"count": count})
        answer = self._transport.call(call)
        return [self._forked(each) for each in answer.get("forks", [])]

    def _forked(self, message: Mapping[str, Any]) -> Union[Sandbox, CaissonError]:
        if message.get("sandbox") is None:
            return error_of(message)
        transport = self._transport
        if self._own:  # it is closed when this sandbox is removed
            transport = Transport(transport.socket, transport.reconnect)
        return Sandbox(transport, decode(SandboxInfo, message["sandbox"]), own=self._own)

    def wait(self, timeout: Optional[Time] = None) -> SandboxInfo:
        """Waits until the sandbox has ended. TimeoutError: it has not, and lives on."""

        def told() -> SandboxInfo:
            return self._told(Request("GET", sandbox_path(self.id, "wait")))

        return ended_within(timeout, told, "the sandbox")

    def inspect(self) -> SandboxDetail:
        """Returns the limits, the traffic and the image, and updates info."""
        detail = decode(SandboxDetail, self._transport.call(Request("GET", sandbox_path(self.id))))
        self.info = detail.sandbox
        return detail

    def stats(self) -> SandboxStats:
        """Returns what the sandbox uses."""
        query = {"refs": [self.id], "no_stream": True}  # a stream of one message
        answer = self._transport.call(Request("GET", "/v1/stats", query))
        if "error" in answer:
            raise error_of(answer)
        return decode(Stats, answer).sandboxes[0]

    def history(self) -> History:
        """Returns what the sandbox used over time."""
        return decode(History, self._transport.call(Request("GET", sandbox_path(self.id, "history"))))

    def remove(self, *, force: bool = True) -> None:
        """Removes the sandbox. Without force, one that runs is refused."""
        self._transport.call(Request("DELETE", sandbox_path(self.id), {"force": force}))
        if self._own:
            self._transport.close(removed(self.name))

    def _told(self, request: Request) -> SandboxInfo:
        self.info = decode(SandboxInfo, self._transport.call(request))
        return self.info
