"""The files of a sandbox."""

from __future__ import annotations

import ast
import functools
import os
import tempfile
from types import TracebackType
from typing import Any, AsyncIterator, Dict, List, Optional, Tuple, Type

from .. import _archive, _wire
from .._wire import Data, Request, decode, file_path, pieces_of, sandbox_path
from ..codes import FileAbsent
from ..types import Copied, FileEvent, FileInfo, Listing
from .http import AsyncTransport
from .io import blocking
from .resume import AsyncResumed

LeftOut = Tuple[int, List[str]]


class AsyncWatch:
    """The changes below a directory. It is iterated over, and closed at the end.

    It goes on when the daemon restarts: an event of the type "overflow" says that changes
    may be missing.
    """

    def __init__(self, transport: AsyncTransport, request: Request, path: str) -> None:
        self._stream, self._path = AsyncResumed(transport, lambda: request), path
        self._messages = self._stream.messages()

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> FileEvent:
        async for message in self._messages:
            if message and "event" in message:
                return decode(FileEvent, message["event"])
            if message and "ready" in message:  # it began again
                return FileEvent(self._path, "overflow")
        raise StopAsyncIteration

    async def wait_until_ready(self) -> None:
        """Waits until changes are reported."""
        async for message in self._messages:
            if message and "ready" in message:
                return
        raise _wire.broken("the watch did not begin")

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch."""
        self._stream.close()


class AsyncFiles:
    """The files of a sandbox, with the rights of its user. Paths are absolute."""

    def __init__(self, transport: AsyncTransport, ref: str) -> None:
        self._transport, self._ref = transport, ref

    async def read(self, path: str, *, offset: int = 0, length: int = 0) -> bytes:
        """Returns the bytes of a file, or length of them from an offset."""
        request = Request("GET", file_path(self._ref, "files", path), {"offset": offset, "length": length})

        async def once() -> bytes:
            async with await self._transport.open(request) as response:
                return await response.read()

        return await self._transport.repeat(once)

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Returns a file as text."""
        return (await self.read(path)).decode(encoding)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """Iterates over the bytes of a large file."""
        async with await self._transport.open(Request("GET", file_path(self._ref, "files", path))) as response:
            while True:
                part = await response.some()
                if not part:
                    return
                yield part

    async def write(self, path: str, data: Data, *, mode: Optional[int] = None, parents: bool = True) -> FileInfo:
        """Replaces a file in one step. data is text, bytes, a file or an iterable of bytes.

        mode None: 0644, or that of the file that is replaced.
        """
        query = {"mode": mode, "make_parents": parents}
        request = Request("PUT", file_path(self._ref, "files", path), query, pieces_of(data))
        return decode(FileInfo, await self._transport.call(request))

    async def list(self, path: str, *, depth: int = 1) -> Listing:
        """Returns the entries of a directory, down to a depth. Their paths are below it."""
        request = Request("GET", file_path(self._ref, "dirs", path), {"depth": depth})
        answer = await self._transport.call(request)
        listing = Listing(decode(FileInfo, each) for each in answer.get("files", []))
        listing.truncated = answer.get("truncated", False)
        return listing

    async def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        """Returns what a path is. follow: of a symlink, its target."""
        request = Request("GET", file_path(self._ref, "stat", path), {"follow": follow})
        return decode(FileInfo, await self._transport.call(request))

    async def exists(self, path: str) -> bool:
        """Returns whether there is something at a path."""
        try:
            await self.stat(path)
        except FileAbsent:
            return False
        return True

    async def mkdir(self, path: str, *, mode: Optional[int] = None, parents: bool = True) -> FileInfo:
        """Makes a directory. With parents, one that exists is no error."""
        body: Dict[str, Any] = _wire.present(mode=mode, make_parents=parents)
        request = Request("PUT", file_path(self._ref, "dirs", path), body=body, repeatable=parents)
        return decode(FileInfo, await self._transport.call(request))

    async def move(self, source: str, target: str, *, replace: bool = False) -> FileInfo:
        """Moves a file or a directory."""
        body = {"from": source, "to": target, "replace": replace}
        answer = await self._transport.call(Request("POST", sandbox_path(self._ref, "move"), body=body))
        return decode(FileInfo, answer)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or with recursive a directory."""
        request = Request("DELETE", file_path(self._ref, "files", path), {"recursive": recursive})
        await self._transport.call(request)

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncWatch:
        """Reports changes below a directory, from the return of this call on."""
        request = Request("GET", file_path(self._ref, "watch", path), {"recursive": recursive})
        watch = AsyncWatch(self._transport, request, path)
        try:
            await watch.wait_until_ready()
        except BaseException:
            watch.close()
            raise
        return watch

    async def copy_in(self, source: "str | os.PathLike[str]", path: str) -> Copied:
        """Copies the content of a local directory into a directory, which is made.

        If the connection breaks, all of it is copied again.
        """
        await self.mkdir(path)

        async def once() -> Copied:
            request = Request("PUT", file_path(self._ref, "archive", path), body=_archive.pack(source))
            async with await self._transport.open(request) as response:
                return decode(Copied, _wire.parse(await response.read()))

        return await self._transport.repeat(once)

    async def copy_out(self, path: str, target: "str | os.PathLike[str]", *, max_bytes: int = 0) -> Copied:
        """Copies the content of a directory, or one file, into a local directory.

        Nothing is written before all has come. If the connection breaks, the copy begins
        again. left_out of the answer names devices, unreadable files, and symlinks that lead
        out of the copy.
        """
        request = Request("GET", file_path(self._ref, "archive", path), {"max_bytes": max_bytes})
        with tempfile.TemporaryFile() as spool:

            async def once() -> LeftOut:
                spool.seek(0)
                spool.truncate()
                async with await self._transport.open(request) as response:
                    while True:
                        part = await response.some()
                        if not part:
                            return _left_out(response.trailers)
                        await blocking(spool.write, part)

            count, names = await self._transport.repeat(once)
            spool.seek(0)
            entries, size, more = await blocking(functools.partial(_archive.unpack, spool, target, content=True))
        return Copied(entries, size, names + more, count + len(more))


def _left_out(trailers: List[Tuple[str, str]]) -> LeftOut:
    """Returns how many entries the daemon left out, and the names that it gave."""
    count = sum(int(value) for name, value in trailers if name == "caisson-left-out")
    # Quoted as in Go, whose escapes Python reads.
    return count, [ast.literal_eval(value) for name, value in trailers if name == "caisson-left-out-name"]
