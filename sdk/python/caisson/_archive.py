"""Directories as tar streams.

What comes out of a sandbox is not trusted. It is unpacked below a directory that is held
open: no symlink is followed, so nothing can be written elsewhere.
"""

from __future__ import annotations

import os
import stat
import tarfile
from typing import BinaryIO, Iterator, List, Optional, Tuple

from ._wire import PIECE
from .codes import Archive

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def pack(directory: "str | os.PathLike[str]") -> Iterator[bytes]:
    """Yields the content of a directory as a tar.

    Files, directories and symlinks are packed, without owners. Anything else is an error.
    """
    root = os.fspath(directory)
    for path, name in _walk(root, ""):
        info = _member(path, name)
        if not info.isreg():
            yield info.tobuf(tarfile.PAX_FORMAT)
            continue
        with open(path, "rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            yield info.tobuf(tarfile.PAX_FORMAT)
            yield from _content(file, info.size, path)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(path: str, name: str) -> Iterator[Tuple[str, str]]:
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            below = f"{name}/{entry.name}" if name else entry.name
            yield entry.path, below
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, below)


def _member(path: str, name: str) -> tarfile.TarInfo:
    found = os.lstat(path)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime)
    if stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is no file, directory or symlink")
    return info


def _content(file: BinaryIO, size: int, path: str) -> Iterator[bytes]:
    left = size
    while left:
        data = file.read(min(left, PIECE))
        if not data:
            raise OSError(f"{path} became shorter while it was copied")
        left -= len(data)
        yield data
    yield bytes(-size % tarfile.BLOCKSIZE)


def unpack(archive: BinaryIO, directory: "str | os.PathLike[str]", *, content: bool) -> Tuple[int, int, List[str]]:
    """Unpacks a tar below a directory, which is made if there is none.

    With content, an archive that begins with a directory has all below that, and its
    content is unpacked instead of itself.
    Directories are merged, files and symlinks replaced. Returns the entries, the bytes,
    and the names that were left out: symlinks that lead out of the directory.
    """
    top: Optional[List[str]] = None
    os.makedirs(directory, exist_ok=True)
    root = os.open(directory, _DIR & ~os.O_NOFOLLOW)
    entries, size, left_out = 0, 0, []
    try:
        with tarfile.open(fileobj=archive, mode="r|") as tar:
            for info in tar:
                if top is None:
                    top = _parts(info.name) if content and info.isdir() else []
                info.name = _below(info.name, top)
                if info.issym() and _leads_out(info):
                    left_out.append(info.name)
                    continue
                _unpack(tar, info, root)
                entries, size = entries + 1, size + info.size
    except tarfile.TarError as e:
        raise Archive("the archive is malformed", cause=str(e)) from e
    finally:
        os.close(root)
    return entries, size, left_out


def _parts(name: str) -> List[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise Archive(f"the archive holds {name!r}, which leaves it")
    return parts


def _below(name: str, top: List[str]) -> str:
    parts = _parts(name)
    if parts[: len(top)] != top:
        raise Archive(f"the archive holds {name!r}, which is not below {'/'.join(top)!r}")
    return "/".join(parts[len(top) :])


def _leads_out(info: tarfile.TarInfo) -> bool:
    """Whether a symlink may lead out of the copy.

    ".." counts at the start alone: behind the name of another symlink nobody knows where
    it leads.
    """
    above = [part == ".." for part in info.linkname.split("/") if part not in ("", ".")]
    ups = above.index(False) if False in above else len(above)
    depth = len(_parts(info.name)) - 1
    return info.linkname.startswith("/") or True in above[ups:] or ups > depth


def _unpack(tar: tarfile.TarFile, info: tarfile.TarInfo, root: int) -> None:
    parts = _parts(info.name)
    if info.isdir():
        os.close(_enter(root, parts))
        return
    if not parts:
        raise Archive(f"the archive holds {info.name!r}, which is no name of a file")
    parent = _enter(root, parts[:-1])
    try:
        _replace(tar, info, parent, parts[-1])
    finally:
        os.close(parent)


def _replace(tar: tarfile.TarFile, info: tarfile.TarInfo, parent: int, name: str) -> None:
    if not (info.isreg() or info.issym()):
        raise Archive(f"the archive holds {info.name!r}, which is no file, directory or symlink")
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    if info.issym():
        os.symlink(info.linkname, name, dir_fd=parent)
        return
    with open(os.open(name, _NEW, info.mode & 0o777, dir_fd=parent), "wb") as file:
        content = tar.extractfile(info)
        assert content is not None  # it is a file
        while True:
            data = content.read(PIECE)
            if not data:
                break
            file.write(data)
        os.utime(file.fileno(), (info.mtime, info.mtime))


def _enter(root: int, parts: List[str]) -> int:
    """Opens a directory below root, which is made where it is missing."""
    at = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o777, dir_fd=at)
            except FileExistsError:
                pass
            below = os.open(part, _DIR, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at
