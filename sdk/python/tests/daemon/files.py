"""The files of a sandbox, against a real daemon."""

import io
import os
import pathlib
import tarfile
import tempfile
import unittest

from caisson import Client, FileAbsent, FileRights, Sandbox


class FilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        client = Client()
        cls.addClassCleanup(client.close)
        cls.box = Sandbox.create(client=client)
        cls.addClassCleanup(cls.box.remove)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.here = pathlib.Path(scratch.name)
        self.files = self.box.files

    def test_read_and_write(self):
        big = os.urandom(3 << 20)
        for data, want in [
            ("text ü\n", "text ü\n".encode()), (b"", b""), (big, big), (io.BytesIO(big), big), ([b"a", b"b"], b"ab"),
        ]:
            self.files.write("/tmp/new dir/fü?#%2e", data)
            self.assertEqual(self.files.read("/tmp/new dir/fü?#%2e"), want)
        self.files.write("/tmp/big", big, mode=0o700)
        self.assertEqual(self.files.stat("/tmp/big").mode, 0o700)
        self.assertEqual(self.files.read("/tmp/big", offset=5, length=7), big[5:12])
        self.assertEqual(b"".join(self.files.stream("/tmp/big")), big)
        self.assertEqual(self.box.run(["wc", "-c", "/tmp/big"]).stdout.split()[0], str(3 << 20))

    def test_a_write_that_fails_changes_nothing(self):
        def source():
            yield b"half"
            raise OSError("the disk is gone")

        self.files.write("/tmp/kept", "before")
        with self.assertRaisesRegex(OSError, "the disk is gone"):
            self.files.write("/tmp/kept", source())
        self.assertEqual(self.files.read_text("/tmp/kept"), "before")

    def test_refusals(self):
        with self.assertRaises(FileAbsent) as caught:
            self.files.read("/tmp/absent")
        self.assertEqual((caught.exception.code, caught.exception.status), ("SBX-212", 404))
        with self.assertRaises(FileRights):
            self.files.read("/etc/shadow") if self.files.exists("/etc/shadow") else self.files.write("/proc/x", "")
        with self.assertRaises(ValueError):
            self.files.read("relative")
        self.assertFalse(self.files.exists("/tmp/absent"))

    def test_directories(self):
        self.files.mkdir("/tmp/d/e")
        self.files.mkdir("/tmp/d/e")
        self.files.write("/tmp/d/f", "x")
        listing = self.files.list("/tmp/d", depth=2)
        self.assertEqual(([(f.path, f.type) for f in listing], listing.truncated), ([("e", "directory"), ("f", "file")], False))
        self.files.move("/tmp/d/f", "/tmp/d/e/g")
        self.assertEqual([f.path for f in self.files.list("/tmp/d", depth=2)], ["e", "e/g"])
        self.files.remove("/tmp/d", recursive=True)
        self.assertFalse(self.files.exists("/tmp/d"))

    def test_watch(self):
        self.files.mkdir("/tmp/watched")
        with self.files.watch("/tmp/watched") as changes:
            self.box.run("touch /tmp/watched/one; rm /tmp/watched/one")
            kinds = []
            for change in changes:
                self.assertEqual(change.path, "/tmp/watched/one")
                kinds.append(change.type)
                if change.type == "remove":
                    break
        self.assertEqual((kinds[0], kinds[-1]), ("create", "remove"))

    def test_trees(self):
        source = self.here / "source"
        (source / "sub").mkdir(parents=True)
        (source / "sub" / "tool").write_bytes(b"#!/bin/sh\necho works\n" + b"#" * 700_000)
        (source / "sub" / "tool").chmod(0o755)
        (source / "link").symlink_to("sub/tool")
        copied = self.files.copy_in(source, "/tmp/tree")
        self.assertEqual((copied.entries, copied.bytes), (3, 700_021))
        self.assertEqual(self.box.run(["/tmp/tree/link"]).stdout, "works\n")

        self.box.run("cd /tmp/tree && ln -s /etc/passwd abs && ln -s ../../out up && mkfifo 'p ü'", check=True)
        copied = self.files.copy_out("/tmp/tree", self.here / "result")
        self.assertEqual(sorted(os.listdir(self.here / "result")), ["link", "sub"])
        self.assertEqual(os.readlink(self.here / "result/link"), "sub/tool")
        self.assertEqual(sorted(copied.left_out), ["/tmp/tree/abs", "/tmp/tree/p ü", "/tmp/tree/up"])
        self.assertEqual(copied.left_out_count, 3)
        self.assertEqual(os.stat(self.here / "result/sub/tool").st_mode & 0o777, 0o755)
        self.files.copy_out("/tmp/tree/sub/tool", self.here / "one")
        self.assertEqual(os.listdir(self.here / "one"), ["tool"])

    def test_the_daemon_refuses_hostile_archives(self):
        from caisson import codes
        from caisson._wire import Request, file_path

        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("../evil"))
        request = Request("PUT", file_path(self.box.id, "archive", "/tmp"), body=archive.getvalue())
        with self.assertRaises(codes.Archive):
            self.box._transport.call(request)


if __name__ == "__main__":
    unittest.main()
