# Made by tools/unasync.py from _async/secrets.py; do not edit.
"""The secrets of routes."""

from __future__ import annotations

from typing import List, Optional
from urllib.parse import quote

from .._forms import Time, duration
from .._wire import Request, decode, present
from ..types import Secret
from .http import Transport


class Secrets:
    """The secrets that routes put into requests, without their values. For root alone."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Secret]:
        """Returns all secrets by name."""
        answer = self._transport.call(Request("GET", "/v1/secrets"))
        return [decode(Secret, each) for each in answer.get("secrets", [])]

    def set(self, name: str, source: str, *, refresh: Optional[Time] = None) -> Secret:
        """Sets where the value of a secret comes from, such as "file:/etc/caisson/models.key".

        With refresh it is read again after each such time.
        """
        body = present(source=source, refresh=duration(refresh))
        return decode(Secret, self._transport.call(Request("PUT", _path(name), body=body, repeatable=True)))

    def remove(self, name: str) -> None:
        """Removes a secret that a call set and that no route uses."""
        self._transport.call(Request("DELETE", _path(name)))


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the secret is empty")
    return "/v1/secrets/" + quote(name, safe="")
