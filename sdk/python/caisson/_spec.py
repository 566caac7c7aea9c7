"""What the options of create, run and start are in the API."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from ._wire import Seconds, Size, duration, milli_cpu, present, size
from .types import Mount

Command = Union[str, Sequence[str]]

DEFAULT_SOCKET = "/run/caisson/caisson.sock"
OUTPUT_LIMIT = 10 << 20


def socket_path(socket: Optional[str]) -> str:
    """Returns the socket of the daemon."""
    return socket or os.environ.get("CAISSON_SOCKET") or DEFAULT_SOCKET


def command(
    line: Command,
    *,
    env: Optional[Mapping[str, str]] = None,
    workdir: Optional[str] = None,
    user: Optional[str] = None,
    timeout: Optional[Seconds] = None,
    stdin: bool = False,
    tty: Optional[Tuple[int, int]] = None,
    output_limit: int = OUTPUT_LIMIT,
    limits: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """Makes an ExecSpec. Text is for a shell, a list is the arguments."""
    spec = present(
        env=dict(env) if env else None,
        workdir=workdir,
        user=user,
        timeout=duration(timeout),
        stdin=stdin or None,
        tty={"rows": tty[0], "cols": tty[1]} if tty else None,
        output_limit_bytes=str(output_limit),
        limits=limits or None,
    )
    return {**spec, "shell": line} if isinstance(line, str) else {**spec, "args": list(line)}


def limits(
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    pids: Optional[int] = None,
    open_files: Optional[int] = None,
    tmpfs: Optional[Size] = None,
    shm_size: Optional[Size] = None,
    cpu_shares: Optional[int] = None,
    io_read_bps: Optional[Size] = None,
    io_write_bps: Optional[Size] = None,
) -> Dict[str, Any]:
    """Makes Limits or ExecLimits: what is not given is absent."""
    return present(
        memory_bytes=size(memory),
        milli_cpu=milli_cpu(cpus),
        pids=pids,
        open_files=open_files,
        tmpfs_bytes=size(tmpfs),
        shm_bytes=size(shm_size),
        cpu_shares=cpu_shares,
        io_read_bps=size(io_read_bps),
        io_write_bps=size(io_write_bps),
    )


def workspace(value: Union[None, str, "os.PathLike[str]"]) -> Optional[Dict[str, str]]:
    """Makes a Workspace of DIR[:PATH][:rw|ro]."""
    if value is None:
        return None
    path, mode = os.fspath(value), ""
    for suffix in (":ro", ":rw"):
        if path.endswith(suffix):
            path, mode = path[: -len(suffix)], suffix[1:]
    inside = {}
    if ":/" in path and not os.path.exists(path):
        path, _, below = path.rpartition(":/")
        inside = {"path": "/" + below}
    return {"dir": os.path.abspath(path), "mode": mode, **inside}


def mount(value: Mount) -> Dict[str, Any]:
    """Makes a Mount of the API: the source of a bind is made absolute."""
    source = value.source or None
    if source and value.type == "bind":
        source = os.path.abspath(source)
    read_only = value.read_only or None
    return present(
        type=value.type, source=source, target=value.target, read_only=read_only, size_bytes=size(value.size_bytes)
    )


def sandbox(**options: Any) -> Dict[str, Any]:
    """Makes a SandboxSpec of the options that are given."""
    for name in ("ttl", "idle_timeout"):
        if name in options:
            options[name] = duration(options[name])
    if "workspace" in options:
        options["workspace"] = workspace(options["workspace"])
    if options.get("mounts") is not None:
        options["mounts"] = [mount(m) for m in options["mounts"]]
    for name in ("allow", "deny", "publish", "links", "expose"):
        if isinstance(options.get(name), str):
            raise TypeError(f"{name} is a string: give a list")
        if options.get(name) is not None:
            options[name] = list(options[name])
    return {name: value for name, value in options.items() if value is not None and value != {}}


def selection(
    labels: Optional[Mapping[str, str]],
    name: Optional[str],
    session: Optional[str],
    task: Optional[str],
    states: Optional[Sequence[str]],
    older_than: Optional[Seconds],
) -> Dict[str, Any]:
    """Returns the query of a selection of sandboxes."""
    return {"labels": labels, "name": name, "session": session, "task": task, "states": states,
            "older_than": duration(older_than)}
