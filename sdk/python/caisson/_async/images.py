"""The images of the daemon."""

from __future__ import annotations

import base64
import io
import secrets
import tarfile
from typing import TYPE_CHECKING, Any, AsyncIterator, BinaryIO, Callable, List, Mapping, Optional, Sequence, Union
from urllib.parse import quote

from .. import _wire
from .._forms import Time, duration, request
from .._options import BUILD, BuildOptions
from .._wire import Request, decode, pieces_of, present
from ..codes import ImageNotFound
from ..types import BuildStep, Image, ImageUsage, Pruned, PullProgress
from .http import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncImages:
    """The images of the daemon."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Image]:
        """Returns all images."""
        return [decode(Image, each) for each in await self._transport.entries(Request("GET", "/v1/images"), "images")]

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

    async def pull(self, name: str, *, on_progress: Optional[Callable[[PullProgress], Any]] = None) -> Image:
        """Pulls HOST/PATH[:TAG][@DIGEST] from its registry, which the daemon has to allow."""
        call = Request("POST", "/v1/images/pull", body={"name": name}, repeatable=True)

        async def once() -> Image:
            return await self._follow(call, PullProgress, on_progress)

        return await self._transport.repeat(once)

    async def from_host(
        self,
        name: str,
        *,
        packages: Sequence[str] = (),
        paths: Sequence[str] = (),
        on_progress: Optional[Callable[[PullProgress], Any]] = None,
    ) -> Image:
        """Makes an image from software that is installed on the host."""
        body = {"name": name, "packages": list(packages), "paths": list(paths)}
        call = Request("POST", "/v1/images/from-host", body=body)
        return await self._follow(call, PullProgress, on_progress)

    async def build(
        self,
        name: str,
        dockerfile: str,
        *,
        files: Optional[Mapping[str, Union[str, bytes]]] = None,
        on_progress: Optional[Callable[[BuildStep], Any]] = None,
        **options: Unpack[BuildOptions],
    ) -> Image:
        """Builds an image from a Dockerfile. files, by path, are what COPY finds.

        Limits and network are those of each RUN, which has no network by default.
        """
        body = request(BUILD, options)
        body.update(name=name, dockerfile=base64.b64encode(dockerfile.encode()).decode())
        if not files:
            return await self._follow(Request("POST", "/v1/images/build", body=body), BuildStep, on_progress)
        body["context"] = "build-context/" + secrets.token_hex(16)
        await self.load(_context(files), body["context"])
        try:
            return await self._follow(Request("POST", "/v1/images/build", body=body), BuildStep, on_progress)
        finally:
            try:
                await self.remove(body["context"])
            except ImageNotFound:
                pass  # the build has removed it

    async def tag(self, name: str, new_name: str) -> Image:
        """Gives an image a second name, which belongs to the caller."""
        body = {"name": name, "new_name": new_name}
        answer = await self._transport.call(Request("POST", "/v1/images/tag", body=body, repeatable=True))
        return decode(Image, answer.get("image", {}))

    async def save(self, *names: str) -> AsyncIterator[bytes]:
        """Iterates over the bytes of one tar with the images, for load or docker load."""
        async with await self._transport.open(Request("POST", "/v1/images/save", body={"names": names})) as response:
            while True:
                part = await response.some()
                if not part:
                    return
                yield part

    async def prune(self, *, unused: bool = False, until: Optional[Time] = None, dry_run: bool = False) -> Pruned:
        """Removes the images of this user that no sandbox, profile or pool needs.

        It removes all of them with unused, else those that were stored before the time until.
        With dry_run they stay.
        """
        body = present(unused=unused, until=duration(until), dry_run=dry_run)
        return decode(Pruned, await self._transport.call(Request("POST", "/v1/images/prune", body=body)))

    async def du(self) -> ImageUsage:
        """Returns how much of the disk images take."""
        return decode(ImageUsage, await self._transport.call(Request("GET", "/v1/image-usage")))

    async def _follow(self, request: Request, kind: Any, on_progress: Optional[Callable[[Any], Any]]) -> Image:
        """Returns the image of the last message, and tells of those before it."""
        async with await self._transport.open(request) as response:
            async for line in response.lines():
                message = _wire.parse(line)
                if "error" in message:
                    raise _wire.error_of(message)
                if message.get("image"):
                    return decode(Image, message["image"])
                if on_progress is not None:
                    on_progress(decode(kind, message))
        raise _wire.broken("the answer ended without an image")

    async def remove(self, name: str) -> None:
        """Removes an image."""
        await self._transport.call(Request("DELETE", _path(name)))


def _context(files: Mapping[str, Union[str, bytes]]) -> BinaryIO:
    """Returns files as the image that a build finds its context in."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo("context/" + path.strip("/"))
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    out.seek(0)
    return out


def _path(name: str) -> str:
    if not name:
        raise ValueError("the name of the image is empty")
    return "/v1/images/" + quote(name, safe="/:")
