"""One daemon."""

from __future__ import annotations

import os
from types import TracebackType
from typing import AsyncIterator, List, Mapping, Optional, Sequence, Type, Union

from .. import _spec
from .._events import Collector, Place, TextCallback
from .._spec import OUTPUT_LIMIT, Command
from .._wire import Data, Request, Seconds, Size, decode, sandbox_path
from ..host import HostEvent, Stats
from ..types import Doctor, HostInfo, Mount, Result, SandboxDetail, SandboxInfo, Version
from .http import AsyncTransport
from .images import AsyncImages
from .process import AsyncForeground, checked
from .resume import AsyncResumed, host_events
from .sandbox import AsyncSandbox
from .volumes import AsyncVolumes


class AsyncClient:
    """A client of one daemon. It may be used by many callers at once.

    socket None is $CAISSON_SOCKET, else /run/caisson/caisson.sock. If the daemon goes
    away, calls and streams are continued for up to reconnect seconds where that is safe.
    """

    def __init__(self, socket: Optional[str] = None, *, reconnect: float = AsyncTransport.RECONNECT) -> None:
        self.transport = AsyncTransport(_spec.socket_path(socket), reconnect)
        self.images = AsyncImages(self.transport)
        self.volumes = AsyncVolumes(self.transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are not in use."""
        self.transport.close()

    async def run(
        self,
        command: Command,
        *,
        image: Optional[str] = None,
        profile: Optional[str] = None,
        workspace: "Union[None, str, os.PathLike[str]]" = None,
        mounts: Optional[Sequence[Mount]] = None,
        memory: Optional[Size] = None,
        cpus: Optional[float] = None,
        pids: Optional[int] = None,
        network: Optional[str] = None,
        allow: Optional[Sequence[str]] = None,
        deny: Optional[Sequence[str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        input: Optional[Data] = None,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        check: bool = False,
        output_limit: int = OUTPUT_LIMIT,
    ) -> Result:
        """Runs one command in a sandbox of its own, which is removed when it ends.

        The options are those of Sandbox.create and Sandbox.run. If the connection breaks,
        the command is ended.
        """
        sandbox = _spec.sandbox(
            image=image, profile=profile, workspace=workspace, mounts=mounts, limits=_spec.limits(memory, cpus, pids),
            network=network, allow=allow, deny=deny, labels=labels and dict(labels), user=user,
        )
        spec = _spec.command(
            command, env=env, workdir=workdir, timeout=timeout, stdin=input is not None, output_limit=output_limit
        )
        foreground = AsyncForeground(self.transport, Place(""), Collector(output_limit, on_stdout, on_stderr))
        request = Request("POST", "/v1/run", body={"spec": {"sandbox": sandbox, "exec": spec}})
        return checked(await foreground.run(request, input, resume=False), check)

    async def list(
        self,
        labels: Optional[Mapping[str, str]] = None,
        *,
        name: Optional[str] = None,
        session: Optional[str] = None,
        task: Optional[str] = None,
        states: Optional[List[str]] = None,
        older_than: Optional[Seconds] = None,
    ) -> List[AsyncSandbox]:
        """Returns the sandboxes that have all that is given, the oldest first.

        name is a pattern such as "build-*", older_than seconds since the creation.
        """
        query = _spec.selection(labels, name, session, task, states, older_than)
        answer = await self.transport.call(Request("GET", "/v1/sandboxes", query))
        infos = [decode(SandboxInfo, each) for each in answer.get("sandboxes", [])]
        return [AsyncSandbox(self.transport, info) for info in infos]

    async def stats(
        self,
        labels: Optional[Mapping[str, str]] = None,
        *,
        name: Optional[str] = None,
        session: Optional[str] = None,
        task: Optional[str] = None,
        states: Optional[List[str]] = None,
        older_than: Optional[Seconds] = None,
    ) -> AsyncIterator[Stats]:
        """Iterates each second over what the live sandboxes that have all that is given use."""
        request = Request("GET", "/v1/stats", _spec.selection(labels, name, session, task, states, older_than))
        async for message in AsyncResumed(self.transport, lambda: request).messages():
            if message is not None:
                yield decode(Stats, message)

    def events(
        self, *, since: str = "", filter: Optional[List[str]] = None, follow: bool = False
    ) -> AsyncIterator[HostEvent]:
        """Iterates over the events of the host that this user may see, the oldest first.

        since is the ID of an event to begin after, a time (RFC 3339), or a duration before now
        ("10m"). filter holds terms such as "type=exec.*" or "sandbox=agent-7". follow goes on
        with events that are to come. If the daemon restarts, an event of the type host.LOST
        says that events may be missing.
        """
        return host_events(self.transport, since, filter, follow)

    async def get(self, ref: str) -> AsyncSandbox:
        """Returns the sandbox of a name, an ID or its unique beginning."""
        answer = await self.transport.call(Request("GET", sandbox_path(ref)))
        return AsyncSandbox(self.transport, decode(SandboxDetail, answer).sandbox)

    async def version(self) -> Version:
        """Returns the versions of the daemon and of its engine."""
        return decode(Version, await self.transport.call(Request("GET", "/v1/version")))

    async def doctor(self) -> Doctor:
        """Returns what works on this host."""
        return decode(Doctor, await self.transport.call(Request("GET", "/v1/doctor")))

    async def info(self) -> HostInfo:
        """Returns what the daemon counts."""
        return decode(HostInfo, await self.transport.call(Request("GET", "/v1/info")))
