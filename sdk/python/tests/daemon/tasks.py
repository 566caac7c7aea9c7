"""The asyncio side, against a real daemon."""

import asyncio
import signal
import threading
import unittest

from caisson import AsyncClient, AsyncSandbox, Exited, Output
from caisson.codes import PortClosed


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = AsyncClient()
        self.box = await AsyncSandbox.create(pids=256, cpus=2, client=self.client)

    async def asyncTearDown(self):
        await self.box.remove()
        self.client.close()

    async def test_run(self):
        got = []

        async def take(text):
            await asyncio.sleep(0)
            got.append(text)

        result = await self.box.run("cat; echo err >&2; exit 3", input=iter([b"one ", b"two"]), on_stdout=take)
        self.assertEqual((result.exit_code, result.stdout, result.stderr, "".join(got)), (3, "one two", "err\n", "one two"))
        self.assertEqual((await self.client.run("echo own")).stdout, "own\n")

    async def test_a_hundred_streams_need_no_threads(self):
        before = threading.active_count()
        processes = await asyncio.gather(*(self.box.start("read x; echo $x", stdin=True) for _ in range(100)))
        open_streams = [process.events() for process in processes]
        for events in open_streams:
            await events.__anext__()  # Started: the stream is open
        self.assertEqual(threading.active_count(), before)
        for n, process in enumerate(processes):
            await process.send(f"{n}\n")
        for n, events in enumerate(open_streams):
            output, exited = [event async for event in events]
            self.assertIsInstance(output, Output)
            self.assertIsInstance(exited, Exited)
            self.assertEqual(output.text, f"{n}\n")

    async def test_a_cancelled_run_kills_its_command(self):
        started = asyncio.Event()
        task = asyncio.ensure_future(self.box.run("echo x; sleep 600", on_stdout=lambda _: started.set()))
        await started.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        last = (await self.box.processes())[-1]
        result = await (await self.box.connect(last.id)).wait()
        self.assertEqual(result.signal, signal.SIGKILL)

    async def test_files_and_lines(self):
        await self.box.files.write("/tmp/f", "a\nb\n")
        process = await self.box.start("cat /tmp/f")
        self.assertEqual([line async for line in process.stdout], ["a", "b"])
        async with await self.box.files.watch("/tmp") as changes:
            await self.box.run("touch /tmp/new")
            async for change in changes:
                self.assertEqual((change.path, change.type), ("/tmp/new", "create"))
                break
        self.assertEqual([part async for part in self.box.files.stream("/tmp/f")], [b"a\nb\n"])


if __name__ == "__main__":
    unittest.main()

    async def test_forward(self):
        with self.assertRaises(PortClosed):
            await self.box.forward(7000)
        await self.box.run("echo 'while true; do nc -l -p 7000 -e cat; done' > /tmp/s; sh /tmp/s >/dev/null 2>&1 </dev/null &", check=True)
        for _ in range(200):
            try:
                stream = await self.box.forward(7000)
                break
            except PortClosed:
                await asyncio.sleep(0.05)
        async with stream:
            await stream.send(b"one ")
            self.assertEqual(await stream.receive(), b"one ")
            await stream.send(b"two")
            await stream.end()
            self.assertEqual((await stream.receive(), await stream.receive()), (b"two", b""))
