"""The daemon is killed with SIGKILL and started again while its clients work.

Whoever runs this restarts the daemon for each line on the descriptor of
CAISSON_TEST_ASK, and answers on that of CAISSON_TEST_ANSWER.
"""

import asyncio
import hashlib
import os
import threading
import unittest

from caisson import APIBroken, AsyncSandbox, Client, DaemonOff, Sandbox

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
        client = Client(reconnect=60)
        self.addCleanup(client.close)
        self.box = Sandbox.create(client=client)
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


if __name__ == "__main__":
    unittest.main()
