# Made by tools/unasync.py from _async/resume.py; do not edit.
"""Streams of the host and of sandboxes that go on when the daemon restarts."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Generator, Iterator, Callable, Dict, List, Optional

from .. import _wire
from .._wire import Request
from ..codes import EventsGone
from ..errors import CaissonError
from ..host import LOST, EventData, HostEvent
from .http import Response, Transport
from .io import sleep


class Resumed:
    """A stream of messages. Where it breaks, the next request is made."""

    def __init__(self, transport: Transport, next_request: Callable[[], Request]) -> None:
        self._transport, self._next = transport, next_request
        self._response: Optional[Response] = None
        self._closed = False

    def close(self) -> None:
        """Ends the stream."""
        self._closed = True
        if self._response is not None:
            self._response.close()

    def messages(self) -> Generator[Optional[Dict[str, Any]], None, None]:
        """Iterates over the messages. None stands where the stream broke."""
        retry = self._transport.retry()
        while not self._closed:
            opened = False
            try:
                with self._transport.open(self._next()) as self._response:
                    opened = True
                    for line in self._response.lines():
                        message = _wire.parse(line)
                        if "error" in message:
                            raise _wire.error_of(message)
                        retry.connected(progress=True)
                        yield message
                        if self._closed:
                            return
                return
            except CaissonError as e:
                if self._closed:
                    return
                pause = retry.pause(e)
                if pause is None:
                    raise
            sleep(pause)
            if opened:
                yield None


def host_events(
    transport: Transport, since: str, filter: Optional[List[str]], follow: bool
) -> Iterator[HostEvent]:
    """Iterates over the events of the host. One of the type LOST says that some may be missing."""
    broke, last = False, ""  # the ID after which another request goes on

    def request() -> Request:
        return Request("GET", "/v1/events", {"since": since, "filter": filter, "follow": follow})

    while True:
        try:
            for message in Resumed(transport, request).messages():
                if message is None:
                    broke = True
                    if not last:
                        yield _lost()
                    continue
                event = _wire.decode(HostEvent, message)
                if event.id:
                    since = last = event.id
                yield event
            return
        except EventsGone:
            if not broke:
                raise
            since = last = ""  # the first event of the new daemon
            yield _lost()


def _lost() -> HostEvent:
    message = "the connection to the daemon broke: events may be missing"
    return HostEvent("1.0", type=LOST, time=datetime.now(timezone.utc), data=EventData(message=message))
