# Made by tools/unasync.py from _async/templates.py; do not edit.
"""The templates of profiles."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

from .. import _wire
from .._wire import Request, decode, segment
from ..types import BuildStep, Template
from .http import Transport


class Templates:
    """The results of set-ups of profiles, with which their sandboxes begin."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Template]:
        """Returns those of the profiles that this user may use, by profile, without logs."""
        return [decode(Template, each) for each in self._transport.entries(Request("GET", "/v1/templates"), "templates")]

    def get(self, profile: str) -> Template:
        """Returns the template of a profile, with the log of its last build."""
        return decode(Template, self._transport.call(Request("GET", _path(profile))))

    def build(
        self, profile: str, *, no_cache: bool = False, on_progress: Optional[Callable[[BuildStep], Any]] = None
    ) -> Template:
        """Builds the template of a profile where there is none, for root. With no_cache it builds all of it anew."""
        call = Request("POST", _path(profile) + "/build", body={"no_cache": no_cache})
        with self._transport.open(call) as response:
            for line in response.lines():
                message = _wire.parse(line)
                if "error" in message:
                    raise _wire.error_of(message)
                if message.get("template"):
                    return decode(Template, message["template"])
                if on_progress is not None:
                    on_progress(decode(BuildStep, message.get("progress", {})))
        raise _wire.broken("the answer ended without a template")

    def remove(self, profile: str) -> None:
        """Removes the templates of a profile, for root. The next request builds one."""
        self._transport.call(Request("DELETE", _path(profile)))


def _path(profile: str) -> str:
    if not profile:
        raise ValueError("the name of the profile is empty")
    return "/v1/templates/" + segment(profile)
