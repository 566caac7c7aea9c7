# Made by tools/unasync.py from _async/secrets.py; do not edit.
"""The secrets of routes."""

from __future__ import annotations

from typing import List

from .._wire import Request, decode
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
