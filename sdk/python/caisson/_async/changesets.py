"""What ended sandboxes changed in copy-on-write workspaces."""

from __future__ import annotations

import base64
from typing import Any, List, Mapping, Optional, Sequence

from .._wire import Request, decode, present, sandbox_path, segment
from ..types import Applied, Change, ChangeNote, Changes, Changeset
from ..values import ConflictSide
from .http import AsyncTransport


def changes_of(answer: Mapping[str, Any]) -> Changes:
    """Makes the changes of an answer."""
    changes = Changes(decode(Change, each) for each in answer.get("changes", []))
    changes.truncated = bool(answer.get("truncated"))
    changes.patch = base64.b64decode(answer.get("patch", ""))
    changes.left = [decode(ChangeNote, each) for each in answer.get("left", [])]
    return changes


class AsyncChangesets:
    """Changes of ended sandboxes, by the ID or the name of the sandbox.

    They stay until they are applied, discarded or past the daemon's retention.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Changeset]:
        """Returns the changesets of this user, the newest first; for root those of all users."""
        return [decode(Changeset, each) for each in await self._transport.entries(Request("GET", "/v1/changesets"), "changesets")]

    async def diff(self, ref: str, *, patch: bool = False, include_control: bool = False) -> Changes:
        """Returns what changed, as Sandbox.diff."""
        query = present(patch=patch or None, include_control=include_control or None)
        return changes_of(await self._transport.call(Request("GET", sandbox_path(ref, "diff"), query=query)))

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
