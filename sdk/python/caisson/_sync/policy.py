# Made by tools/unasync.py from _async/policy.py; do not edit.
"""What a sandbox may reach, and what it tried to reach."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Iterator, List

from .._wire import Request, decode, sandbox_path
from ..types import Attempt, Learned, PolicyLine, Verdict
from .http import Transport
from .resume import Resumed


class Policy:
    """The network policy of a sandbox."""

    def __init__(self, transport: Transport, ref: str) -> None:
        self._transport, self._ref = transport, ref

    def check(self, target: str) -> Verdict:
        """Returns whether a URL, HOST or HOST:PORT may be reached. Nothing is tried."""
        body = {"policy": {"ref": self._ref}, "target": target}
        request = Request("POST", "/v1/policy/check", body=body, repeatable=True)
        return decode(Verdict, self._transport.call(request))

    def explain(self) -> List[PolicyLine]:
        """Returns all rules, in the order in which they count."""
        body = {"policy": {"ref": self._ref}}
        request = Request("POST", "/v1/policy/explain", body=body, repeatable=True)
        answer = self._transport.call(request)
        return [decode(PolicyLine, line) for line in answer.get("lines", [])]

    def learned(self) -> Learned:
        """Returns the rules that would have been enough for what was reached."""
        return decode(Learned, self._transport.call(Request("GET", sandbox_path(self._ref, "learned"))))

    def traffic(self, *, follow: bool = False, since: str = "") -> Iterator[Attempt]:
        """Iterates over the attempts to reach something, after the one with the cursor since.

        follow: until the sandbox ends. If the daemon restarts, no attempt is missed or comes
        twice; one of the kind "gap" says that those under way then may have no entry.
        """
        path, cursor = sandbox_path(self._ref, "traffic"), since

        def request() -> Request:
            return Request("GET", path, {"follow": follow, "since": cursor})

        for message in Resumed(self._transport, request).messages():
            attempt = _gap() if message is None else decode(Attempt, message)
            cursor = attempt.cursor or cursor
            yield attempt


def _gap() -> Attempt:
    reason = "the connection to the daemon broke: attempts that were under way may have no entry"
    return Attempt(time=datetime.now(timezone.utc), kind="gap", reason=reason)
