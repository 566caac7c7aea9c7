# Made by tools/unasync.py from _async/files.py; do not edit.
"""The files of a sandbox."""

from __future__ import annotations

import ast
import functools
import os
import tempfile
from types import TracebackType
from typing import Any, Iterator, Dict, List, Optional, Tuple, Type

from .. import _archive, _wire
from .._wire import Data, Request, decode, file_path, pieces_of, sandbox_path
from ..codes import FileAbsent
from ..types import Copied, FileEvent, FileInfo, Listing
from .http import Transport
from .io import blocking
from .resume import Resumed

LeftOut = Tuple[int, List[str]]


class Watch:
    """The changes below a directory. It is iterated over, and closed at the end.

    It goes on when the daemon restarts: an event of the type "overflow" says that changes
    may be missing.
    """

    def __init__(self, transport: Transport, request: Request, path: str) -> None:
        self._stream, self._path = Resumed(transport, lambda: request), path
        self._messages = self._stream.messages()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> FileEvent:
        for message in self._messages:
            if message and "event" in message:
                return decode(FileEvent, message["event"])
            if message and "ready" in message:  # it began again
                return FileEvent(self._path, "overflow")
        raise StopIteration

    def wait_until_ready(self) -> None:
        """Waits until changes are reported."""
        for message in self._messages:
            if message and "ready" in message:
                return
        raise _wire.broken("the watch did not begin")

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch."""
        self._stream.close()


class Files:
    """The files of a sandbox, with the rights of its user. Paths are absolute."""

    def __init__(self, transport: Transport, ref: str) -> None:
        self._transport, self._ref = transport, ref

    def read(self, path: str, *, offset: int = 0, length: int = 0) -> bytes:
        """Returns the bytes of a file, or length of them from an offset."""
        request = Request("GET", file_path(self._ref, "files", path), {"offset": offset, "length": length})

        def once() -> bytes:
            with self._transport.open(request) as response:
                return response.read()

        return self._transport.repeat(once)

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Returns a file as text."""
        return (self.read(path)).decode(encoding)

    def stream(self, path: str) -> Iterator[bytes]:
        """Iterates over the bytes of a large file."""
        with self._transport.open(Request("GET", file_path(self._ref, "files", path))) as response:
            while True:
                part = response.some()
                if not part:
                    return
                yield part

    def write(self, path: str, data: Data, *, mode: Optional[int] = None, parents: bool = True) -> FileInfo:
        """Replaces a file in one step. data is text, bytes, a file or an iterable of bytes.

        mode None: 0644, or that of the file that is replaced.
        """
        query = {"mode": mode, "make_parents": parents}
        request = Request("PUT", file_path(self._ref, "files", path), query, pieces_of(data))
        return decode(FileInfo, self._transport.call(request))

    def list(self, path: str, *, depth: int = 1) -> Listing:
        """Returns the entries of a directory, down to a depth. Their paths are below it."""
        request = Request("GET", file_path(self._ref, "dirs", path), {"depth": depth})
        answer = self._transport.call(request)
        listing = Listing(decode(FileInfo, each) for each in answer.get("files", []))
        listing.truncated = answer.get("truncated", False)
        return listing

    def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        """Returns what a path is. follow: of a symlink, its target."""
        request = Request("GET", file_path(self._ref, "stat", path), {"follow": follow})
        return decode(FileInfo, self._transport.call(request))

    def exists(self, path: str) -> bool:
        """Returns whether there is something at a path."""
        try:
            self.stat(path)
        except FileAbsent:
            return False
        return True

    def mkdir(self, path: str, *, mode: Optional[int] = None, parents: bool = True) -> FileInfo:
        """Makes a directory. With parents, one that exists is no error."""
        body: Dict[str, Any] = _wire.present(mode=mode, make_parents=parents)
        request = Request("PUT", file_path(self._ref, "dirs", path), body=body, repeatable=parents)
        return decode(FileInfo, self._transport.call(request))

    def move(self, source: str, target: str, *, replace: bool = False) -> FileInfo:
        """Moves a file or a directory."""
        body = {"from": source, "to": target, "replace": replace}
        answer = self._transport.call(Request("POST", sandbox_path(self._ref, "move"), body=body))
        return decode(FileInfo, answer)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or with recursive a directory."""
        request = Request("DELETE", file_path(self._ref, "files", path), {"recursive": recursive})
        self._transport.call(request)

    def watch(self, path: str, *, recursive: bool = False) -> Watch:
        """Reports changes below a directory, from the return of this call on."""
        request = Request("GET", file_path(self._ref, "watch", path), {"recursive": recursive})
        watch = Watch(self._transport, request, path)
        try:
            watch.wait_until_ready()
        except BaseException:
            watch.close()
            raise
        return watch

    def copy_in(self, source: "str | os.PathLike[str]", path: str) -> Copied:
        """Copies the content of a local directory into a directory, which is made.

        If the connection breaks, all of it is copied again.
        """
        self.mkdir(path)

        def once() -> Copied:
            request = Request("PUT", file_path(self._ref, "archive", path), body=_archive.pack(source))
            with self._transport.open(request) as response:
                return decode(Copied, _wire.parse(response.read()))

        return self._transport.repeat(once)

    def copy_out(self, path: str, target: "str | os.PathLike[str]", *, max_bytes: int = 0) -> Copied:
        """Copies the content of a directory, or one file, into a local directory.

        Nothing is written before all has come. If the connection breaks, the copy begins
        again. left_out of the answer names devices, unreadable files, and symlinks that lead
        out of the copy.
        """
        request = Request("GET", file_path(self._ref, "archive", path), {"max_bytes": max_bytes})
        with tempfile.TemporaryFile() as spool:

            def once() -> LeftOut:
                spool.seek(0)
                spool.truncate()
                with self._transport.open(request) as response:
                    while True:
                        part = response.some()
                        if not part:
                            return _left_out(response.trailers)
                        blocking(spool.write, part)

            count, names = self._transport.repeat(once)
            spool.seek(0)
            entries, size, more = blocking(functools.partial(_archive.unpack, spool, target, content=True))
        return Copied(entries, size, names + more, count + len(more))


def _left_out(trailers: List[Tuple[str, str]]) -> LeftOut:
    """Returns how many entries the daemon left out, and the names that it gave."""
    count = sum(int(value) for name, value in trailers if name == "caisson-left-out")
    # Quoted as in Go, whose escapes Python reads.
    return count, [ast.literal_eval(value) for name, value in trailers if name == "caisson-left-out-name"]
