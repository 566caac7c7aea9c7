"""How the values of options are read, and the requests that they make.

A value of the wrong type is a TypeError, one that cannot be read a ValueError. Both name
the option.
"""

from __future__ import annotations

import base64
import math
import os
import re
from datetime import timedelta
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .types import Input, Mount

Size = Union[int, str]
"""Bytes, or text such as "512M" in powers of 1024."""
Time = Union[float, str, timedelta]
"""Seconds, text such as "90s", "1.5s" or "1h30m", or a timedelta."""
Rlimit = Union[int, str, Tuple[Union[int, str], Union[int, str]]]
"""A bound, or a soft and a hard one. "unlimited" is none."""
Inputs = Union[Mapping[str, Union[str, bytes]], Sequence[Input]]
"""Contents by path, or a list of Input."""

Table = Mapping[str, Tuple[str, str]]
"""The field of the request and the form, by option."""

UNLIMITED = 2**64 - 1

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)")
_TIME = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:h|ms|m|s|us|µs|ns))+")
_TIME_PART = re.compile(r"([\d.]+)([a-zµ]+)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def request(table: Table, options: Mapping[str, object]) -> Dict[str, Any]:
    """Makes a request of the options that are given. One that there is not is a TypeError."""
    body: Dict[str, Any] = {}
    for name, value in options.items():
        if name not in table:
            raise TypeError(f"there is no option {name!r}; there are: {', '.join(sorted(table))}")
        if value is None:
            continue
        path, form = table[name]
        try:
            read = FORMS[form](value)
        except (TypeError, ValueError) as e:
            raise type(e)(f"{name}: {e}") from None
        if read is None:
            continue
        *above, field = path.split(".")
        at = body
        for each in above:
            at = at.setdefault(each, {})
        at[field] = read
    return body


def size(value: Size) -> int:
    """Reads a size in bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no size: give bytes, or text such as '512M'")
    match = _SIZE.fullmatch(value.strip().upper())
    if not match:
        raise ValueError(f"{value!r} is no size: give bytes, or text such as '512M'")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def seconds(value: Time) -> float:
    """Reads a duration in seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(_no_duration(value))
    if isinstance(value, str):
        if not _TIME.fullmatch(value):
            raise ValueError(_no_duration(value))
        value = sum(float(count) * _UNITS[unit] for count, unit in _TIME_PART.findall(value))
    if not 0 <= value < math.inf:
        raise ValueError(_no_duration(value))
    return value


def _no_duration(value: object) -> str:
    return f"{value!r} is no duration: give seconds, or text such as '90s', '1.5s' or '1h30m'"


def duration(value: Optional[Time]) -> Optional[str]:
    """Writes a duration. None stays None."""
    if value is None:
        return None
    return f"{seconds(value):.9f}".rstrip("0").rstrip(".") + "s"


def cpus(value: float) -> int:
    """Writes a count of CPUs."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no number of CPUs")
    return round(value * 1000)


def _text(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _flag(value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither True nor False")
    return value


def _count(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _list(each: Callable[[Any], Any]) -> Callable[[Any], List[Any]]:
    def read(value: Sequence[Any]) -> List[Any]:
        if isinstance(value, (str, bytes)):  # each letter would be an element
            raise TypeError(f"{value!r} is no list")
        return [each(v) for v in value]

    return read


def _map(value: Mapping[str, str]) -> Dict[str, str]:
    return {_text(k): _text(v) for k, v in dict(value).items()}


def _base64(value: Union[str, bytes]) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def workspace(value: Union[str, "os.PathLike[str]"]) -> Dict[str, str]:
    """Makes a Workspace of DIR[:PATH][:rw|ro|cow|clone]."""
    path, mode = os.fspath(value), ""
    for suffix in (":ro", ":rw", ":cow", ":clone"):
        if path.endswith(suffix):
            path, mode = path[: -len(suffix)], suffix[1:]
    inside = {}
    if ":/" in path and not os.path.exists(path):
        path, _, below = path.rpartition(":/")
        inside = {"path": "/" + below}
    return {"dir": os.path.abspath(path), "mode": mode, **inside}


def _mount(value: Mount) -> Dict[str, Any]:
    """Makes a Mount of the API: the source of a bind is made absolute."""
    if not isinstance(value, Mount):
        raise TypeError(f"{value!r} is no Mount")
    out: Dict[str, Any] = {"type": value.type, "target": value.target}
    if value.source:
        out["source"] = os.path.abspath(value.source) if value.type == "bind" else value.source
    if value.read_only:
        out["read_only"] = True
    if value.size_bytes is not None:
        out["size_bytes"] = size(value.size_bytes)
    if value.cow:
        out["cow"] = True
    return out


def _nested(value: Union[bool, Mapping[str, object]]) -> Optional[Dict[str, Any]]:
    from ._options import NESTED  # which names the types of this module

    if isinstance(value, bool):
        return {} if value else None
    return request(NESTED, value)


def _inputs(value: Inputs) -> List[Dict[str, Any]]:
    if isinstance(value, Mapping):
        value = [Input(path, data) for path, data in value.items()]
    mode = [{} if each.mode is None else {"mode": each.mode} for each in value]
    return [{"path": each.path, "data": _base64(each.data), **m} for each, m in zip(value, mode)]


def _rlimits(value: Mapping[str, Rlimit]) -> List[Dict[str, Any]]:
    def bound(of: Union[int, str]) -> Union[int, str]:
        return str(UNLIMITED) if of == "unlimited" else _count(of)  # type: ignore[arg-type]

    pairs = [(name, of if isinstance(of, tuple) else (of, of)) for name, of in value.items()]
    return [{"name": name, "soft": bound(soft), "hard": bound(hard)} for name, (soft, hard) in pairs]


def _terminal(value: Union[bool, Tuple[int, int]]) -> Optional[Dict[str, int]]:
    if isinstance(value, bool):
        return {"rows": 24, "cols": 80} if value else None
    rows, cols = value
    return {"rows": _count(rows), "cols": _count(cols)}


FORMS: Dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "flag": _flag,
    "count": _count,
    "size": size,
    "cpus": cpus,
    "time": duration,
    "texts": _list(_text),
    "counts": _list(_count),
    "map": _map,
    "secrets": lambda value: {name: _base64(data) for name, data in value.items()},
    "rules": lambda value: {"rules": _list(_text)(value)},
    "workspace": workspace,
    "mounts": _list(_mount),
    "nested": _nested,
    "inputs": _inputs,
    "rlimits": _rlimits,
    "terminal": _terminal,
}
"""The readers, by the names that _options.py has for them."""
