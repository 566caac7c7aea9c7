"""The requests of create, run and start."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from ._forms import Table, request
from ._options import ALONE, OUTPUT_LIMIT

Command = Union[str, Sequence[str]]

DEFAULT_SOCKET = "/run/caisson/caisson.sock"


def socket_path(socket: Optional[str]) -> str:
    """Returns the socket of the daemon."""
    return socket or os.environ.get("CAISSON_SOCKET") or DEFAULT_SOCKET


def command(table: Table, line: Command, options: Mapping[str, object], stdin: bool = False) -> Dict[str, Any]:
    """Makes an ExecSpec. Text is for a shell, a list is the arguments."""
    return _completed(request(table, options), line, stdin)


def alone(line: Command, options: Mapping[str, object], stdin: bool = False) -> Dict[str, Any]:
    """Makes a RunSpec: a sandbox and its one command."""
    spec = request(ALONE, options)
    spec["exec"] = _completed(spec.get("exec", {}), line, stdin)
    return spec


def _completed(spec: Dict[str, Any], line: Command, stdin: bool) -> Dict[str, Any]:
    spec.setdefault("output_limit_bytes", OUTPUT_LIMIT)
    if stdin or spec.get("tty"):
        spec["stdin"] = True
    if isinstance(line, str):
        spec["shell"] = line
    else:
        spec["args"] = list(line)
    return spec


def output_limit(spec: Mapping[str, Any]) -> int:
    """Returns the bytes of each stream that an ExecSpec keeps."""
    return int(spec["output_limit_bytes"])
