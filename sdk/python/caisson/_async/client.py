"""One daemon."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, AsyncIterator, List, Optional, Type

from .. import _spec
from .._endpoint import endpoint
from .._events import Collector, Place, TextCallback
from .._forms import Time, request, seconds
from .._options import LIST, AloneOptions, ListOptions
from .._spec import Command
from .._wire import Data, Request, closed, decode, sandbox_path
from ..host import HostEvent, Stats
from ..types import Capability, Doctor, HostInfo, Leftover, Ping, Reloaded, Result, RouteUsage, SandboxDetail, SandboxInfo, Spec, Version
from .changesets import AsyncChangesets
from .http import AsyncTransport
from .images import AsyncImages
from .process import AsyncForeground, checked
from .resume import AsyncResumed, host_events
from .sandbox import AsyncSandbox
from .secrets import AsyncSecrets
from .snapshots import AsyncSnapshots
from .templates import AsyncTemplates
from .volumes import AsyncVolumes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncClient:
    """A client of one daemon. It may be used by many callers at once.

    socket None is $CAISSON_SOCKET, else /run/caisson/caisson.sock. host tcp://HOST:PORT is a
    daemon elsewhere, by TLS: key is one of caisson key create, ca a file with the certificates
    that sign the daemon's, and cert and cert_key those of the client. Without them they come
    from the environment, as for the command line. If the daemon goes away, calls and streams
    are continued for the time of reconnect where that is safe.
    """

    def __init__(
        self,
        socket: Optional[str] = None,
        *,
        host: Optional[str] = None,
        key: Optional[str] = None,
        ca: Optional[str] = None,
        cert: Optional[str] = None,
        cert_key: Optional[str] = None,
        reconnect: Time = AsyncTransport.RECONNECT,
    ) -> None:
        self.transport = AsyncTransport(endpoint(socket, host, key, ca, cert, cert_key), seconds(reconnect))
        self.images = AsyncImages(self.transport)
        self.snapshots = AsyncSnapshots(self.transport)
        self.templates = AsyncTemplates(self.transport)
        self.changesets = AsyncChangesets(self.transport)
        self.volumes = AsyncVolumes(self.transport)
        self.secrets = AsyncSecrets(self.transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Later calls of the client and of its sandboxes raise APIUsage."""
        self.transport.close(closed())

    async def run(
        self,
        command: Command,
        *,
        input: Optional[Data] = None,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        check: bool = False,
        **options: Unpack[AloneOptions],
    ) -> Result:
        """Runs one command in a sandbox of its own, which is removed when it ends.

        The options are all of Sandbox.create and Sandbox.run. If the connection breaks,
        the command is ended.
        """
        spec = _spec.alone(command, options, stdin=input is not None)
        collector = Collector(_spec.output_limit(spec["exec"]), on_stdout, on_stderr)
        foreground = AsyncForeground(self.transport, Place(""), collector)
        call = Request("POST", "/v1/run", body=spec)
        return checked(await foreground.run(call, input, resume=False), check)

    async def spec(self, command: Command, *, seccomp_pfc: bool = False, **options: Unpack[AloneOptions]) -> Spec:
        """Returns what run would build, and builds nothing.

        With seccomp_pfc it has the compiled filter too, which takes some milliseconds.
        """
        body = {**_spec.alone(command, options), "seccomp_pfc": seccomp_pfc}
        return decode(Spec, await self.transport.call(Request("POST", "/v1/spec", body=body, repeatable=True)))

    async def list(self, **options: Unpack[ListOptions]) -> List[AsyncSandbox]:
        """Returns the sandboxes that have all that is given, the oldest first.

        name is a pattern such as "build-*", older_than the time since the creation.
        """
        infos = await self.transport.entries(Request("GET", "/v1/sandboxes", request(LIST, options)), "sandboxes")
        return [AsyncSandbox(self.transport, decode(SandboxInfo, each)) for each in infos]

    async def stats(self, **options: Unpack[ListOptions]) -> AsyncIterator[Stats]:
        """Iterates each second over what the live sandboxes that have all that is given use."""
        call = Request("GET", "/v1/stats", request(LIST, options))
        async for message in AsyncResumed(self.transport, lambda: call).messages():
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

    async def ping(self) -> Ping:
        """Returns whether the daemon can run something now, and else why not."""
        return decode(Ping, await self.transport.call(Request("GET", "/v1/ping")))

    async def capabilities(self) -> List[Capability]:
        """Returns for each setting whether this host enforces it."""
        answer = await self.transport.call(Request("GET", "/v1/capabilities"))
        return [decode(Capability, each) for each in answer.get("capabilities", [])]

    async def cleanup(self, *, dry_run: bool = False) -> List[Leftover]:
        """Removes what no live sandbox owns, and returns it. With dry_run it stays."""
        answer = await self.transport.call(Request("POST", "/v1/cleanup", body={"dry_run": dry_run}))
        return [decode(Leftover, each) for each in answer.get("leftovers", [])]

    async def reload_config(self) -> Reloaded:
        """Has the daemon read its configuration again. A failure changes nothing. For root alone."""
        return decode(Reloaded, await self.transport.call(Request("POST", "/v1/config/reload", body={})))

    async def version(self) -> Version:
        """Returns the versions of the daemon and of its engine."""
        return decode(Version, await self.transport.call(Request("GET", "/v1/version")))

    async def doctor(self) -> Doctor:
        """Returns what works on this host."""
        return decode(Doctor, await self.transport.call(Request("GET", "/v1/doctor")))

    async def usage(self, *, session: str = "", profile: str = "") -> List[RouteUsage]:
        """Returns what requests by routes took, of this user's sandboxes, live and gone; for root of all."""
        request = Request("GET", "/v1/usage", query={"session": session, "profile": profile})
        return [decode(RouteUsage, each) for each in await self.transport.entries(request, "usages")]

    async def info(self) -> HostInfo:
        """Returns what the daemon counts."""
        return decode(HostInfo, await self.transport.call(Request("GET", "/v1/info")))
