"""Where a daemon is, and what a client shows it."""

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from typing import Optional, Tuple, Union
from urllib.parse import urlsplit

from . import _ssh
from ._spec import socket_path
from .errors import CaissonError
from .codes import BY_CODE

_WORD = re.compile(r"[!-~]+")


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A unix socket, an address that is reached by TLS, or a command that connects."""

    name: str  # for messages
    path: str = ""
    address: Optional[Tuple[str, int]] = None
    context: Optional[ssl.SSLContext] = None
    key: str = dataclasses.field(default="", repr=False)
    command: Tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def of(place: Union[str, Endpoint]) -> Endpoint:
    """Returns the endpoint of a socket's path, or what already is one."""
    return place if isinstance(place, Endpoint) else Endpoint(place, place)


def endpoint(
    socket: Optional[str] = None,
    host: Optional[str] = None,
    key: Optional[str] = None,
    ca: Optional[str] = None,
    cert: Optional[str] = None,
    cert_key: Optional[str] = None,
) -> Endpoint:
    """Returns where the daemon is. What is not given comes from the environment, as for the command line."""
    if socket and host:
        raise _usage("socket and host exclude each other")
    if not socket:
        host = host or os.environ.get("CAISSON_HOST")
    if not host:
        if key or ca or cert or cert_key:
            raise _usage("key, ca, cert and cert_key need a host tcp://HOST:PORT")
        return of(socket_path(socket))
    try:
        place = urlsplit(host)
        port = place.port
    except ValueError:
        raise _usage(f"host {host!r} is no URL") from None
    shown = key or ca or cert or cert_key
    if place.scheme == "unix" and not place.netloc and place.path.startswith("/") and not shown:
        return of(place.path)
    if place.scheme == "ssh" and not shown and place.password is None and not (place.path.strip("/") or place.query):
        by_ssh = _ssh.command(place.username, place.hostname, port)
        if by_ssh:
            return Endpoint(host, command=by_ssh)
    if place.scheme != "tcp" or not place.hostname or not port or place.path.strip("/") or "@" in place.netloc or place.query:
        raise _usage(f"host {place.scheme + '://' + (place.hostname or '')!r} is none of tcp://HOST:PORT, ssh://[USER@]HOST[:PORT] and unix:///PATH")
    return Endpoint(host, "", (place.hostname, port), _context(ca, cert, cert_key), _key(key))


def _key(given: Optional[str]) -> str:
    key = given or os.environ.get("CAISSON_KEY") or ""
    file = os.environ.get("CAISSON_KEY_FILE")
    if not key and file:
        try:
            with open(file, encoding="ascii", errors="replace") as f:
                if os.fstat(f.fileno()).st_mode & 0o077:
                    raise _usage(f"the key in {file!r} can be read by others: chmod 600")
                key = f.read(4096).strip()
        except OSError as e:
            raise _usage(f"the key in {file!r} cannot be read: {e}") from e
    if key and not _WORD.fullmatch(key):
        raise _usage("the key is not one word")
    return key


def _context(ca: Optional[str], cert: Optional[str], cert_key: Optional[str]) -> ssl.SSLContext:
    ca = ca or os.environ.get("CAISSON_TLS_CA")
    cert = cert or os.environ.get("CAISSON_TLS_CERT")
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if cert:
            context.load_cert_chain(cert, cert_key or os.environ.get("CAISSON_TLS_KEY"))
    except OSError as e:
        raise _usage(f"the certificates cannot be read: {e}") from e
    return context


def _usage(message: str) -> CaissonError:
    return BY_CODE["SBX-801"](
        message, class_="invalid_input", remedy="give a host such as tcp://build.example.com:7443, with a key or a certificate"
    )
