"""The images of the daemon."""

from __future__ import annotations

from typing import BinaryIO, List, Optional
from urllib.parse import quote

from .._wire import Request, decode, pieces_of
from ..types import Image
from .http import AsyncTransport


class AsyncImages:
    """The images of the daemon."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Image]:
        """Returns all images."""
        answer = await self._transport.call(Request("GET", "/v1/images"))
        return [decode(Image, each) for each in answer.get("images", [])]

    async def get(self, name: str) -> Image:
        """Returns one image."""
        answer = await self._transport.call(Request("GET", _path(name)))
        return decode(Image, answer.get("image", {}))

    async def load(self, archive: BinaryIO, name: Optional[str] = None) -> Image:
        """Imports an archive: an OCI layout, a docker save, or a root file system, as tar.

        name None is the name that the archive states.
        """
        method, path = ("PUT", _path(name)) if name else ("POST", "/v1/images/import")
        answer = await self._transport.call(Request(method, path, body=pieces_of(archive)))
        return decode(Image, answer.get("image", {}))

    async def remove(self, name: str) -> None:
        """Removes an image."""
        await self._transport.call(Request("DELETE", _path(name)))


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the image is empty")
    return "/v1/images/" + quote(name, safe="/:")
