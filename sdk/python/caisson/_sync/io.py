"""What differs between threads and asyncio. Its twin is _async/io.py."""

from __future__ import annotations

import io
import select
import socket
import ssl
import threading
import time
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, TypeVar, Union

from .. import _ssh
from .._endpoint import Endpoint
from .._wire import readable

T = TypeVar("T")

READ_SIZE = 1 << 18
CONNECT_TIMEOUT = 10.0  # of TLS, in seconds


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


class Secured(io.RawIOBase):
    """A connection by TLS that one thread may read while another writes: OpenSSL allows one at a time."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        connection.setblocking(False)
        self._connection, self._lock = connection, threading.Lock()
        self._timeout: Optional[float] = None

    @classmethod
    def open(cls, address: Tuple[str, int], context: ssl.SSLContext) -> Secured:
        """Connects, and shakes hands."""
        plain = socket.create_connection(address, CONNECT_TIMEOUT)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(context.wrap_socket(plain, server_hostname=address[0]))
        except BaseException:
            plain.close()
            raise

    def _do(self, work: Callable[[], int]) -> int:
        """Does work as soon as the connection allows."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                with self._lock:
                    return work()
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            poll = select.poll()
            poll.register(self._connection, wanted)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not poll.poll(left if left is None else left * 1000):
                raise socket.timeout("timed out")

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads some bytes. None are the end of the connection."""
        return self._do(lambda: self._connection.recv_into(buffer))

    def sendall(self, data: bytes) -> None:
        """Writes all of data."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._do(lambda: self._connection.send(rest[:READ_SIZE])) :]

    def settimeout(self, timeout: Optional[float]) -> None:
        """Bounds each later read and write."""
        self._timeout = timeout

    def fileno(self) -> int:
        """The descriptor, which tells whether something came."""
        return self._connection.fileno()

    def shutdown(self, how: int) -> None:
        """Ends both directions, also under a thread that reads."""
        socket.socket.shutdown(self._connection, how)

    def close(self) -> None:
        """Closes it."""
        super().close()
        self._connection.close()


class Socket:
    """A connection to a daemon."""

    def __init__(self, connection: Union[socket.socket, Secured]) -> None:
        self._socket = connection
        raw = connection if isinstance(connection, Secured) else connection.makefile("rb", 0)
        self._reader = io.BufferedReader(raw, READ_SIZE)
        self._timed = False

    @classmethod
    def open(cls, to: Endpoint) -> Socket:
        """Connects."""
        if to.address is not None and to.context is not None:
            return cls(Secured.open(to.address, to.context))
        if to.command:
            return cls(_ssh.connect(to.command))
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(to.path)
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
