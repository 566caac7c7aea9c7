"""Requests and answers of the API as JSON, without any input or output.

Numbers from 2**53 on are strings there, durations are "1.5s", times are RFC 3339, and an
absent value is zero.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import re
import select
import ssl
import typing
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, Iterable, List, Literal, Mapping, Optional, Tuple, Type, TypeVar, Union, cast
from urllib.parse import quote, urlencode

from ._remedies import in_python
from .codes import BY_CODE
from .errors import CaissonError

if TYPE_CHECKING:
    from ._endpoint import Endpoint

T = TypeVar("T")


@dataclasses.dataclass
class Request:
    """One request of plain HTTP.

    body is JSON, unless it is bytes. A repeatable request may be sent again after a
    connection broke: it changes nothing, or changes it once. The body of a duplex one is
    written while its answer comes.
    """

    method: str
    path: str
    query: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    body: Union[None, Mapping[str, Any], bytes, Iterable[bytes]] = None
    repeatable: bool = False
    duplex: bool = False

    def __post_init__(self) -> None:
        self.repeatable = self.repeatable or self.method == "GET"

    def target(self) -> str:
        """Returns the path with its query."""
        pairs = [(k, v) for k, value in self.query.items() for v in _query_values(value)]
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path

    def payload(self) -> Tuple[str, Union[bytes, Iterable[bytes]]]:
        """Returns the type of the content and the content."""
        if self.body is None:
            return "", b""
        if isinstance(self.body, Mapping):
            return "application/json", json.dumps(self.body).encode()
        return "application/octet-stream", self.body


def _query_values(value: Any) -> List[str]:
    if value is None or value is False:
        return []
    if isinstance(value, Mapping):
        return [f"{k}={v}" for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [str(v) for v in value]
    return ["true" if value is True else str(value)]


def segment(value: str) -> str:
    """Quotes one segment of a path."""
    return quote(value, safe="")


def sandbox_path(ref: str, *rest: str) -> str:
    """Returns the path of a sandbox, or of something below it."""
    if not ref:
        raise ValueError("the name of the sandbox is empty")
    return "/".join(["/v1/sandboxes", segment(ref), *map(segment, rest)])


def file_path(ref: str, kind: str, path: str) -> str:
    """Returns the path of a file call. The path inside the sandbox is absolute."""
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not absolute: paths inside a sandbox begin with /")
    return f"{sandbox_path(ref, kind)}/{quote(path[1:], safe='/')}"


def present(**fields: Any) -> Dict[str, Any]:
    """Returns the fields that are not None."""
    return {k: v for k, v in fields.items() if v is not None}


# A fraction has up to nine digits; Python before 3.11 reads three or six.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")


def _time(text: str) -> datetime:
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a time")
    second = datetime.fromisoformat(match[1]).replace(tzinfo=timezone.utc)
    return second + timedelta(microseconds=int((match[2] or "0").ljust(6, "0")[:6]))


def moment(text: Optional[str]) -> Optional[datetime]:
    """Reads a time that may be absent."""
    return None if text is None else _time(text)


def timestamp(value: Optional[datetime]) -> Optional[str]:
    """Writes a time. One without a zone is of the local one."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is not a time: give a datetime")
    return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _float(value: Union[str, float]) -> float:
    """Reads a number, or a duration in seconds such as "1.5s"."""
    return float(value[:-1] if isinstance(value, str) else value)


_SCALARS: Dict[Any, Callable[[Any], Any]] = {
    int: int,
    str: str,
    bool: bool,
    float: _float,
    bytes: base64.b64decode,
    datetime: _time,
}


# Fields that say what to do.
_WORDED: Dict[str, Callable[[Any], Any]] = {
    "remedy": in_python,
    "warnings": lambda value: [in_python(text) for text in value],
}


def decode(kind: Type[T], data: Mapping[str, Any]) -> T:
    """Makes a dataclass from a message. Fields that it does not have are left out."""
    values = {}
    for name, convert in _converters(cast(Any, kind)):
        value = data.get(name)
        if value is not None:
            values[name] = convert(value)
    return kind(**values)


@functools.lru_cache(maxsize=None)
def _converters(kind: Any) -> List[Tuple[str, Callable[[Any], Any]]]:
    hints = typing.get_type_hints(kind)
    return [(f.name, _WORDED.get(f.name) or _converter(hints[f.name])) for f in dataclasses.fields(kind)]


def _converter(hint: Any) -> Callable[[Any], Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return str  # a later daemon may know others
    if origin is Union:  # Optional
        return _converter(args[0])
    if origin is list:
        item = _converter(args[0])
        return lambda value: [item(v) for v in value]
    if origin is dict:
        item = _converter(args[1])
        return lambda value: {k: item(v) for k, v in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(decode, hint)
    return _SCALARS[hint]


def parse(text: bytes) -> Dict[str, Any]:
    """Reads a JSON object of the daemon."""
    try:
        value = json.loads(text)
    except ValueError as e:
        raise broken("the daemon sent what is not JSON", e) from e
    if not isinstance(value, dict):
        raise broken(f"the daemon sent {text[:80]!r}, which is no object")
    return value


def error_of(message: Mapping[str, Any], status: int = 0) -> CaissonError:
    """Makes the error of an answer or of a last line."""
    error = message.get("error")
    if not isinstance(error, Mapping):
        return broken(f"the daemon answered with status {status} and no error")
    code = error.get("code", "")
    return BY_CODE.get(code, CaissonError)(
        error.get("message", ""),
        code=code,
        class_=error.get("class", ""),
        cause=error.get("cause", ""),
        remedy=in_python(error.get("remedy", "")),
        retryable=error.get("retryable", False),
        status=status,
    )


def broken(message: str, cause: Optional[BaseException] = None) -> CaissonError:
    """Makes the error of a connection that broke."""
    if untrusted(cause):
        return _refused(cause)
    return BY_CODE["SBX-803"](
        message,
        class_="engine_failure",
        cause=str(cause) if cause else "",
        remedy="check that the daemon runs",
        retryable=True,
    )


def closed() -> CaissonError:
    """Makes the error of a call after the client was closed."""
    return BY_CODE["SBX-801"](
        "the client is closed", class_="invalid_input", remedy="make another Client, and close it after its last call"
    )


def removed(name: str) -> CaissonError:
    """Makes the error of a call after the sandbox was removed by this program."""
    return BY_CODE["SBX-107"](
        f"the sandbox {name} is removed", class_="sandbox_down", remedy="make another one: Sandbox.create"
    )


def untrusted(cause: Optional[BaseException]) -> bool:
    """Whether TLS refused a connection, and it did not just break."""
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def _refused(cause: Optional[BaseException]) -> CaissonError:
    return BY_CODE["SBX-814"](
        "the TLS connection cannot be trusted, or is refused",
        class_="host",
        cause=str(cause),
        remedy="check the name and port of host, the certificates that are trusted (ca), and the client's own (cert, cert_key)",
    )


def daemon_off(socket: Endpoint, cause: OSError) -> CaissonError:
    """Makes the error of a daemon that cannot be reached."""
    if untrusted(cause):
        return _refused(cause)
    message = f"the daemon cannot be reached on {socket}"
    remedy = "start it as root: caissond; or name the socket of a running one: Client(socket=...) or CAISSON_SOCKET"
    if socket.address is not None:
        remedy = "check the name and the port, that the daemon there runs with listen.tcp, and what lies between"
    if socket.command:
        remedy = "install ssh, and try it by hand: ssh HOST caisson version"
    elif isinstance(cause, PermissionError):
        message = f"this user may not use {socket}"
        remedy = "run as root, or as a member of the socket's group (ls -l shows it)"
    return BY_CODE["SBX-802"](
        message, class_="host", cause=str(cause), remedy=remedy, retryable=True
    )


PIECE = 1 << 18
Data = Union[str, bytes, BinaryIO, Iterable[bytes]]


def pieces_of(data: Data) -> Iterable[bytes]:
    """Cuts text, bytes or a file into pieces. Other iterables are pieces already."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        view = memoryview(data)
        return (bytes(view[at : at + PIECE]) for at in range(0, len(view), PIECE))
    read = getattr(data, "read", None)
    if read is not None:
        return iter(functools.partial(read, PIECE), b"")
    return data


def readable(descriptor: int) -> bool:
    """Whether something can be read from a descriptor: bytes, or its end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
