"""The daemon is killed with SIGKILL and started again while its clients work.

Whoever runs this restarts the daemon for each line on the descriptor of
CAISSON_TEST_ASK, and answers on that of CAISSON_TEST_ANSWER.
"""

import asyncio
import concurrent.futures
import hashlib
import os
import pathlib
import tempfile
import threading
import time
import unittest

from caisson import APIBroken, AsyncClient, AsyncSandbox, Client, DaemonOff, Sandbox, codes, host

COUNT = 300_000
WHOLE = "".join(f"{n}\n" for n in range(1, COUNT + 1))
DATA = bytes(range(256)) * 8192
DIGEST = hashlib.sha256(DATA).hexdigest()


def restart() -> None:
    os.write(int(os.environ["CAISSON_TEST_ASK"]), b"\n")
    if not os.read(int(os.environ["CAISSON_TEST_ANSWER"]), 1):
        raise RuntimeError("the daemon did not come back")


class RestartTest(unittest.TestCase):
    def setUp(self):
        self.client = Client(reconnect=60)
        self.addCleanup(self.client.close)
        self.box = Sandbox.create(client=self.client)
        self.addCleanup(self.box.remove)

    def test_without_reconnect_the_stream_ends(self):
        with Client(reconnect=0) as client:
            box = Sandbox(client.transport, self.box.info)
            with self.assertRaises((APIBroken, DaemonOff)):
                box.run("echo x; sleep 600", on_stdout=lambda _: restart())

    def test_output(self):
        got = []

        def take(text):
            got.append(text)
            if sum(map(len, got)) > len(WHOLE) // 4 * (self.restarts + 1):
                self.restarts += 1
                restart()

        self.restarts = 0
        result = self.box.run(f"seq {COUNT}", on_stdout=take)
        self.assertGreaterEqual(self.restarts, 2)
        self.assertEqual((result.exit_code, "".join(got) == WHOLE, result.stdout == WHOLE), (0, True, True))

    def test_input(self):
        process = self.box.start("sha256sum", stdin=True)
        for at in range(0, len(DATA), len(DATA) // 3):
            process.send(DATA[at : at + len(DATA) // 3])
            restart()
        process.close_input()
        self.assertEqual(process.wait().stdout, f"{DIGEST}  -\n")

    def test_terminal(self):
        process = self.box.start(f"stty raw -echo; echo ready; head -c {len(DATA)} | sha256sum", tty=True)
        self.assertEqual(next(process.stdout), "ready")
        for at in range(0, len(DATA), len(DATA) // 4):
            sender = threading.Thread(target=process.send, args=(DATA[at : at + len(DATA) // 4],))
            sender.start()
            restart()
            sender.join()
        self.assertEqual(process.wait().stdout, f"ready\n{DIGEST}  -\n")

    def test_input_on_its_way(self):
        # Of 2 MiB the command reads one byte, so the daemon is killed under send.
        process = self.box.start(
            "dd bs=1 count=1 2>/dev/null; echo; until [ -e /tmp/go ]; do sleep 0.05; done; sha256sum", stdin=True
        )

        def send():
            process.send(b"x" + DATA)
            process.close_input()

        sender = threading.Thread(target=send)
        sender.start()
        self.assertEqual(next(process.stdout), "x")
        restart()
        self.box.files.write("/tmp/go", "")
        sender.join()
        self.assertEqual(process.wait().stdout, f"x\n{DIGEST}  -\n")

    def test_calls(self):
        process = self.box.start("echo before; until [ -e /tmp/end ]; do sleep 0.05; done; echo after")
        lines = process.stdout
        self.assertEqual(next(lines), "before")
        restart()
        self.box.files.write("/tmp/end", "")
        self.assertEqual(list(lines), ["after"])
        self.assertEqual(process.wait().stdout, "before\nafter\n")

    def test_watch(self):
        self.box.files.mkdir("/tmp/w")
        with self.box.files.watch("/tmp/w") as changes:
            self.box.files.write("/tmp/w/before", "")
            next(c for c in changes if c.path == "/tmp/w/before")
            restart()
            # It watches again, and says that changes may be missing.
            self.assertEqual(next(c.path for c in changes if c.type == "overflow"), "/tmp/w")
            self.box.files.write("/tmp/w/after", "")
            next(c for c in changes if c.path == "/tmp/w/after")

    def test_traffic(self):
        box = Sandbox.create(client=self.client, allow=["example.com"])
        self.addCleanup(box.remove)
        ask = "for n in 1 2 3; do wget -q -O- http://{}$n.example/; done"
        box.run(ask.format("before"))
        got, attempts = [], box.policy.traffic(follow=True)

        def until(name):
            for attempt in attempts:
                got.append(attempt)
                if attempt.name == name:
                    return

        until("before2.example")  # in the middle of those that there are
        restart()
        box.run(ask.format("after"))
        until("after3.example")
        attempts.close()
        self.assertEqual([a.kind for a in got].count("gap"), 1)
        kept = [a for a in box.policy.traffic() if a.kind != "gap"]
        self.assertEqual([a for a in got if a.kind != "gap"], kept[: len(got) - 1])
        self.assertEqual(list(box.policy.traffic(since=kept[0].cursor)), kept[1:])
        self.assertGreaterEqual(len({a.name for a in kept}), 6)

    def test_events(self):
        box, client = self.box, self.client
        box.run("true")
        events = client.events(filter=[f"sandbox={box.id}"], follow=True)
        next(e for e in events if e.type == "run.caisson.exec.ended" and e.data.exit_code == 0)
        restart()
        lost = next(events)
        self.assertEqual((lost.type, lost.id), (host.LOST, ""))
        box.run("exit 3")
        types = []
        for event in events:
            types.append(event.type)
            if event.type == "run.caisson.exec.ended":
                break
        self.assertEqual(types.count("run.caisson.exec.started"), 1, types)
        self.assertEqual(event.data.exit_code, 3)
        events.close()
        # An ID of the daemon that was killed is refused, if the caller brings it.
        restart()
        with self.assertRaises(codes.EventsGone):
            list(client.events(since=event.id))

    def test_stats(self):
        stats = self.client.stats(name=self.box.name)
        before = next(stats)
        restart()
        after = next(stats)
        for each in (before, after):
            self.assertEqual([s.sandbox_id for s in each.sandboxes], [self.box.id])
        self.assertGreater(after.time, before.time)
        stats.close()
        self.assertEqual(self.box.history().sandbox_id, self.box.id)

    def test_copies(self):
        box = Sandbox.create(client=self.client, memory="1G", tmpfs="700M")
        self.addCleanup(box.remove)
        with tempfile.TemporaryDirectory() as dir, Client(reconnect=0) as impatient:
            here = pathlib.Path(dir, "in")
            here.mkdir()
            here.joinpath("large").write_bytes(DATA * 128)
            probe = Sandbox(impatient.transport, box.info)
            for copy in (
                lambda box: box.files.copy_in(here, "/tmp/in"),
                lambda box: box.files.copy_out("/tmp/in", pathlib.Path(dir, "out")),
            ):
                entries = copy(box).entries
                # Without reconnecting it fails: the restart does come in the middle.
                with self.assertRaises((APIBroken, DaemonOff)):
                    self.restarted(copy, probe)
                self.assertEqual(self.restarted(copy, box).entries, entries)
            self.assertEqual(pathlib.Path(dir, "out/large").read_bytes(), DATA * 128)

    def restarted(self, copy, box):
        """Copies while the daemon is restarted."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            copied = pool.submit(copy, box)
            time.sleep(0.05)
            self.assertFalse(copied.done())
            restart()
            return copied.result()

    def test_asyncio(self):
        async def main():
            async with await AsyncSandbox.create() as box:
                got = []

                async def take(text):
                    got.append(text)
                    if len(got) == 2:
                        await asyncio.to_thread(restart)

                result = await box.run(f"seq {COUNT}", on_stdout=take)
                self.assertGreaterEqual(len(got), 2)
                self.assertEqual(("".join(got) == WHOLE, result.stdout == WHOLE), (True, True))
                self.assertEqual((await box.run("sha256sum", input=DATA)).stdout, f"{DIGEST}  -\n")

        asyncio.run(main())

    def test_asyncio_watch(self):
        async def main():
            async with AsyncClient(reconnect=60) as client, await AsyncSandbox.create(client=client) as box:
                async with await box.files.watch("/tmp") as changes:
                    await asyncio.to_thread(restart)
                    self.assertEqual((await changes.__anext__()).type, "overflow")
                    await box.files.write("/tmp/after", "")
                    async for change in changes:
                        if change.path == "/tmp/after":
                            break

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
