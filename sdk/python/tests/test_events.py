"""Events, places, and what is kept of the output."""

import json
import random
import unittest
from datetime import datetime, timezone

from caisson import _endpoint, _wire
from caisson._events import Collector, Keep, Lines, Place, Retry
from caisson.codes import APIBroken, Busy, Canceled, DaemonOff, EngineDown
from caisson.types import Exited, Output, Result, Started


def line(**message):
    return json.dumps(message).encode()


class PlaceTest(unittest.TestCase):
    def test_goes_on_where_it_was(self):
        place = Place("box")
        first = place.read(line(started={"sandbox_id": "id", "exec": {"id": "4"}}))
        self.assertIsInstance(first, Started)
        self.assertEqual(place.read(line(stdout={"text": "über"})), Output("stdout", 0, "über".encode()))
        self.assertEqual(place.read(line(stdout={"offset": "5", "skipped": "100"})), Output("stdout", 5, b"", 100))
        self.assertEqual(place.read(line(stderr={"data": "/w=="})), Output("stderr", 0, b"\xff"))
        self.assertEqual(place.request().target(), "/v1/sandboxes/id/execs/4/attach?stdout_offset=105&stderr_offset=1")
        self.assertIsNone(place.read(line(started={"sandbox_id": "id", "exec": {"id": "4"}})))
        self.assertFalse(place.ended)
        self.assertEqual(place.read(line(exit={"exit_code": 3})), Exited(Result(exit_code=3)))
        self.assertTrue(place.ended)

    def test_refuses_a_gap_and_a_repetition(self):
        for offset in ["0", "7"]:
            place = Place("box", "1", stdout_offset=5)
            with self.assertRaises(APIBroken):
                place.read(line(stdout={"offset": offset, "text": "x"}))

    def test_begins_later_and_has_times(self):
        place = Place("box", later=True)
        self.assertEqual(
            place.read(line(stdout={"offset": "7", "text": "x", "time": "2026-01-02T15:04:05.123456789Z"})),
            Output("stdout", 7, b"x", 0, datetime(2026, 1, 2, 15, 4, 5, 123456, timezone.utc)),
        )
        self.assertEqual(place.read(line(stderr={"text": "y"})), Output("stderr", 0, b"y"))
        for offset in ["7", "9"]:
            with self.assertRaises(APIBroken):
                place.read(line(stdout={"offset": offset, "text": "x"}))

    def test_an_error_ends_it(self):
        with self.assertRaises(EngineDown):
            Place("box").read(line(error={"code": "SBX-602", "message": "gone"}))
        self.assertIsNone(Place("box").read(line(news={})))


class KeepTest(unittest.TestCase):
    def test_keeps_the_first_and_the_last_half(self):
        random.seed(1)
        for limit in (2, 3, 10, 64):
            for total in (0, 1, limit - 1, limit, limit + 1, 5 * limit):
                data = bytes(random.randrange(256) for _ in range(total))
                keep, at = Keep(limit), 0
                while at < total:
                    n = random.randrange(1, limit + 2)
                    keep.add(data[at : at + n], 0)
                    at += n
                kept, skipped = keep.kept(0)
                half = limit // 2
                want = data if total <= limit else data[: limit - half] + data[total - half :]
                self.assertEqual((kept, skipped), (want, total - len(want)), (limit, total))

    def test_a_gap_of_the_daemon(self):
        keep = Keep(10)
        keep.add(b"abc", 0)
        keep.add(b"", 100)
        keep.add(b"xyz", 0)
        self.assertEqual(keep.kept(106), (b"abcxyz", 100))

    def test_memory_is_bounded(self):
        keep = Keep(1000)
        for _ in range(1000):
            keep.add(bytes(5000), 0)
        self.assertLessEqual(len(keep._head) + len(keep._tail), 1500)

    def test_refuses_no_room(self):
        with self.assertRaises(ValueError):
            Keep(1)


class TextTest(unittest.TestCase):
    def test_no_character_is_cut(self):
        collector, got = Collector(100, None, None), []
        collector = Collector(100, got.append, None)
        for at, byte in enumerate("aü😀".encode() + b"\xc3"):
            for call, text in collector.add(Output("stdout", at, bytes([byte]))):
                call(text)
        for call, text in collector.end():
            call(text)
        self.assertEqual(got, ["a", "ü", "😀", "\ufffd"])
        result = collector.result(Result(stdout_bytes=8))
        self.assertEqual((result.stdout, result.stderr, result.stdout_skipped), ("aü😀\ufffd", "", 0))

    def test_lines(self):
        lines = Lines()
        self.assertEqual(lines.add(b"one\ntw"), ["one"])
        self.assertEqual(lines.add(b"o\n\nthr\xc3"), ["two", ""])
        self.assertEqual(lines.add(b"\xbc"), [])
        self.assertEqual((lines.end(), Lines().end()), (["thrü"], []))


class RetryTest(unittest.TestCase):
    def test_which_errors_are_tried_again(self):
        off, broken = _wire.daemon_off(_endpoint.of("/x"), FileNotFoundError()), _wire.broken("cut")
        served_off = DaemonOff("m", status=503)
        for known, error, repeatable, want in [
            (False, off, True, False),  # there never was a daemon
            (True, off, True, True),
            (True, off, False, True),  # nothing was sent
            (True, served_off, False, False),
            (False, broken, True, True),
            (True, broken, False, False),
            (False, Canceled("m"), True, True),
            (True, Busy("m"), True, False),
        ]:
            got = Retry(10, known).pause(error, repeatable) is not None
            self.assertEqual(got, want, (known, error, repeatable))

    def test_the_time_is_bounded(self):
        self.assertIsNone(Retry(0, True).pause(_wire.broken("cut")))
        retry = Retry(10, True)
        pauses = [retry.pause(_wire.broken("cut")) for _ in range(9)]
        self.assertEqual(pauses[:3] + pauses[-1:], [0.005, 0.01, 0.02, 0.25])
        retry.connected(progress=False)  # a daemon that only ever says "started" is given up
        self.assertEqual(retry.pause(_wire.broken("cut")), 0.25)
        retry.connected(progress=True)
        self.assertEqual(retry.pause(_wire.broken("cut")), 0.005)


if __name__ == "__main__":
    unittest.main()
