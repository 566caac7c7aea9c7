"""A daemon of a few lines: it answers each request with the next prepared bytes."""

import os
import socket
import tempfile
import threading
from typing import List, Optional


class Fake:
    """Serves one connection after another. An answer of None closes the connection."""

    def __init__(self, *connections: List[Optional[bytes]]) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._dir.name, "s")
        self.requests: List[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(8)
        self.ended = threading.Semaphore(0)  # released at the end of each connection
        self._thread = threading.Thread(target=self._serve, args=(connections,), daemon=True)
        self._thread.start()

    def _serve(self, connections) -> None:
        for answers in connections:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as reader:
                for answer in answers:
                    request = self._read(reader)
                    if not request:
                        break
                    self.requests.append(request)
                    if answer is None:
                        break
                    connection.sendall(answer)
            self.ended.release()

    @staticmethod
    def _read(reader) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline()
            if not line:
                return b""
            head += line
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        if fields.get(b"Transfer-Encoding") == b"chunked":
            body, chunk = b"", None
            while chunk != b"":
                chunk = reader.read(int(reader.readline(), 16))
                reader.readline()
                body += chunk
            return head + body
        return head + reader.read(int(fields.get(b"Content-Length", b"0")))

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()
        self._dir.cleanup()


def plain(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def chunked(*pieces: bytes, trailers: bytes = b"") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailers + b"\r\n"


def cut(*pieces: bytes) -> bytes:
    """A chunked answer without its end."""
    return chunked(*pieces)[: -len(b"0\r\n\r\n")]
