"""Requests and answers as JSON."""

import unittest
from datetime import datetime, timedelta, timezone

from caisson import _wire
from caisson.codes import BY_CODE, NotFound
from caisson.errors import CaissonError
from caisson.types import Result, SandboxInfo


class WireTest(unittest.TestCase):
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
        self.assertEqual(_wire.Request("GET", "/x", {"states": ["a", "b"]}).target(), "/x?states=a&states=b")
        request = _wire.Request("GET", "/p", {"a": 0, "b": True, "c": False, "d": None, "labels": {"x": "y z", "u": "&"}})
        self.assertEqual(request.target(), "/p?a=0&b=true&labels=x%3Dy+z&labels=u%3D%26")

    def test_decode(self):
        info = _wire.decode(
            SandboxInfo,
            {"id": "x", "pid": "9007199254740993", "created_at": "2026-11-24T20:38:20.656238694Z", "news": 1,
             "ports": [{"host_port": 80}], "labels": {"a": "b"}, "result": {"exit_code": 3, "duration": "0.25s", "usage": {"cpu": "1.5s"}}},
        )
        self.assertEqual(info.pid, 9007199254740993)
        self.assertEqual(info.created_at, datetime(2026, 11, 24, 20, 38, 20, 656238, timezone.utc))
        self.assertEqual((info.ports[0].host_port, info.ports[0].port, info.labels), (80, 0, {"a": "b"}))
        self.assertEqual((info.result.exit_code, info.result.duration, info.result.sandbox.egress), (3, 0.25, None))
        self.assertEqual((info.result.usage.cpu, info.result.usage.peak_memory_bytes, info.result.sandbox.id), (1.5, None, ""))
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


if __name__ == "__main__":
    unittest.main()
