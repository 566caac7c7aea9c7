"""Tar streams, also hostile ones."""

import io
import os
import pathlib
import tarfile
import tempfile
import unittest

from caisson import _archive
from caisson.codes import Archive


def tar_of(*members):
    """Makes a tar of (name, type, content or target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, value in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = 0o6755
            if kind == tarfile.REGTYPE:
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
            else:
                info.linkname = value
                tar.addfile(info)
    out.seek(0)
    return out


class ArchiveTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.outside = pathlib.Path(scratch.name)
        self.target = self.outside / "target"

    def test_round_trip(self):
        source = self.outside / "source"
        (source / "sub").mkdir(parents=True)
        (source / "empty").mkdir()
        (source / "sub" / ("long" * 40)).write_bytes(b"x" * 700_001)
        (source / "ü").write_text("u")
        (source / "ü").chmod(0o4751)
        (source / "link").symlink_to("sub")
        packed = io.BytesIO(b"".join(_archive.pack(source)))
        entries, size, left = _archive.unpack(packed, self.target, content=False)
        self.assertEqual((entries, size, left), (5, 700_002, []))
        self.assertEqual((self.target / "sub" / ("long" * 40)).read_bytes(), b"x" * 700_001)
        self.assertEqual((self.target / "ü").stat().st_mode & 0o7777, 0o751)
        self.assertEqual(os.readlink(self.target / "link"), "sub")
        self.assertTrue((self.target / "empty").is_dir())

    def test_other_files_are_not_packed(self):
        os.mkfifo(self.outside / "pipe")
        with self.assertRaises(OSError):
            list(_archive.pack(self.outside))

    def test_the_content_of_a_directory(self):
        tree = tar_of(("tree", tarfile.DIRTYPE, ""), ("tree/f", tarfile.REGTYPE, b"1"))
        _archive.unpack(tree, self.target, content=True)
        self.assertEqual(os.listdir(self.target), ["f"])
        self.assertEqual((self.target / "f").stat().st_mode & 0o7000, 0)

    def test_nothing_is_written_outside(self):
        for name in ["../evil", "/evil", "a/../../evil", "tree/../../evil"]:
            with self.assertRaises(Archive, msg=name):
                _archive.unpack(tar_of((name, tarfile.REGTYPE, b"!")), self.target, content=False)
        for kind in [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]:
            with self.assertRaises(Archive):
                _archive.unpack(tar_of(("x", kind, "/etc/passwd")), self.target, content=False)
        self.assertEqual(os.listdir(self.outside), ["target"])

    def test_symlinks_are_not_followed(self):
        # Without the barrier the probe gets out: a symlink that is there leads outside.
        self.target.mkdir()
        (self.target / "out").symlink_to(self.outside)
        (self.target / "out" / "probe").write_text("got out")
        self.assertTrue((self.outside / "probe").exists())
        with self.assertRaises(OSError):
            _archive.unpack(tar_of(("out/evil", tarfile.REGTYPE, b"!")), self.target, content=False)
        _archive.unpack(tar_of(("out", tarfile.REGTYPE, b"a file now")), self.target, content=False)
        self.assertEqual((self.target / "out").read_text(), "a file now")
        self.assertFalse((self.outside / "evil").exists())

    def test_symlinks_that_lead_out_are_left_out(self):
        links = [("abs", "/etc"), ("up", ".."), ("d/up", "../../x"), ("d/in", "../f"), ("deep", "d/../../x"), ("chain", "d/in/..")]
        archive = tar_of(*((name, tarfile.SYMTYPE, target) for name, target in links))
        entries, _, left = _archive.unpack(archive, self.target, content=False)
        self.assertEqual((entries, left), (1, ["abs", "up", "d/up", "deep", "chain"]))

    def test_a_cut_archive(self):
        whole = tar_of(("f", tarfile.REGTYPE, b"x" * 5000)).getvalue()
        with self.assertRaises(Archive):
            _archive.unpack(io.BytesIO(whole[:2000]), self.target, content=False)
        with self.assertRaises(Archive):
            _archive.unpack(io.BytesIO(b"no tar at all" * 100), self.target, content=False)


if __name__ == "__main__":
    unittest.main()
