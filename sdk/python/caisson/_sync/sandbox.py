# Made by tools/unasync.py from _async/sandbox.py; do not edit.
"""Sandboxes."""

from __future__ import annotations

import os
import uuid
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from .. import _spec
from .._events import Collector, Place, TextCallback
from .._spec import OUTPUT_LIMIT, Command
from .._wire import Data, Request, Seconds, Size, decode, duration, error_of, milli_cpu, present, sandbox_path, size, timestamp
from ..codes import ExecNotFound, NotFound
from ..host import History, SandboxStats, Stats
from ..types import Event, Mount, Port, ProcessInfo, Result, SandboxDetail, SandboxInfo
from .files import Files
from .http import Transport
from .policy import Policy
from .process import Foreground, Process, checked, size_of, start

if TYPE_CHECKING:
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
        cls,
        image: Optional[str] = None,
        *,
        name: Optional[str] = None,
        hostname: Optional[str] = None,
        profile: Optional[str] = None,
        user: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        workspace: "Union[None, str, os.PathLike[str]]" = None,
        mounts: Optional[Sequence[Mount]] = None,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        cpu_shares: Optional[int] = None,
        pids: Optional[int] = None,
        open_files: Optional[int] = None,
        tmpfs: Optional[Size] = None,
        shm_size: Optional[Size] = None,
        io_read_bps: Optional[Size] = None,
        io_write_bps: Optional[Size] = None,
        network: Optional[str] = None,
        allow: Optional[Sequence[str]] = None,
        deny: Optional[Sequence[str]] = None,
        publish: Optional[Sequence[str]] = None,
        expose: Optional[Sequence[int]] = None,
        links: Optional[Sequence[str]] = None,
        dns: Optional[Sequence[str]] = None,
        allow_ech: bool = False,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        ensure: bool = False,
        replace: bool = False,
        client: Optional[Client] = None,
    ) -> Sandbox:
        """Makes a sandbox.

        What is not given is the profile's. workspace is a directory of the host, with :ro
        at its end to be read only. memory, tmpfs and shm_size are bytes or text such as "512M".
        io_read_bps and io_write_bps are such sizes per second, with each disk of the sandbox.
        allow holds rules HOST[:PORT][+PORT...]; without any, nothing is reached.
        publish holds [ADDRESS:]PORT:PORT. ttl and idle_timeout are in seconds.
        ensure returns the live sandbox of that name, if it was made with the same settings;
        one that has ended is replaced. replace removes a live one first.
        """
        spec = _spec.sandbox(
            image=image, name=name, hostname=hostname, profile=profile, user=user, env=env and dict(env),
            workspace=workspace, mounts=mounts,
            limits=_spec.limits(memory, cpus, pids, open_files, tmpfs, shm_size, cpu_shares, io_read_bps, io_write_bps),
            network=network,
            allow=allow, deny=deny, publish=publish, expose=expose, links=links, dns=dns,
            allow_ech=allow_ech or None,
            labels=labels and dict(labels), ttl=ttl, idle_timeout=idle_timeout,
        )
        key = "" if ensure else uuid.uuid4().hex  # so the call can be made again
        body = {"spec": spec, "ensure": ensure, "replace": replace, "idempotency_key": key}
        request = Request("POST", "/v1/sandboxes", body=body, repeatable=not ensure or name is not None)
        transport = client.transport if client else Transport(_spec.socket_path(None), Transport.RECONNECT)
        try:
            return cls(transport, decode(SandboxInfo, transport.call(request)), own=client is None)
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
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        input: Optional[Data] = None,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        check: bool = False,
        output_limit: int = OUTPUT_LIMIT,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Result:
        """Runs a command and returns its result.

        Text is a script for the shell, a list is the arguments. input is text, bytes, a
        file or an iterable of bytes. on_stdout and on_stderr get text as it comes; the
        command waits for them. The result holds output_limit bytes of each stream.
        check raises CommandFailed unless the exit code is 0. If the call is interrupted,
        the command is killed. memory, cpus and pids bound this command alone.
        """
        spec = _spec.command(
            command, env=env, workdir=workdir, user=user, timeout=timeout, stdin=input is not None,
            output_limit=output_limit, limits=_spec.limits(memory, cpus, pids),
        )
        foreground = Foreground(self._transport, Place(self.id), Collector(output_limit, on_stdout, on_stderr))
        request = Request("POST", sandbox_path(self.id, "execs"), body={"exec": spec})
        return checked(foreground.run(request, input, resume=True), check)

    def start(
        self,
        command: Command,
        *,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        stdin: bool = False,
        tty: "Union[None, bool, Tuple[int, int]]" = None,
        output_limit: int = OUTPUT_LIMIT,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
    ) -> Process:
        """Starts a command in the background, which runs on without this program.

        stdin gives it an input, for send. tty gives it a terminal of (rows, columns) with
        an input. The daemon keeps output_limit bytes of each stream.
        """
        terminal = size_of(tty)
        spec = _spec.command(
            command, env=env, workdir=workdir, user=user, timeout=timeout, stdin=stdin or terminal is not None,
            tty=terminal, output_limit=output_limit, limits=_spec.limits(memory, cpus, pids),
        )
        info = start(self._transport, self.id, spec)
        return Process(self._transport, self.id, info, own=True)

    def connect(self, process_id: str) -> Process:
        """Returns a command that was started before, perhaps by another program.

        Others may send input too: so after a break, send does not send again.
        """
        for info in self.processes():
            if info.id == process_id:
                return Process(self._transport, self.id, info, own=False)
        raise ExecNotFound(f"the sandbox {self.name} has no command {process_id!r}")

    def processes(self) -> List[ProcessInfo]:
        """Returns the commands of the sandbox, the oldest first."""
        answer = self._transport.call(Request("GET", sandbox_path(self.id, "execs")))
        return [decode(ProcessInfo, each) for each in answer.get("execs", [])]

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

    def update(
        self,
        *,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        cpu_shares: Optional[int] = None,
        pids: Optional[int] = None,
        io_read_bps: Optional[Size] = None,
        io_write_bps: Optional[Size] = None,
        ttl: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        labels: Optional[Mapping[str, str]] = None,
        network: Optional[str] = None,
        allow: Optional[Sequence[str]] = None,
        deny: Optional[Sequence[str]] = None,
    ) -> SandboxInfo:
        """Changes what is given. ttl counts from now; a label with an empty value goes."""
        body: Dict[str, Any] = present(
            memory_bytes=size(memory), milli_cpu=milli_cpu(cpus), cpu_shares=cpu_shares,
            pids=pids, io_read_bps=size(io_read_bps), io_write_bps=size(io_write_bps), ttl=duration(ttl),
            idle_timeout=duration(idle_timeout), labels=labels and dict(labels), network=network,
            allow=None if allow is None else {"rules": list(allow)},
            deny=None if deny is None else {"rules": list(deny)},
        )
        return self._told(Request("PATCH", sandbox_path(self.id), body=body, repeatable=True))

    def pause(self) -> SandboxInfo:
        """Freezes all processes."""
        return self._told(Request("POST", sandbox_path(self.id, "pause")))

    def resume(self) -> SandboxInfo:
        """Lets the processes of a paused sandbox go on."""
        return self._told(Request("POST", sandbox_path(self.id, "resume")))

    def stop(self, grace: Optional[Seconds] = None) -> SandboxInfo:
        """Ends all processes: TERM, and KILL after a grace. Their output stays."""
        body = present(grace=duration(grace))
        return self._told(Request("POST", sandbox_path(self.id, "stop"), body=body))

    def wait(self) -> SandboxInfo:
        """Waits until the sandbox has ended."""
        return self._told(Request("GET", sandbox_path(self.id, "wait")))

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
            self._transport.close()

    def _told(self, request: Request) -> SandboxInfo:
        self.info = decode(SandboxInfo, self._transport.call(request))
        return self.info
