"""The events of a command, without any input or output: how they are read, where a
reader goes on after its connection broke, and what is kept of the output.
"""

from __future__ import annotations

import base64
import codecs
import dataclasses
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, cast

from . import _wire
from .codes import APIBroken, Canceled, DaemonOff, EngineDown, Init
from .errors import CaissonError
from .types import Event, Exited, Output, Result, Started
from .values import Stream

TextCallback = Callable[[str], object]

FIRST_PAUSE = 0.005
LAST_PAUSE = 0.25
STEADY = 1.0  # seconds after which a connection that breaks counts as a new break


class Retry:
    """Says whether and when a call that broke is made again."""

    def __init__(self, window: float, known: bool) -> None:
        self._window = window
        self._known = known  # there was a daemon: that none listens now means that it restarts
        self._until = 0.0
        self._since = 0.0  # when this connection brought its first line
        self._pause = FIRST_PAUSE
        self._began = 0.0  # the last attempt; one that finds no daemon ends at once

    def connected(self, progress: bool) -> None:
        """Notes that the daemon answers, and whether with something new."""
        self._known = True
        self._since = self._since or time.monotonic()
        if progress:
            self._until = 0.0

    def pause(self, error: CaissonError, repeatable: bool = True) -> Optional[float]:
        """Returns the seconds to wait before the next attempt. None: error is final."""
        unsent = isinstance(error, DaemonOff) and error.status == 0
        if not (self._broken(error) and (repeatable or unsent)):
            return None
        now = time.monotonic()
        since, self._since = self._since or self._began, 0.0
        if not self._until or since and now - since > STEADY:
            self._until, self._pause = now + self._window, FIRST_PAUSE
        if now >= self._until:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, LAST_PAUSE)
        self._began = now + pause
        return pause

    def _broken(self, error: CaissonError) -> bool:
        """Whether error says nothing of the call: the daemon ends, starts or is away."""
        if isinstance(error, (APIBroken, Canceled)):
            self._known = True
            return True
        return self._known and isinstance(error, (DaemonOff, EngineDown, Init))


class Place:
    """The place of a reader in the events of one command. Its streams may begin later."""

    def __init__(
        self, ref: str, process_id: str = "", stdout_offset: int = 0, stderr_offset: int = 0, later: bool = False
    ) -> None:
        self.ref, self.process_id = ref, process_id
        self.offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
        self._later = set(self.offsets) if later else set()
        self.ended = False
        self._started = False

    def request(self) -> _wire.Request:
        """Returns the request that goes on from here."""
        query = {f"{stream}_offset": offset for stream, offset in self.offsets.items()}
        path = _wire.sandbox_path(self.ref, "execs", self.process_id, "attach")
        return _wire.Request("POST", path, query)

    def read(self, line: bytes) -> Optional[Event]:
        """Reads one line of a stream. None: it tells nothing new."""
        message = _wire.parse(line)
        for kind, value in message.items():
            if kind in self.offsets:
                return self._output(cast(Stream, kind), value)
            if kind == "exit":
                self.ended = True
                return Exited(_wire.decode(Result, value))
            if kind == "started":
                return self._start(_wire.decode(Started, value))
            if kind == "error":
                raise _wire.error_of(message)
        return None

    def _start(self, event: Started) -> Optional[Event]:
        if self._started:  # told again after a reconnect
            return None
        self._started = True
        self.ref = event.sandbox_id or self.ref
        self.process_id = event.exec.id or self.process_id
        return event

    def _output(self, stream: Stream, value: Mapping[str, Any]) -> Event:
        text = value.get("text")
        data = text.encode() if text is not None else base64.b64decode(value.get("data", ""))
        time = _wire.moment(value.get("time"))
        event = Output(stream, int(value.get("offset", 0)), data, int(value.get("skipped", 0)), time)
        later = stream in self._later and event.offset > self.offsets[stream]
        self._later.discard(stream)
        if event.offset != self.offsets[stream] and not later:
            raise _wire.broken(f"{stream} goes on at {event.offset} instead of {self.offsets[stream]}")
        self.offsets[stream] = event.end
        return event


class Keep:
    """Keeps a stream within a limit: its first half and its last half."""

    def __init__(self, limit: int) -> None:
        if limit < 2:
            raise ValueError(f"output_limit is {limit}: give 2 or more")
        self._limit, self._half = limit, limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._passed = 0
        self._gap = False

    def add(self, data: bytes, skipped: int) -> None:
        """Adds the next part of the stream."""
        self._passed += len(data) + skipped
        if skipped:  # there is one gap: in front of the last bytes
            self._gap = True
            self._tail.clear()
        if not self._gap:
            room = max(0, self._limit - self._half - len(self._head))
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def kept(self, total: int) -> Tuple[bytes, int]:
        """Returns the kept bytes of a stream of total bytes, and how many are left out."""
        total = max(total, self._passed)
        tail = self._tail[-self._half :] if total > self._limit else self._tail
        kept = bytes(self._head + tail)
        return kept, total - len(kept)


class Collector:
    """Keeps the output of a command, and passes it on as text."""

    def __init__(self, limit: int, on_stdout: Optional[TextCallback], on_stderr: Optional[TextCallback]) -> None:
        self._keeps = {"stdout": Keep(limit), "stderr": Keep(limit)}
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {stream: decoder("replace") for stream in self._keeps}

    def add(self, event: Output) -> List[Tuple[TextCallback, str]]:
        """Keeps a part of the output. Returns the calls to make."""
        self._keeps[event.stream].add(event.data, event.skipped)
        return self._calls(event.stream, event.data, final=False)

    def end(self) -> List[Tuple[TextCallback, str]]:
        """Returns the last calls: of a character that was cut by the end."""
        return [call for stream in self._keeps for call in self._calls(stream, b"", final=True)]

    def _calls(self, stream: str, data: bytes, final: bool) -> List[Tuple[TextCallback, str]]:
        callback = self._callbacks[stream]
        if callback is None:
            return []
        text = self._decoders[stream].decode(data, final)
        return [(callback, text)] if text else []

    def result(self, result: Result) -> Result:
        """Returns result with the kept output."""
        kept: Dict[str, Any] = {}
        for stream, total in (("stdout", result.stdout_bytes), ("stderr", result.stderr_bytes)):
            kept[f"{stream}_data"], kept[f"{stream}_skipped"] = self._keeps[stream].kept(total)
        return dataclasses.replace(result, **kept)


class Lines:
    """Splits the output of one stream into lines of text."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> List[str]:
        """Returns the lines that end in data, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def end(self) -> List[str]:
        """Returns the last line, if it has no end."""
        return [self._rest.decode(errors="replace")] if self._rest else []
