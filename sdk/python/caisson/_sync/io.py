"""What differs between threads and asyncio. Its twin is _async/io.py."""

from __future__ import annotations

import io
import socket
import threading
import time
from typing import Any, Callable, Iterable, Iterator, Optional, TypeVar

from .._wire import readable

T = TypeVar("T")

READ_SIZE = 1 << 18


class Expired(Exception):
    """The time of within is over."""


_this_thread = threading.local()  # deadline: when the time of within is over


def _left() -> Optional[float]:
    deadline: Optional[float] = getattr(_this_thread, "deadline", None)
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise Expired
    return left


def within(seconds: float, work: Callable[[], T]) -> T:
    """Does work that reads from sockets, and raises Expired if it takes longer."""
    before = getattr(_this_thread, "deadline", None)
    deadline = time.monotonic() + seconds
    _this_thread.deadline = deadline if before is None else min(before, deadline)
    try:
        return work()
    finally:
        _this_thread.deadline = before


class Socket:
    """A connection to a unix socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = io.BufferedReader(connection.makefile("rb", 0), READ_SIZE)
        self._timed = False

    @classmethod
    def open(cls, path: str) -> Socket:
        """Connects."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    def write(self, data: bytes) -> bool:
        """Writes all of data. False: the other side takes no more."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def read_line(self) -> bytes:
        """Reads a line with its end. The end of the connection cuts it."""
        line = self._in_time(lambda: self._reader.readline(READ_SIZE))
        if len(line) == READ_SIZE:
            raise ConnectionError("a line of the answer is too long")
        return line

    def read(self, most: int) -> bytes:
        """Reads some bytes. None are the end of the connection."""
        return self._in_time(lambda: self._reader.read1(most))

    def _in_time(self, read: Callable[[], bytes]) -> bytes:
        left = _left()
        if left is not None or self._timed:
            self._socket.settimeout(left)
            self._timed = left is not None
        try:
            return read()
        except socket.timeout as e:
            raise Expired from e

    def usable(self) -> bool:
        """Whether a connection that waited can be used again: nothing came, not even an end."""
        return not readable(self._socket.fileno())

    def close(self) -> None:
        """Closes it, also under a thread that reads."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side was first
            pass
        self._reader.close()
        self._socket.close()


class Task:
    """Work that goes on beside its starter."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._do, args=(work, *args), daemon=True)
        self._thread.start()

    def _do(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except BaseException as e:  # join raises it
            self._error = e

    def join(self) -> None:
        """Waits for the end, and raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error


def sleep(seconds: float) -> None:
    """Waits."""
    left = _left()
    time.sleep(seconds if left is None else min(seconds, left))


def blocking(work: Callable[..., T], *args: Any) -> T:
    """Does work that blocks."""
    return work(*args)


def pieces(source: Iterable[bytes]) -> Iterator[bytes]:
    """Iterates over a source that may block."""
    return iter(source)


def settle(value: object) -> None:
    """Leaves the value of a callback alone."""


def complete(work: Callable[[], None]) -> None:
    """Does work to its end."""
    work()
