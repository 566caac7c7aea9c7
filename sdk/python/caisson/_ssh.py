"""Connections to a daemon by the user's own ssh."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from typing import Optional, Sequence, Tuple

# Hosts and users that are no flag of ssh's and need no quotes.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


def command(user: Optional[str], host: Optional[str], port: Optional[int]) -> Tuple[str, ...]:
    """Returns how ssh is called; empty where it cannot be."""
    if not host or not all(_NAME.fullmatch(name) for name in (host, user) if name is not None):
        return ()
    login = ("-l", user) if user is not None else ()
    return ("ssh", "-T", *login, *(("-p", str(port)) if port else ()), "--", host, "caisson", "dial-stdio")


def connect(command: Sequence[str]) -> socket.socket:
    """Starts ssh in a session of its own, so that an interrupt is for the caller alone. What it says is for a person."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True)
        except BaseException:
            ours.close()
            raise
    threading.Thread(target=process.wait, daemon=True).start()
    return ours
