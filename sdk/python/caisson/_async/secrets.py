"""The secrets of routes."""

from __future__ import annotations

from typing import List

from .._wire import Request, decode
from ..types import Secret
from .http import AsyncTransport


class AsyncSecrets:
    """The secrets that routes put into requests, without their values. For root alone."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Secret]:
        """Returns all secrets by name."""
        answer = await self._transport.call(Request("GET", "/v1/secrets"))
        return [decode(Secret, each) for each in answer.get("secrets", [])]
