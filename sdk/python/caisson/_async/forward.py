"""Streams to ports inside sandboxes."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from .http import AsyncResponse


class AsyncForwarded:
    """A stream to a port inside a sandbox.

    One task may receive while another sends. As a context manager it is closed at the end of
    the block.
    """

    def __init__(self, response: AsyncResponse) -> None:
        self._response = response

    async def __aenter__(self) -> AsyncForwarded:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    async def send(self, data: bytes) -> None:
        """Sends all of data."""
        if data:
            await self._response.write(data)

    async def end(self) -> None:
        """Ends what is sent. The server may go on to answer."""
        await self._response.write(b"")

    async def receive(self) -> bytes:
        """Returns what came, at least a byte. None are the end of the server's side."""
        return await self._response.some()

    def close(self) -> None:
        """Closes both directions."""
        self._response.close()
