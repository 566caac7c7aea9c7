# Made by tools/unasync.py from _async/forward.py; do not edit.
"""Streams to ports inside sandboxes."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from .http import Response


class Forwarded:
    """A stream to a port inside a sandbox.

    One task may receive while another sends. As a context manager it is closed at the end of
    the block.
    """

    def __init__(self, response: Response) -> None:
        self._response = response

    def __enter__(self) -> Forwarded:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Sends all of data."""
        if data:
            self._response.write(data)

    def end(self) -> None:
        """Ends what is sent. The server may go on to answer."""
        self._response.write(b"")

    def receive(self) -> bytes:
        """Returns what came, at least a byte. None are the end of the server's side."""
        return self._response.some()

    def close(self) -> None:
        """Closes both directions."""
        self._response.close()
