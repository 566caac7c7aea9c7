# Made by tools/unasync.py from _async/http.py; do not edit.
"""HTTP/1.1 over a unix socket, or by TLS: one request at a time on a connection.

The standard library's client does not work with event loops, skips trailers, and takes a
stream that was cut for one that ended. So the daemon's answers are read here.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
from types import TracebackType
from typing import Any, Iterator, Callable, Coroutine, Dict, List, Optional, Tuple, Type, TypeVar, Union

from .. import _wire
from .._endpoint import Endpoint, of
from .._events import Retry
from ..errors import CaissonError
from .io import READ_SIZE, Socket, pieces, sleep

T = TypeVar("T")

MAX_HEADERS = 1000
MAX_IDLE = 8

_STATUS = re.compile(r"HTTP/1\.1 ([1-5][0-9][0-9])( |$)")
_CHUNK = re.compile(r"([0-9a-fA-F]{1,15}) *(;|$)")


def _head(lines: List[str]) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class Response:
    """One answer. Its connection is used again after the end of the body was read."""

    def __init__(self, pool: Transport, socket: Socket) -> None:
        self._pool, self._socket = pool, socket
        self._open = True
        self.status = 0
        self.headers: Dict[str, str] = {}
        self.trailers: List[Tuple[str, str]] = []
        self._left = 0  # of the body, or of this chunk
        self._chunked = False
        self._ended = False

    def __enter__(self) -> Response:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connection back, or closes it where the body was not read."""
        if not self._open:
            return
        self._open = False
        if self._ended and self.headers.get("connection") != "close":
            self._pool.give(self._socket)
        else:
            self._socket.close()

    def read_head(self) -> None:
        """Reads the status and the headers."""
        try:
            self._read_head()
        except OSError as e:
            raise _wire.broken("the connection to the daemon broke", e) from e

    def _read_head(self) -> None:
        line = self._line()
        status = _STATUS.match(line)
        if not status:
            raise _wire.broken(f"the daemon answered {line[:80]!r} instead of HTTP/1.1")
        self.status = int(status[1])
        self.headers = dict(self._fields())
        self._chunked = self.headers.get("transfer-encoding", "") == "chunked"
        if not self._chunked:
            length = self.headers.get("content-length", "0")
            if not length.isdecimal():
                raise _wire.broken(f"the length {length!r} of the answer is no number")
            self._left = int(length)
            self._ended = self._left == 0

    def _line(self) -> str:
        line = self._socket.read_line()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the daemon closed the connection")
        return line[:-2].decode("latin-1")

    def _fields(self) -> List[Tuple[str, str]]:
        fields: List[Tuple[str, str]] = []
        for _ in range(MAX_HEADERS):
            line = self._line()
            if not line:
                return fields
            name, _, value = line.partition(":")
            fields.append((name.strip().lower(), value.strip()))
        raise _wire.broken(f"the answer has more than {MAX_HEADERS} headers")

    def write(self, data: bytes) -> None:
        """Writes a part of the request's body, if it is duplex. An empty one is its end."""
        if not self._socket.write(b"%x\r\n%b\r\n" % (len(data), data)):
            raise _wire.broken("the connection to the daemon broke")

    def some(self) -> bytes:
        """Reads a part of the body. An empty one is its end; a cut is an error."""
        try:
            return self._some()
        except OSError as e:
            raise _wire.broken("the connection to the daemon broke", e) from e

    def _some(self) -> bytes:
        if self._ended:
            return b""
        if self._chunked and not self._left and not self._next_chunk():
            return b""
        data = self._socket.read(min(self._left, READ_SIZE))
        if not data:
            raise ConnectionError("the daemon closed the connection")
        self._left -= len(data)
        if not self._left:
            if self._chunked:
                self._line()
            else:
                self._ended = True
        return data

    def _next_chunk(self) -> bool:
        line = self._line()
        size = _CHUNK.match(line)
        if not size:
            raise _wire.broken(f"the chunk size {line[:20]!r} is no number")
        self._left = int(size[1], 16)
        if self._left:
            return True
        self.trailers = self._fields()
        self._ended = True
        return False

    def read(self) -> bytes:
        """Reads the whole body."""
        parts: List[bytes] = []
        while True:
            part = self.some()
            if not part:
                return b"".join(parts)
            parts.append(part)

    def lines(self) -> Iterator[bytes]:
        """Iterates over the lines of the body."""
        begun: List[bytes] = []
        while True:
            part = self.some()
            if not part:
                return
            *ends, rest = part.split(b"\n")
            for end in ends:
                yield b"".join([*begun, end])
                begun = []
            begun.append(rest)


class Transport:
    """Makes requests to one daemon, and keeps connections for later ones."""

    RECONNECT = 10.0

    def __init__(self, socket: Union[str, Endpoint], reconnect: float) -> None:
        self.socket, self.reconnect = of(socket), reconnect
        self._idle: List[Socket] = []
        self._owner = os.getpid()
        self._known = False  # the daemon answered once
        self._closed: Optional[CaissonError] = None

    def close(self, why: Optional[CaissonError] = None) -> None:
        """Closes the idle connections, and those in use after use. Later requests raise why."""
        self._closed = why or _wire.closed()
        for socket in self._idle:
            socket.close()
        self._idle.clear()

    def retry(self) -> Retry:
        """Returns the state of one call that may be made again."""
        return Retry(self.reconnect, self._known)

    def call(self, request: _wire.Request) -> Dict[str, Any]:
        """Makes a call with one answer. It is made again where that is safe."""

        def once() -> Dict[str, Any]:
            with self.open(request) as response:
                return _wire.parse(response.read())

        return self.repeat(once, request.repeatable)

    def entries(self, request: _wire.Request, field: str) -> List[Dict[str, Any]]:
        """Returns the entries of a list from all its pages."""
        entries: List[Dict[str, Any]] = []
        query = dict(request.query)
        while True:
            answer = self.call(dataclasses.replace(request, query=query))
            entries += answer.get(field, [])
            query["next"] = answer.get("next", "")
            if not query["next"]:
                return entries

    def repeat(self, work: Callable[[], T], repeatable: bool = True) -> T:
        """Does work again after a connection broke, or else where no daemon had a request."""
        retry = self.retry()
        while True:
            try:
                return work()
            except CaissonError as e:
                pause = retry.pause(e, repeatable)
                if pause is None:
                    raise
            sleep(pause)

    def open(self, request: _wire.Request) -> Response:
        """Sends a request and returns the answer, whose body is still to be read."""
        socket = self._take()
        response = Response(self, socket)
        try:
            self._send(socket, request)
            response.read_head()
            self._known = True
            if response.status >= 400:
                raise _wire.error_of(_wire.parse(response.read()), response.status)
            return response
        except BaseException:
            response.close()
            raise

    def _send(self, socket: Socket, request: _wire.Request) -> None:
        """Sends a request, or as much of it as the daemon takes: its answer says why."""
        head = [f"{request.method} {request.target()} HTTP/1.1", "Host: caisson"]
        if self.socket.key:
            head.append(f"Authorization: Bearer {self.socket.key}")
        if request.duplex:
            socket.write(_head([*head, "Transfer-Encoding: chunked", "Connection: close"]))
            return
        kind, body = request.payload()
        if kind:
            head.append(f"Content-Type: {kind}")
        if isinstance(body, bytes):
            if kind:
                head.append(f"Content-Length: {len(body)}")
            socket.write(_head(head) + body)
            return
        going = socket.write(_head([*head, "Transfer-Encoding: chunked"]))
        for piece in pieces(body):
            if not going:
                break
            if piece:
                going = socket.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if going:
            socket.write(b"0\r\n\r\n")

    def _take(self) -> Socket:
        if self._closed is not None:
            raise copy.copy(self._closed)
        if self._owner != os.getpid():  # after a fork the connections are the parent's
            self._owner, self._idle = os.getpid(), []
        while True:
            try:
                socket = self._idle.pop()
            except IndexError:
                break
            if socket.usable():
                return socket
            socket.close()
        try:
            return Socket.open(self.socket)
        except OSError as e:
            raise _wire.daemon_off(self.socket, e) from e

    def give(self, socket: Socket) -> None:
        """Keeps a connection for another request."""
        if self._closed is not None or len(self._idle) >= MAX_IDLE or self._owner != os.getpid():
            socket.close()
        else:
            self._idle.append(socket)
