# Made by tools/unasync.py from _async/snapshots.py; do not edit.
"""The snapshots of a user."""

from __future__ import annotations

from typing import Iterator, BinaryIO, List, Optional, Sequence

from .._wire import Request, decode, pieces_of, segment
from ..types import Changes, Snapshot
from .changesets import changes_of
from .http import Transport


class Snapshots:
    """Disks of sandboxes as they were once. Sandbox.snapshot makes one, from_ begins with one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Snapshot]:
        """Returns the snapshots of this user, the newest first; for root those of all users."""
        return [decode(Snapshot, each) for each in self._transport.entries(Request("GET", "/v1/snapshots"), "snapshots")]

    def get(self, name: str) -> Snapshot:
        """Returns one snapshot."""
        return decode(Snapshot, self._transport.call(Request("GET", _path(name))))

    def diff(self, name: str, to: str, paths: Sequence[str] = ()) -> Changes:
        """Returns what the snapshot to has other than the snapshot name.

        paths: they and all below them; none is all. What was renamed is deleted and added.
        """
        query = {"to": to, "paths": list(paths)}
        return changes_of(self._transport.call(Request("GET", _path(name) + "/diff", query=query)))

    def remove(self, name: str) -> None:
        """Removes a snapshot. Sandboxes that began with it keep what they have."""
        self._transport.call(Request("DELETE", _path(name)))

    def save(self, name: str) -> Iterator[bytes]:
        """Iterates over the bytes of a tar with the changes to the image of a snapshot, for load."""
        with self._transport.open(Request("GET", _path(name) + "/export")) as response:
            while True:
                part = response.some()
                if not part:
                    return
                yield part

    def load(self, archive: BinaryIO, name: Optional[str] = None) -> Snapshot:
        """Makes a snapshot of an archive that save gave. The daemon has the image of the same digest.

        name None is the name that the snapshot had.
        """
        method, path = ("PUT", _path(name)) if name else ("POST", "/v1/snapshots/import")
        return decode(Snapshot, self._transport.call(Request(method, path, body=pieces_of(archive))))


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the snapshot is empty")
    return "/v1/snapshots/" + segment(name)
