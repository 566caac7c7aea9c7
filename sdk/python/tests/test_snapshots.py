"""Snapshots and forks, with a daemon of prepared answers."""

import json
import unittest
from unittest import mock

from caisson import CaissonError, Client, Limits, Sandbox
from caisson.codes import SnapshotNotFound

from .fake import Fake, plain


def answer(message, status="200 OK"):
    return plain(json.dumps(message).encode(), status)


def body(request):
    return json.loads(request.partition(b"\r\n\r\n")[2])


class SnapshotsTest(unittest.TestCase):
    def fake(self, *connections):
        fake = Fake(*connections)
        self.addCleanup(fake.close)
        return fake

    def test_snapshots(self):
        one = {"name": "one", "created_at": "2026-01-02T03:04:05Z", "rootfs": "rw", "disk_bytes": "64", "used_bytes": "8"}
        absent = {"error": {"code": "SBX-235", "message": "no", "remedy": "list snapshots: caisson snapshot ls"}}
        answers = [{"sandbox": {"id": "box"}}, one, {**one, "name": "made-up"}, {"snapshots": [one], "next": "a+b"}, {"snapshots": [one]}, {}]
        fake = self.fake([*map(answer, answers), answer(absent, "404 Not Found")])
        with Client(fake.path) as client:
            box = client.get("box")
            made = box.snapshot("one")
            self.assertEqual((made.name, made.rootfs, made.disk_bytes, made.used_bytes), ("one", "rw", 64, 8))
            self.assertEqual(box.snapshot().name, "made-up")
            self.assertEqual(client.snapshots.list(), [made, made])
            client.snapshots.remove("one/x")
            with self.assertRaises(SnapshotNotFound) as caught:
                client.snapshots.get("two")
            self.assertEqual(caught.exception.remedy, "list snapshots: Client.snapshots.list()")
            self.assertRaises(ValueError, client.snapshots.get, "")
        self.assertEqual([body(r) for r in fake.requests[1:3]], [{"ref": "box", "name": "one"}, {"ref": "box"}])
        self.assertTrue(fake.requests[4].startswith(b"GET /v1/snapshots?next=a%2Bb "))
        self.assertTrue(fake.requests[5].startswith(b"DELETE /v1/snapshots/one%2Fx "))

    def test_changes_between_snapshots(self):
        change = {"kind": "added", "path": "a", "new": {"type": "file", "mode": 420, "size_bytes": "4"}}
        fake = self.fake([answer({"changes": [change], "truncated": True}), answer({})])
        with Client(fake.path) as client:
            found = client.snapshots.diff("one/x", "two", ["a b", "/c"])
            self.assertEqual([(c.kind, c.path, c.new.size_bytes) for c in found], [("added", "a", 4)])
            self.assertTrue(found.truncated)
            self.assertEqual(client.snapshots.diff("one", "two"), [])
            self.assertRaises(ValueError, client.snapshots.diff, "", "two")
        self.assertEqual([r.split(b" ", 2)[1] for r in fake.requests], [b"/v1/snapshots/one%2Fx/diff?to=two&paths=a+b&paths=%2Fc", b"/v1/snapshots/one/diff?to=two"])

    def test_a_fork_that_fails_loses_no_other(self):
        forks = [{"sandbox": {"id": "a"}}, {"error": {"code": "SBX-102", "message": "too much"}}, {"sandbox": {"id": "b", "name": "named"}}]
        fake = self.fake([answer({"sandbox": {"id": "box"}}), answer({"forks": forks}), answer({})])
        with Client(fake.path) as client:
            first, failed, last = client.get("box").fork(3)
            self.assertIsInstance(failed, Limits)
            self.assertEqual((first.id, str(failed), last.name), ("a", "too much [SBX-102]", "named"))
            first.remove()
        self.assertEqual(body(fake.requests[1]), {"count": 3})

    def test_forks_outlive_a_sandbox_with_a_connection_of_its_own(self):
        fake = self.fake([answer({"id": "box"}), answer({"forks": [{"sandbox": {"id": "a"}}]}), answer({})], [answer({})])
        with mock.patch.dict("os.environ", CAISSON_SOCKET=fake.path):
            with Sandbox.create() as box:
                (fork,) = box.fork()
        fork.remove()
        self.assertEqual([r.split(b" ", 2)[1] for r in fake.requests[2:]], [b"/v1/sandboxes/box?force=true", b"/v1/sandboxes/a?force=true"])
        with self.assertRaisesRegex(CaissonError, "the sandbox .* is removed"):
            fork.inspect()


if __name__ == "__main__":
    unittest.main()
