"""Snapshots and forks, against a real daemon."""

import asyncio
import unittest

from caisson import AsyncClient, AsyncSandbox, Client, Exists, Sandbox
from caisson.codes import SnapshotDisk, SnapshotNotFound


class SnapshotsTest(unittest.TestCase):
    def test_snapshot(self):
        with Client() as client:
            with Sandbox.create(name="py-first", rootfs="rw", disk="64M", labels={"of": "py"}, client=client) as box:
                box.run("echo kept > ~/file", check=True)
                made = box.snapshot("py-one")
                self.assertEqual((made.name, made.sandbox_name, made.rootfs, made.disk_bytes), ("py-one", "py-first", "rw", 64 << 20))
                box.run("echo later > ~/file", check=True)
                with self.assertRaises(Exists) as caught:
                    box.snapshot("py-one")
                self.assertIn("Client.snapshots.remove()", caught.exception.remedy)
                sleeper = box.start("sleep 1000")
                before = box.id
                ended = box.rewind("py-one")
                self.assertEqual((ended.execs, ended.processes > 0, box.id), ([sleeper.id], True, before))
                self.assertEqual(box.run("cat ~/file").stdout, "kept\n")
            self.assertEqual(client.snapshots.get("py-one"), made)
            self.assertIn(made, client.snapshots.list())
            with Sandbox.create(from_="py-one", client=client) as box:
                self.assertEqual((box.run("cat ~/file").stdout, box.info.labels), ("kept\n", {"of": "py"}))
            self.assertEqual(client.run("cat ~/file", from_="py-one").stdout, "kept\n")
            client.snapshots.remove("py-one")
            self.assertRaises(SnapshotNotFound, client.snapshots.get, "py-one")
            with Sandbox.create(client=client) as box:
                with self.assertRaises(SnapshotDisk) as caught:
                    box.snapshot()
            self.assertEqual(caught.exception.remedy, 'create the sandbox with rootfs="rw", or with disk for a /workspace of its own')

    def test_forks(self):
        with Sandbox.create(rootfs="rw", disk="64M") as box:
            box.run("echo base > ~/file", check=True)
            forks = box.fork(2)
        for number, fork in enumerate(forks):  # they outlive the first one
            with fork:
                self.assertEqual(fork.run(f"echo {number} >> ~/file; cat ~/file").stdout, f"base\n{number}\n")
        with Client() as client:
            self.assertEqual(client.snapshots.list(), [])

    def test_async(self):
        async def main():
            async with AsyncClient() as client:
                async with await AsyncSandbox.create(disk="64M", client=client) as box:
                    await box.run("echo kept > /workspace/file", check=True)
                    (fork,) = await box.fork()
                    async with fork:
                        self.assertEqual((await fork.run("cat /workspace/file")).stdout, "kept\n")
                    made = await box.snapshot()
                self.assertEqual((made.rootfs, await client.snapshots.get(made.name)), ("ro", made))
                await client.snapshots.remove(made.name)

        asyncio.run(main())
