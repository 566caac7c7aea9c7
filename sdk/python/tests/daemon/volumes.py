"""Volumes, against a real daemon."""

import unittest

from caisson import Client, Mount, Sandbox
from caisson.codes import VolumeInUse, VolumeNotFound


class VolumesTest(unittest.TestCase):
    def test_volume(self):
        with Client() as client:
            made = client.volumes.create("py-deps")
            self.assertEqual((made.name, made.used_by, client.volumes.get("py-deps")), ("py-deps", [], made))
            mounts = [Mount("volume", "/deps", "py-deps")]
            with Sandbox.create(name="py-user", mounts=mounts, cpu_shares=512, client=client) as box:
                box.run("echo kept > /deps/file", check=True)
                self.assertEqual(client.volumes.get("py-deps").used_by, ["py-user"])
                self.assertRaises(VolumeInUse, client.volumes.remove, "py-deps")
                self.assertEqual(client.volumes.prune(), [])
                box.update(cpu_shares=256)
                self.assertEqual(box.inspect().limits.cpu_shares, 256)
            with Sandbox.create(mounts=mounts, client=client) as box:
                self.assertEqual(box.run("cat /deps/file").stdout, "kept\n")
            self.assertEqual([v.name for v in client.volumes.prune(dry_run=True)], ["py-deps"])
            self.assertIn("py-deps", [v.name for v in client.volumes.list()])
            client.volumes.remove("py-deps")
            self.assertRaises(VolumeNotFound, client.volumes.get, "py-deps")
