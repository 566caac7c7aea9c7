"""The snapshots of a user."""

from __future__ import annotations

from typing import AsyncIterator, BinaryIO, List, Optional, Sequence

from .._wire import Request, decode, pieces_of, segment
from ..types import Changes, Snapshot
from .changesets import changes_of
from .http import AsyncTransport


class AsyncSnapshots:
    """Disks of sandboxes as they were once. Sandbox.snapshot makes one, from_ begins with one."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Snapshot]:
        """Returns the snapshots of this user, the newest first; for root those of all users."""
        return [decode(Snapshot, each) for each in await self._transport.entries(Request("GET", "/v1/snapshots"), "snapshots")]

    async def get(self, name: str) -> Snapshot:
        """Returns one snapshot."""
        return decode(Snapshot, await self._transport.call(Request("GET", _path(name))))

    async def diff(self, name: str, to: str, paths: Sequence[str] = ()) -> Changes:
        """Returns what the snapshot to has other than the snapshot name.

        paths: they and all below them; none is all. What was renamed is deleted and added.
        """
        query = {"to": to, "paths": list(paths)}
        return changes_of(await self._transport.call(Request("GET", _path(name) + "/diff", query=query)))

    async def remove(self, name: str) -> None:
        """Removes a snapshot. Sandboxes that began with it keep what they have."""
        await self._transport.call(Request("DELETE", _path(name)))

    async def save(self, name: str) -> AsyncIterator[bytes]:
        """Iterates over the bytes of a tar with the changes to the image of a snapshot, for load."""
        async with await self._transport.open(Request("GET", _path(name) + "/export")) as response:
            while True:
                part = await response.some()
                if not part:
                    return
                yield part

    async def load(self, archive: BinaryIO, name: Optional[str] = None) -> Snapshot:
        """Makes a snapshot of an archive that save gave. The daemon has the image of the same digest.

        name None is the name that the snapshot had.
        """
        method, path = ("PUT", _path(name)) if name else ("POST", "/v1/snapshots/import")
        return decode(Snapshot, await self._transport.call(Request(method, path, body=pieces_of(archive))))


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the snapshot is empty")
    return "/v1/snapshots/" + segment(name)
