"""What ended sandboxes changed in copy-on-write workspaces."""

from __future__ import annotations

from typing import List, Optional, Sequence

from .._wire import Request, decode, present, sandbox_path, segment
from ..types import Applied, Change, Changes, Changeset
from ..values import ConflictSide
from .http import AsyncTransport


class AsyncChangesets:
    """Changes of ended sandboxes, by the ID or the name of the sandbox.

    They stay until they are applied, discarded or past the daemon's retention.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Changeset]:
        """Returns the changesets of this user, the newest first; for root those of all users."""
        return [decode(Changeset, each) for each in await self._transport.entries(Request("GET", "/v1/changesets"), "changesets")]

    async def diff(self, ref: str) -> Changes:
        """Returns what changed, as Sandbox.diff."""
        answer = await self._transport.call(Request("GET", sandbox_path(ref, "diff")))
        changes = Changes(decode(Change, each) for each in answer.get("changes", []))
        changes.truncated = bool(answer.get("truncated"))
        return changes

    async def apply(
        self,
        ref: str,
        paths: Sequence[str] = (),
        *,
        dry_run: bool = False,
        conflicts: Optional[ConflictSide] = None,
        include_control: bool = False,
    ) -> Applied:
        """Writes the changes into the host's directory, as Sandbox.apply."""
        body = present(paths=list(paths), dry_run=dry_run, conflicts=conflicts, include_control=include_control)
        return decode(Applied, await self._transport.call(Request("POST", sandbox_path(ref, "apply"), body=body)))

    async def discard(self, ref: str) -> None:
        """Removes a changeset."""
        if not ref:
            raise ValueError("the name of the changeset is empty")
        await self._transport.call(Request("DELETE", "/v1/changesets/" + segment(ref)))
