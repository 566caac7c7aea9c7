"""What differs between threads and asyncio. Its twin is _sync/io.py."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, AsyncIterator, Callable, Coroutine, Iterable, TypeVar

from .. import _ssh
from .._endpoint import Endpoint
from .._wire import readable

T = TypeVar("T")

READ_SIZE = 1 << 18
CONNECT_TIMEOUT = 10.0  # of TLS, in seconds


class Expired(Exception):
    """The time of within is over."""


async def within(seconds: float, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Does work, and raises Expired if it takes longer."""
    try:
        return await asyncio.wait_for(work(), seconds)
    except asyncio.TimeoutError as e:
        raise Expired from e


class Socket:
    """A connection to a daemon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self._descriptor = writer.get_extra_info("socket").fileno()

    @classmethod
    async def open(cls, to: Endpoint) -> Socket:
        """Connects."""
        if to.command:
            return cls(*await asyncio.open_unix_connection(sock=_ssh.connect(to.command), limit=READ_SIZE))
        if to.address is None:
            return cls(*await asyncio.open_unix_connection(to.path, limit=READ_SIZE))
        try:
            opening = asyncio.open_connection(*to.address, ssl=to.context, limit=READ_SIZE)
            return cls(*await asyncio.wait_for(opening, CONNECT_TIMEOUT))
        except asyncio.TimeoutError as e:
            raise TimeoutError("no answer") from e

    async def write(self, data: bytes) -> bool:
        """Writes all of data. False: the other side takes no more."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return True

    async def read_line(self) -> bytes:
        """Reads a line with its end. The end of the connection cuts it."""
        try:
            return await self._reader.readline()
        except ValueError as e:
            raise ConnectionError("a line of the answer is too long") from e

    async def read(self, most: int) -> bytes:
        """Reads some bytes. None are the end of the connection."""
        return await self._reader.read(most)

    def usable(self) -> bool:
        """Whether a connection that waited can be used again: nothing came, not even an end."""
        if self._loop is not asyncio.get_running_loop() or self._writer.is_closing():
            return False
        return not readable(self._descriptor)

    def close(self) -> None:
        """Closes it. TLS says no good-bye: the event loop may end at once."""
        try:
            if self._writer.get_extra_info("ssl_object") is None:
                self._writer.close()
            else:
                self._writer.transport.abort()
        except RuntimeError:  # its event loop has ended
            pass


class Task:
    """Work that goes on beside its starter."""

    def __init__(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        self._task = asyncio.ensure_future(work(*args))

    async def join(self) -> None:
        """Waits for the end, and raises what the work raised."""
        await self._task


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


async def blocking(work: Callable[..., T], *args: Any) -> T:
    """Does work that blocks, outside of the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, work, *args)


async def pieces(source: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Iterates over a source that may block."""
    iterator, end = iter(source), object()
    while True:
        piece = await blocking(next, iterator, end)
        if piece is end:
            return
        yield piece  # type: ignore[misc]


async def settle(value: object) -> None:
    """Awaits the value of a callback, if it can be awaited."""
    if inspect.isawaitable(value):
        await value


async def complete(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Does work to its end, also when its caller is cancelled."""
    await asyncio.shield(asyncio.ensure_future(work()))
