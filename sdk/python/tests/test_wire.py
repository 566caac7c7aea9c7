"""Requests and answers as JSON."""

import unittest
from datetime import datetime, timedelta, timezone

from caisson import _spec, _wire
from caisson.codes import BY_CODE, NotFound
from caisson.errors import CaissonError
from caisson.types import Mount, Result, SandboxInfo


class WireTest(unittest.TestCase):
    def test_sizes(self):
        for value, want in [(7, "7"), ("512M", str(512 << 20)), ("1.5g", str(3 << 29)), ("10", "10"), (None, None)]:
            self.assertEqual(_wire.size(value), want, value)
        for value in ["", "M", "-1", "1KB", "1 2"]:
            with self.assertRaises(ValueError, msg=value):
                _wire.size(value)

    def test_durations(self):
        for value, want in [(1.5, "1.5s"), (90, "90s"), (timedelta(minutes=2), "120s"), (1e-7, "0.0000001s"), (0, "0s")]:
            self.assertEqual(_wire.duration(value), want)
        with self.assertRaisesRegex(TypeError, "'90s' is not a duration: give seconds"):
            _wire.duration("90s")

    def test_times(self):
        zone = timezone(timedelta(hours=2))
        self.assertEqual(_wire.timestamp(datetime(2026, 1, 2, 17, 4, 5, 6, zone)), "2026-01-02T15:04:05.000006Z")
        self.assertIsNone(_wire.timestamp(None))
        with self.assertRaisesRegex(TypeError, "'10m' is not a time: give a datetime"):
            _wire.timestamp("10m")

    def test_paths_are_quoted(self):
        self.assertEqual(_wire.sandbox_path("a/../b", "execs", "1?"), "/v1/sandboxes/a%2F..%2Fb/execs/1%3F")
        self.assertEqual(_wire.file_path("x", "files", "/tmp/a b/ü\r\n"), "/v1/sandboxes/x/files/tmp/a%20b/%C3%BC%0D%0A")
        self.assertEqual(_wire.file_path("x", "dirs", "/"), "/v1/sandboxes/x/dirs/")
        for path in ["", "tmp", "./x"]:
            with self.assertRaises(ValueError):
                _wire.file_path("x", "files", path)
        with self.assertRaises(ValueError):
            _wire.sandbox_path("")

    def test_query(self):
        request = _wire.Request("GET", "/p", {"a": 0, "b": True, "c": False, "d": None, "labels": {"x": "y z", "u": "&"}})
        self.assertEqual(request.target(), "/p?a=0&b=true&labels=x%3Dy+z&labels=u%3D%26")

    def test_decode(self):
        info = _wire.decode(
            SandboxInfo,
            {"id": "x", "pid": "9007199254740993", "created_at": "2026-11-24T20:38:20.656238694Z", "news": 1,
             "ports": [{"host_port": 80}], "labels": {"a": "b"}, "result": {"exit_code": 3, "duration": "0.25s"}},
        )
        self.assertEqual(info.pid, 9007199254740993)
        self.assertEqual(info.created_at, datetime(2026, 11, 24, 20, 38, 20, 656238, timezone.utc))
        self.assertEqual((info.ports[0].host_port, info.ports[0].port, info.labels), (80, 0, {"a": "b"}))
        self.assertEqual((info.result.exit_code, info.result.duration, info.result.egress), (3, 0.25, None))
        self.assertEqual(_wire.decode(Result, {}), Result())

    def test_errors(self):
        e = _wire.error_of({"error": {"code": "SBX-107", "message": "m", "cause": "c", "remedy": "r", "class": "k"}}, 404)
        self.assertIsInstance(e, NotFound)
        self.assertEqual((str(e), e.status, e.class_, e.retryable), ("m: c [SBX-107] (r)", 404, "k", False))
        newer = _wire.error_of({"error": {"code": "SBX-999", "message": "m"}})
        self.assertEqual((type(newer), newer.code, str(newer)), (CaissonError, "SBX-999", "m [SBX-999]"))
        self.assertGreater(len(BY_CODE), 70)
        for junk in [b"", b"nothing", b"[]", b"\xff"]:
            with self.assertRaises(BY_CODE["SBX-803"]):
                _wire.parse(junk)

    def test_spec(self):
        self.assertEqual(_spec.command("a b", timeout=2)["shell"], "a b")
        self.assertEqual(_spec.command(["a", "b"], env={"X": "1"})["args"], ["a", "b"])
        self.assertEqual(_wire.Request("GET", "/x", {"states": ["a", "b"]}).target(), "/x?states=a&states=b")
        rates = _spec.limits(io_read_bps="2M", io_write_bps=65536)
        self.assertEqual(rates, {"io_read_bps": "2097152", "io_write_bps": "65536"})
        self.assertEqual(_spec.workspace("/x:ro"), {"dir": "/x", "mode": "ro"})
        self.assertEqual(_spec.workspace("/x:/y/z:ro"), {"dir": "/x", "mode": "ro", "path": "/y/z"})
        mounts = [Mount("bind", "/data", "/x", True), Mount("volume", "/v", "deps"), Mount("tmpfs", "/t", size_bytes=4)]
        self.assertEqual(
            _spec.sandbox(mounts=mounts)["mounts"],
            [
                {"type": "bind", "source": "/x", "target": "/data", "read_only": True},
                {"type": "volume", "source": "deps", "target": "/v"},
                {"type": "tmpfs", "target": "/t", "size_bytes": "4"},
            ],
        )
        self.assertEqual(_spec.sandbox(name=None, limits={}, ttl=1, allow=("a",)), {"ttl": "1s", "allow": ["a"]})
        self.assertEqual(_spec.limits("1K", 0.5, 3), {"memory_bytes": "1024", "milli_cpu": "500", "pids": 3})
        with self.assertRaises(TypeError):  # each letter would be a rule
            _spec.sandbox(allow="github.com")


if __name__ == "__main__":
    unittest.main()
