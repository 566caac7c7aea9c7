"""The secrets of routes."""

from __future__ import annotations

from typing import List, Optional
from urllib.parse import quote

from .._forms import Time, duration
from .._wire import Request, decode, present
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

    async def set(self, name: str, source: str, *, refresh: Optional[Time] = None) -> Secret:
        """Sets where the value of a secret comes from, such as "file:/etc/caisson/models.key".

        With refresh it is read again after each such time.
        """
        body = present(source=source, refresh=duration(refresh))
        return decode(Secret, await self._transport.call(Request("PUT", _path(name), body=body, repeatable=True)))

    async def remove(self, name: str) -> None:
        """Removes a secret that a call set and that no route uses."""
        await self._transport.call(Request("DELETE", _path(name)))


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the secret is empty")
    return "/v1/secrets/" + quote(name, safe="")
