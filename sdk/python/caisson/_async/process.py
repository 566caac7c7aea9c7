"""Commands of a sandbox: their events, their input and their signals."""

from __future__ import annotations

import base64
from typing import Any, AsyncGenerator, AsyncIterator, Callable, Coroutine, Optional, TypeVar

from .. import _wire
from .._events import Collector, Lines, Place, TextCallback
from .._forms import Size, Time, seconds, size
from .._options import OUTPUT_LIMIT
from .._wire import PIECE, Data, Request, pieces_of
from ..codes import ExecNotFound, NotFound, State
from ..errors import CaissonError, CommandFailed
from ..types import Event, Exited, Output, ProcessInfo, Result, Started
from .http import AsyncTransport
from .io import Expired, Task, complete, pieces, settle, sleep, within

T = TypeVar("T")


async def follow(
    transport: AsyncTransport, request: Request, place: Place, resume: bool = True
) -> AsyncGenerator[Event, None]:
    """Iterates over the events of a command to its end.

    A stream that breaks is continued where it was: no byte is lost, and none comes twice.
    """
    retry = transport.retry()
    while True:
        try:
            async with await transport.open(request) as response:
                async for line in response.lines():
                    event = place.read(line)
                    retry.connected(progress=event is not None)
                    if event is not None:
                        yield event
            error = _wire.broken("the stream ended before the command did")
        except CaissonError as e:
            error = e
        if place.ended:
            return
        pause = retry.pause(error) if resume and place.process_id else None
        if pause is None:
            raise error
        await sleep(pause)
        request = place.request()


async def start(transport: AsyncTransport, ref: str, spec: object) -> ProcessInfo:
    """Starts a command that nobody needs to be connected to."""
    path = _wire.sandbox_path(ref, "execs")
    place, info = Place(ref), None
    async with await transport.open(Request("POST", path, body={"exec": spec})) as response:
        async for line in response.lines():
            event = place.read(line)
            if isinstance(event, Started):
                info = event.exec
    if info is None:
        raise _wire.broken("the daemon did not say whether the command started")
    return info


class AsyncForeground:
    """One command that its caller follows to the end. If that fails, it is killed."""

    def __init__(self, transport: AsyncTransport, place: Place, collector: Collector) -> None:
        self._transport, self._place, self._collector = transport, place, collector

    async def run(self, request: Request, data: Optional[Data], resume: bool) -> Result:
        """Runs the command with the input data."""
        events = follow(self._transport, request, self._place, resume)
        sender: Optional[Task] = None
        result: Optional[Result] = None
        try:
            async for event in events:
                if isinstance(event, Started) and data is not None:
                    sender = Task(self._send, data)
                result = await collect(event, self._collector)
        except BaseException:
            await complete(self._kill)
            raise
        finally:
            await events.aclose()
            if sender is not None:
                await complete(sender.join)
        assert result is not None  # follow raises where there is none
        return result

    async def _send(self, data: Data) -> None:
        to = AsyncInput(self._transport, self._place.ref, self._place.process_id, 0)
        try:
            await to.send_all(data)
        except BaseException:  # the command must not take a part for the whole
            await complete(self._kill)
            raise

    async def _kill(self) -> None:
        if not self._place.process_id or self._place.ended:
            return
        request = signal_request(self._place.ref, self._place.process_id, "KILL", everything=True)
        try:
            async with await self._transport.open(request) as response:  # once: nobody waits for a daemon
                await response.read()
        except CaissonError:  # it has ended; or the daemon ends it, as nobody is connected
            pass


async def collect(event: Event, collector: Collector) -> Optional[Result]:
    """Takes one event in. Returns the result after the last one."""
    if isinstance(event, Started):
        return None
    calls = collector.add(event) if isinstance(event, Output) else collector.end()
    for callback, text in calls:
        await settle(callback(text))
    return collector.result(event.result) if isinstance(event, Exited) else None


def signal_request(ref: str, process_id: str, name: str, everything: bool) -> Request:
    """Returns the request that sends a signal."""
    path = _wire.sandbox_path(ref, "execs", process_id, "signal")
    return Request("POST", path, body={"signal": name, "all": everything})


class AsyncInput:
    """The input of one command."""

    def __init__(self, transport: AsyncTransport, ref: str, process_id: str, offset: Optional[int]) -> None:
        """offset None: others send input too, so nothing can be sent again."""
        self._transport, self._offset = transport, offset
        self._path = _wire.sandbox_path(ref, "execs", process_id, "input")

    async def send(self, data: bytes, close: bool = False) -> bool:
        """Sends bytes. False: the command has closed its input, or has ended."""
        for at in range(0, max(len(data), 1), PIECE):
            piece = data[at : at + PIECE]
            if not await self._put(piece, close and at + PIECE >= len(data)):
                return close and at + PIECE >= len(data)
        return True

    async def _put(self, piece: bytes, close: bool) -> bool:
        body = _wire.present(offset=self._offset, data=base64.b64encode(piece).decode(), close=close)
        request = Request("POST", self._path, body=body, repeatable=self._offset is not None)
        answer = await self._transport.call(request)
        closed = bool(answer.get("closed", False))
        if self._offset is None:
            return not closed
        self._offset += len(piece)
        return not closed or int(answer.get("offset", 0)) >= self._offset

    async def send_all(self, data: Data) -> None:
        """Sends all of data and closes the input, unless the command does so before."""
        try:
            if isinstance(data, (str, bytes)):
                await self.send(data.encode() if isinstance(data, str) else data, close=True)
                return
            async for piece in pieces(pieces_of(data)):
                if not await self.send(piece):
                    return
            await self.send(b"", close=True)
        except (ExecNotFound, NotFound):
            pass  # it has ended


class AsyncProcess:
    """A command that runs in a sandbox, or has run in it.

    Every reader of its output begins at the first byte that is kept, so no order of calls
    loses output. The daemon keeps output_limit bytes of each stream, and all that a
    connected reader has not read yet.
    """

    def __init__(self, transport: AsyncTransport, ref: str, info: ProcessInfo, own: bool) -> None:
        self._transport, self._ref = transport, ref
        self.info = info
        """The command as it was when it was started or connected to."""
        self._input = AsyncInput(transport, ref, info.id, 0 if own else None)

    @property
    def id(self) -> str:
        """The command's ID, for connect."""
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {' '.join(self.info.args)!r}>"

    def events(self, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncGenerator[Event, None]:
        """Iterates over the events: Started, Output and, as the last one, Exited."""
        place = Place(self._ref, self.id, stdout_offset, stderr_offset)
        return follow(self._transport, place.request(), place)

    @property
    def stdout(self) -> AsyncIterator[str]:
        """The lines of the output, as they come, to the end of the command."""
        return self._lines("stdout")

    @property
    def stderr(self) -> AsyncIterator[str]:
        """The lines of the errors."""
        return self._lines("stderr")

    async def _lines(self, stream: str) -> AsyncIterator[str]:
        lines = Lines()
        async for event in self.events():
            if isinstance(event, Output) and event.stream == stream:
                for line in lines.add(event.data):
                    yield line
        for line in lines.end():
            yield line

    async def wait(
        self,
        timeout: Optional[Time] = None,
        *,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        check: bool = False,
        output_limit: Size = OUTPUT_LIMIT,
    ) -> Result:
        """Waits for the end and returns the result with the output.

        TimeoutError: the command has not ended after the timeout, and runs on.
        """
        collector = Collector(size(output_limit), on_stdout, on_stderr)

        async def last() -> Optional[Result]:
            result: Optional[Result] = None
            async for event in self.events():
                result = await collect(event, collector)
            return result

        result = await ended_within(timeout, last, "the command")
        assert result is not None  # follow raises where there is none
        return checked(result, check)

    async def send(self, data: "str | bytes") -> None:
        """Writes to the input. The command was started with stdin=True or a terminal.

        It returns when the command's pipe has taken all. If the connection breaks, only
        the rest is sent again. BrokenPipeError: the command has closed its input.
        """
        if not await self._input.send(data.encode() if isinstance(data, str) else data):
            raise BrokenPipeError("the command has closed its input, or has ended")

    async def close_input(self) -> None:
        """Ends the input."""
        await self._input.send(b"", close=True)

    async def signal(self, name: str, *, all: bool = False) -> None:
        """Sends a signal such as "INT", to all processes of the command with all=True."""
        await self._transport.call(signal_request(self._ref, self.id, name, everything=all))

    async def kill(self) -> None:
        """Kills the command with all its processes. One that has ended is no error."""
        try:
            await self.signal("KILL", all=True)
        except (State, ExecNotFound, NotFound):
            pass

    async def resize(self, rows: int, cols: int) -> None:
        """Changes the size of the terminal."""
        path = _wire.sandbox_path(self._ref, "execs", self.id, "resize")
        body = {"size": {"rows": rows, "cols": cols}}
        await self._transport.call(Request("POST", path, body=body, repeatable=True))


def checked(result: Result, check: bool) -> Result:
    """Raises CommandFailed for a command that failed, if that is wanted."""
    if check and not result.ok:
        raise CommandFailed(result)
    return result


async def ended_within(timeout: Optional[Time], work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
    """Waits by work for the end of something. TimeoutError: the timeout is over before."""
    if timeout is None:
        return await work()
    limit = seconds(timeout)
    try:
        return await within(limit, work)
    except Expired:
        raise TimeoutError(f"{what} has not ended after {limit:g} s") from None
