"""The volumes of a user."""

from __future__ import annotations

from typing import Any, Dict, List, Optional
from urllib.parse import quote

from .._forms import Size
from .._forms import size as _size
from .._wire import Request, decode
from ..types import Volume
from .http import AsyncTransport


class AsyncVolumes:
    """Named directories that outlive sandboxes. A Mount of the type "volume" uses one."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str, *, size: Optional[Size] = None, inodes: int = 0) -> Volume:
        """Makes a volume. One that is there stays as it is.

        With size it holds no more than that, and inodes files; 0 is one for each 16 KiB.
        """
        body: Dict[str, Any] = {"name": name}
        if size is not None:
            body["size_bytes"] = _size(size)
        if inodes:
            body["inodes"] = inodes
        request = Request("POST", "/v1/volumes", body=body, repeatable=True)
        return decode(Volume, await self._transport.call(request))

    async def list(self) -> List[Volume]:
        """Returns the volumes of this user by name; for root those of all users."""
        return [decode(Volume, each) for each in await self._transport.entries(Request("GET", "/v1/volumes"), "volumes")]

    async def get(self, name: str) -> Volume:
        """Returns one volume."""
        return decode(Volume, await self._transport.call(Request("GET", _path(name))))

    async def remove(self, name: str) -> None:
        """Removes a volume that no sandbox uses, with all files in it."""
        await self._transport.call(Request("DELETE", _path(name)))

    async def prune(self, *, dry_run: bool = False) -> List[Volume]:
        """Removes the volumes of this user that no sandbox uses, and returns them.

        With dry_run they stay.
        """
        answer = await self._transport.call(Request("POST", "/v1/volumes/prune", body={"dry_run": dry_run}))
        return [decode(Volume, each) for each in answer.get("volumes", [])]


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the volume is empty")
    return "/v1/volumes/" + quote(name, safe="")
