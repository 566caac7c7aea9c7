"""The settings of sandboxes and commands, and the calls about the host, against a real daemon."""

import asyncio
import io
import json
import time
import unittest

from caisson import APIUsage, AsyncSandbox, Client, NotFound, Sandbox


class SettingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = Client()
        cls.addClassCleanup(cls.client.close)

    def test_a_sandbox(self):
        settings = {"session": "py-session", "task": "py-task", "hostname": "inside", "shm_size": "1M", "nested": {"sandboxes": 1}}
        with Sandbox.create("base", client=self.client, ttl="1h", language="go", language_reason="go.mod", **settings) as box:
            self.assertEqual((box.info.session, box.info.task, box.info.image), ("py-session", "py-task", "base"))
            self.assertEqual([b.id for b in self.client.list(session="py-session", older_than="0s")], [box.id])
            self.assertEqual(self.client.list(session="py-session", older_than="1h"), [])
            said = box.run("hostname; df -k /dev/shm | tail -1 | awk '{print $2}'; test -S $CAISSON_SOCKET; echo $?").stdout
            self.assertEqual(said, "inside\n1024\n0\n")

    def test_a_command(self):
        with Sandbox.create(client=self.client) as box:
            said = box.run("cat /dev/shm/caisson-input/token; ulimit -n", inputs={"token": "secret\n"}, rlimits={"nofile": 64})
            self.assertEqual(said.stdout, "secret\n64\n")
            self.assertTrue(box.run("sleep 60", timeout="200ms").timed_out)
            self.assertEqual(box.run("head -c 9 /dev/zero", output_limit=4).stdout_skipped, 5)

    def test_one_command_in_its_own_sandbox(self):
        result = self.client.run(
            "hostname; cat /dev/shm/caisson-input/token; echo $A; pwd; nproc", hostname="own", inputs={"token": b"t\n"}, env={"A": "b"},
            workdir="/tmp", cpu_shares=512, open_files=100, tmpfs="8M", task="py-own", ttl=60, timeout="1m",
        )
        self.assertEqual(result.stdout.splitlines()[:4], ["own", "t", "b", "/tmp"])

    def test_spec(self):
        spec = self.client.spec("true", hostname="planned", memory="64M", seccomp_pfc=True, allow=["example.com"])
        self.assertEqual(json.loads(spec.oci_spec_json)["hostname"], "planned")
        self.assertIn(str(64 << 20), spec.cgroup_values.values())
        self.assertTrue(spec.seccomp_rules[0].syscalls and spec.seccomp_pfc and spec.mounts and spec.network_rules)

    def test_the_host(self):
        self.assertEqual((self.client.ping().ready, self.client.ping().reason), (True, ""))
        support = {c.field: c.support for c in self.client.capabilities()}
        self.assertEqual(support["limits.memory_bytes"], "enforced", support)
        self.assertIsInstance(self.client.cleanup(dry_run=True), list)
        self.assertTrue(self.client.reload_config().digest)

    def test_clean_and_restart(self):
        with Sandbox.create(name="py-again", client=self.client) as box:
            box.run("touch /tmp/file")
            job = box.start("sleep 600")
            cleaned = box.clean()
            self.assertGreaterEqual(cleaned.processes, 1)
            self.assertEqual((cleaned.files, job.wait("60s").signal, box.files.exists("/tmp/file")), (1, 9, False))
            before = box.id
            box.restart()
            self.assertNotEqual(box.id, before)
            self.assertEqual((box.name, box.run("echo again").stdout), ("py-again", "again\n"))
            box.files.write("/tmp/x", "x")

    def test_wait_with_a_timeout(self):
        with Sandbox.create(client=self.client) as box:
            job = box.start("read x; exit 3", stdin=True)
            begun = time.monotonic()
            with self.assertRaisesRegex(TimeoutError, "^the command has not ended after 0.3 s$"):
                job.wait("300ms")
            with self.assertRaisesRegex(TimeoutError, "^the sandbox has not ended after 0.3 s$"):
                box.wait(timeout=0.3)
            self.assertLess(time.monotonic() - begun, 30)
            job.send("go\n")
            self.assertEqual(job.wait(timeout=60).exit_code, 3)

    def test_async_wait_with_a_timeout(self):
        async def main():
            async with await AsyncSandbox.create() as box:
                job = await box.start("read x; exit 3", stdin=True)
                with self.assertRaisesRegex(TimeoutError, "^the command has not ended after 0.3 s$"):
                    await job.wait("300ms")
                await job.send("go\n")
                self.assertEqual((await job.wait(timeout=60)).exit_code, 3)

        asyncio.run(main())

    def test_images(self):
        images = self.client.images
        tagged = images.tag("base", "py-tagged")
        self.assertEqual((tagged.name, tagged.digest), ("py-tagged", images.get("base").digest))
        archive = io.BytesIO(b"".join(images.save("py-tagged")))
        self.assertIn("py-tagged", [i.name for i in images.prune(unused=True, dry_run=True).images])
        self.assertEqual(images.prune(until="1h").images, [])
        usage = images.du()
        self.assertTrue(usage.stored_bytes and any(u.image.name == "py-tagged" and u.shared_bytes for u in usage.images))
        images.remove("py-tagged")
        self.assertEqual(images.load(archive, "py-loaded").name, "py-loaded")
        images.remove("py-loaded")

    def test_errors_speak_of_this_package(self):
        with self.assertRaises(NotFound) as caught:
            self.client.get("absent")
        self.assertEqual(caught.exception.remedy, "list sandboxes: Client.list(); that of a run goes with it, unless keep=True is given")
        with Sandbox.create(client=self.client) as box:
            self.assertEqual(
                box.policy.check("https://example.com").remedy, 'start the sandbox with network="allow", allow=["example.com:443"]'
            )
        client = Client()
        client.close()
        with self.assertRaisesRegex(APIUsage, "^the client is closed "):
            client.ping()


if __name__ == "__main__":
    unittest.main()
