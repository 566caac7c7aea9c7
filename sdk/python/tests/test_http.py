"""The connection to the daemon, for threads and for asyncio, against prepared bytes."""

import asyncio
import gc
import os
import tempfile
import unittest
import warnings
from unittest import mock

from caisson import (
    APIBroken,
    APIUsage,
    AsyncClient,
    AsyncProcess,
    AsyncSandbox,
    Client,
    DaemonOff,
    Limits,
    NotFound,
    Process,
    ProcessInfo,
    Sandbox,
    SandboxInfo,
)
from caisson._sync.http import Transport
from caisson._wire import Request
from tests.fake import Fake, chunked, cut, plain

CLOSED = "the client is closed [SBX-801] (make another Client, and close it after its last call)"
VERSION = plain(b'{"version":"1"}')
STARTED = b'{"started":{"sandbox_id":"id","exec":{"id":"4"}}}\n'
EXIT = b'{"exit":{"exit_code":3,"stdout_bytes":"6"}}\n'


class Case(unittest.TestCase):
    def fake(self, *connections):
        fake = Fake(*connections)
        self.addCleanup(fake.close)
        return fake

    def both(self, connections, work, work_async, reconnect=10.0):
        """Does the same with both clients. Returns the requests of each."""
        requests = []
        fake = self.fake(*connections)
        client = Client(fake.path, reconnect=reconnect)
        work(client)
        client.close()
        requests.append(fake.requests)

        async def main(path):
            async with AsyncClient(path, reconnect=reconnect) as client:
                await work_async(client)

        fake = self.fake(*connections)
        asyncio.run(main(fake.path))
        requests.append(fake.requests)
        self.assertEqual(*requests)
        return requests[0]


class UnaryTest(Case):
    def test_a_connection_is_used_again(self):
        def work(client):
            self.assertEqual([client.version().version for _ in range(2)], ["1", "1"])

        async def work_async(client):
            self.assertEqual([(await client.version()).version for _ in range(2)], ["1", "1"])

        self.assertEqual(len(self.both([[VERSION, VERSION]], work, work_async)), 2)

    def test_one_that_the_daemon_closed_is_not(self):
        def work(client):
            for _ in range(2):
                client.images.remove("x")  # not repeatable

        async def work_async(client):
            for _ in range(2):
                await client.images.remove("x")

        closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        self.both([[closing], [plain(b"{}")]], work, work_async)

    def test_only_what_is_repeatable_is_repeated(self):
        def work(client):
            self.assertEqual(client.version().version, "1")
            with self.assertRaises(APIBroken):
                client.images.remove("x")

        async def work_async(client):
            self.assertEqual((await client.version()).version, "1")
            with self.assertRaises(APIBroken):
                await client.images.remove("x")

        requests = self.both([[None], [VERSION, None]], work, work_async)
        self.assertEqual([r.split()[0] for r in requests], [b"GET", b"GET", b"DELETE"])

    def test_creation_has_a_key_and_is_repeated(self):
        fake = self.fake([None], [plain(b'{"id":"a"}', "201 Created")])
        with Client(fake.path) as client:
            self.assertEqual(Sandbox.create(client=client).id, "a")
        first, second = (r.split(b"\r\n\r\n")[1] for r in fake.requests)
        self.assertEqual(first, second)
        self.assertRegex(first, rb'"idempotency_key": "[0-9a-f]{32}"')

    def test_junk_is_a_broken_connection(self):
        for answer in [
            b"SSH-2.0\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", plain(b"[]"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 2000,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 " + b"2" * 300_000,
        ]:

            def work(client, answer=answer):
                with self.assertRaises(APIBroken, msg=answer[:60]):
                    client.version()

            async def work_async(client, answer=answer):
                with self.assertRaises(APIBroken, msg=answer[:60]):
                    await client.version()

            self.both([[answer]], work, work_async, reconnect=0)

    def test_nobody_listens(self):
        with tempfile.TemporaryDirectory() as empty:
            with self.assertRaises(DaemonOff) as caught:
                Client(os.path.join(empty, "s")).version()
            self.assertIn("start it as root", str(caught.exception))
            with self.assertRaises(DaemonOff):
                asyncio.run(AsyncClient(os.path.join(empty, "s")).version())

    def test_an_error_has_its_class(self):
        refusal = plain(b'{"error":{"code":"SBX-102","message":"no","retryable":true}}', "400 Bad Request")

        def work(client):
            with self.assertRaises(Limits) as caught:
                client.version()
            self.assertEqual((caught.exception.status, caught.exception.retryable), (400, True))
            client.version()

        async def work_async(client):
            with self.assertRaises(Limits):
                await client.version()
            await client.version()

        self.both([[refusal, VERSION]], work, work_async)

    def test_an_upload_in_pieces(self):
        def work(client):
            box(client).files.write("/f", iter([b"one", b"", b"two"]))

        async def work_async(client):
            await async_box(client).files.write("/f", iter([b"one", b"", b"two"]))

        (request,) = self.both([[plain(b"{}")]], work, work_async)
        self.assertTrue(request.startswith(b"PUT /v1/sandboxes/id/files/f?make_parents=true HTTP/1.1\r\n"))
        self.assertTrue(request.endswith(b"\r\n\r\nonetwo"))


def box(client: Client) -> Sandbox:
    return Sandbox(client.transport, SandboxInfo(id="id"))


def async_box(client: AsyncClient) -> AsyncSandbox:
    return AsyncSandbox(client.transport, SandboxInfo(id="id"))


class StreamTest(Case):
    def test_a_cut_stream_goes_on_at_its_offsets(self):
        connections = [
            [cut(STARTED, b'{"stdout":{"text":"one"}}\n{"std')],  # in the middle of a line
            [cut(STARTED)],
            [chunked(STARTED, b'{"stdout":{"offset":"3","te', b'xt":"two"}}\n', EXIT)],
        ]

        def work(client):
            result = box(client).run("x")
            self.assertEqual((result.exit_code, result.stdout, result.stdout_skipped), (3, "onetwo", 0))

        async def work_async(client):
            result = await async_box(client).run("x")
            self.assertEqual((result.exit_code, result.stdout, result.stdout_skipped), (3, "onetwo", 0))

        _, second, third = self.both(connections, work, work_async)
        want = b"POST /v1/sandboxes/id/execs/4/attach?stdout_offset=3&stderr_offset=0 "
        self.assertTrue(second.startswith(want) and third.startswith(want), (second, third))

    def test_a_stream_that_breaks_before_its_start_is_not_repeated(self):
        def work(client):
            with self.assertRaises(APIBroken):
                box(client).run("x")

        async def work_async(client):
            with self.assertRaises(APIBroken):
                await async_box(client).run("x")

        self.assertEqual(len(self.both([[cut()]], work, work_async)), 1)

    def test_an_end_without_an_exit_is_a_break(self):
        def work(client):
            with self.assertRaises(APIBroken):
                box(client).run("x")

        async def work_async(client):
            with self.assertRaises(APIBroken):
                await async_box(client).run("x")

        kill = plain(b"{}")
        requests = self.both([[chunked(STARTED), kill]], work, work_async, reconnect=0)
        self.assertIn(b"/execs/4/signal", requests[1])

    def test_trailers(self):
        transport = Transport(self.fake([chunked(b"x" * 10, trailers=b"Caisson-Left-Out: 1\r\nA: 2\r\n")]).path, 0)
        with transport.open(Request("GET", "/")) as response:
            self.assertEqual((response.read(), response.trailers), (b"x" * 10, [("caisson-left-out", "1"), ("a", "2")]))
        transport.close()

    def test_a_file_that_is_cut_is_an_error(self):
        def work(client):
            with self.assertRaises(APIBroken):
                box(client).files.read("/f")

        async def work_async(client):
            with self.assertRaises(APIBroken):
                await async_box(client).files.read("/f")

        self.both([[cut(b"half")]], work, work_async, reconnect=0)


class PoolTest(Case):
    def test_a_connection_that_ended_meanwhile_is_not_used(self):
        fake = self.fake([VERSION], [VERSION])
        client = Client(fake.path, reconnect=0)
        client.version()
        self.assertTrue(fake.ended.acquire(timeout=10))
        client.version()
        client.close()
        self.assertEqual(len(fake.requests), 2)

    def test_a_client_works_in_a_later_event_loop(self):
        fake = self.fake([VERSION], [VERSION])
        client = AsyncClient(fake.path, reconnect=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of what the first loop left open
            for _ in range(2):
                self.assertEqual(asyncio.run(client.version()).version, "1")
            client.close()
            gc.collect()

    def test_a_closed_client_says_so(self):
        def work(client):
            box(client)
            client.close()
            for call in [client.version, box(client).inspect, lambda: next(client.events())]:
                with self.assertRaises(APIUsage) as caught:
                    call()
                self.assertEqual(str(caught.exception), CLOSED)

        async def work_async(client):
            client.close()
            with self.assertRaises(APIUsage) as caught:
                await client.version()
            self.assertEqual(str(caught.exception), CLOSED)

        self.both([], work, work_async)

    def test_a_removed_sandbox_says_so(self):
        fake = self.fake([plain(b'{"id":"id","name":"me"}'), plain(b"{}")])
        with mock.patch.dict(os.environ, {"CAISSON_SOCKET": fake.path}):
            with Sandbox.create() as own:
                pass
        for call in [own.remove, lambda: own.run("x")]:
            with self.assertRaises(NotFound) as caught:
                call()
            self.assertEqual(str(caught.exception), "the sandbox me is removed [SBX-107] (make another one: Sandbox.create)")


class WaitTest(Case):
    def test_a_timeout_leaves_the_command_alone(self):
        def work(client):
            job = Process(client.transport, "id", ProcessInfo(id="4"), own=True)
            for timeout in ["300ms", 0.3]:
                with self.assertRaises(TimeoutError) as caught:
                    job.wait(timeout)
                self.assertEqual(str(caught.exception), "the command has not ended after 0.3 s")
            self.assertEqual(job.wait(timeout=60).exit_code, 3)
            with self.assertRaises(TimeoutError) as caught:
                box(client).wait("300ms")
            self.assertEqual(str(caught.exception), "the sandbox has not ended after 0.3 s")

        async def work_async(client):
            job = AsyncProcess(client.transport, "id", ProcessInfo(id="4"), own=True)
            for timeout in ["300ms", 0.3]:
                with self.assertRaises(TimeoutError):
                    await job.wait(timeout)
            self.assertEqual((await job.wait(timeout=60)).exit_code, 3)
            with self.assertRaises(TimeoutError):
                await async_box(client).wait("300ms")

        hangs = [cut(STARTED), None]  # the connection stays open
        self.both([hangs, hangs, [chunked(EXIT), b"HTTP/1.1 200 OK\r\n", None]], work, work_async)


if __name__ == "__main__":
    unittest.main()
