"""Sandboxes and commands, against a real daemon."""

import io
import signal
import subprocess
import sys
import threading
import time
import unittest
from datetime import timedelta

import caisson
from caisson import (
    CaissonError,
    Client,
    CommandAbsent,
    CommandFailed,
    ExecNotFound,
    Exists,
    Exited,
    Limits,
    NotFound,
    Output,
    Paused,
    Sandbox,
    Started,
    State,
)


# GROWTH prints by how many bytes the memory of a program grows that runs a command with
# much output.
GROWTH = """
import resource, sys
from caisson import Client

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

with Client() as client:
    box = client.get(sys.argv[1])
    box.run("true")
    before = used()
    box.run(f"yes 0123456789abcdef | head -c {sys.argv[2]}", on_stdout=len, output_limit=int(sys.argv[3]))
    print(used() - before)
"""


class Session(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = Client()
        cls.box = Sandbox.create(memory="128M", cpus=2, pids=64, env={"FROM": "sandbox"}, client=cls.client)
        cls.addClassCleanup(cls.client.close)
        cls.addClassCleanup(cls.box.remove)


class RunTest(Session):
    def test_results(self):
        result = self.box.run("echo $FROM $AND; echo err >&2; exit 3", env={"AND": "command"})
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (3, "sandbox command\n", "err\n"))
        self.assertEqual((result.reason, result.source, result.ok, result.stdout_bytes), ("exited", "command", False, 16))
        self.assertGreater(result.duration, 0)
        self.assertEqual(self.box.run(["echo", "$FROM", "a b"]).stdout, "$FROM a b\n")
        self.assertEqual(self.box.run("pwd; id -u", workdir="/tmp", user="1000").stdout, "/tmp\n1000\n")

    def test_ends(self):
        self.assertEqual(self.box.run("sleep 60", timeout=0.1).exit_code, 124)
        self.assertEqual(self.box.run("kill -9 $$").signal, 9)
        self.assertEqual(self.box.run(["head", "-c", str(9 << 20), "/dev/zero"], output_limit=2).stdout_bytes, 9 << 20)
        with self.assertRaises(CommandAbsent) as caught:
            self.box.run(["no-such-command"])
        self.assertEqual((caught.exception.code, caught.exception.status), ("SBX-608", 404))

    def test_check(self):
        self.assertEqual(self.box.run("echo fine", check=True).stdout, "fine\n")
        with self.assertRaises(CommandFailed) as caught:
            self.box.run("echo first >&2; echo last >&2; exit 4", check=True)
        self.assertEqual(str(caught.exception), "the command ended with exit code 4 (exited): last")
        self.assertEqual(caught.exception.result.stderr, "first\nlast\n")

    def test_input(self):
        big = bytes(range(256)) * 20_000
        for data, want in [
            ("hällo", "hällo".encode()), (b"\x00\xff", b"\x00\xff"), ("", b""), (big, big),
            (io.BytesIO(big), big), (iter([b"one", b"", b"two"]), b"onetwo"),
        ]:
            self.assertEqual(self.box.run(["cat"], input=data).stdout_data, want)
        self.assertEqual(self.box.run("cat").stdout, "")
        self.assertEqual(self.box.run("head -c 3; exec <&-; sleep 0.1", input=big).stdout_data, big[:3])

    def test_an_input_that_fails_is_no_end_of_input(self):
        def source():
            yield b"half"
            raise OSError("the disk is gone")

        with self.assertRaisesRegex(OSError, "the disk is gone"):
            self.box.run("cat; echo whole", input=source())

    def test_live_output(self):
        got, seen = [], threading.Event()

        def take(text):
            got.append(text)
            seen.set()

        process = self.box.start("read line; echo $line", stdin=True)
        runner = threading.Thread(target=lambda: process.wait(on_stdout=take))
        runner.start()
        process.send("now\n")
        self.assertTrue(seen.wait(30))
        runner.join()
        self.assertEqual(got, ["now\n"])

    def test_much_output(self):
        # Without a limit all is kept: so the limit is what leaves bytes out below.
        count = 200_000
        whole = "".join(f"{n}\n" for n in range(1, count + 1))
        got = []
        result = self.box.run(f"seq {count}", on_stdout=got.append, output_limit=1000)
        self.assertEqual("".join(got), whole)
        self.assertEqual(result.stdout, whole[:500] + whole[-500:])
        self.assertEqual(result.stdout_skipped, len(whole) - 1000)
        self.assertEqual(self.box.run(f"seq {count}").stdout, whole)

    def test_memory_is_bounded_by_the_limit(self):
        size = 48 << 20
        for limit, least, most in [(size, size, 4 * size), (1 << 20, 0, size // 2)]:
            grown = subprocess.run(
                [sys.executable, "-c", GROWTH, self.box.id, str(size), str(limit)],
                check=True, capture_output=True, text=True,
            )
            self.assertTrue(least <= int(grown.stdout) <= most, (limit, int(grown.stdout)))

    def test_a_slow_reader_loses_nothing(self):
        sizes, total = [], 6 << 20

        def slow(text):
            sizes.append(len(text))
            time.sleep(0.002)  # what makes it slow

        result = self.box.run(f"yes 0123456 | head -c {total}", on_stdout=slow, output_limit=4096)
        self.assertEqual((sum(sizes), result.stdout_bytes), (total, total))

    def test_a_callback_that_fails_ends_the_command(self):
        def fail(text):
            raise KeyError(text)

        with self.assertRaises(KeyError):
            self.box.run("echo x; sleep 600", on_stdout=fail)
        last = self.box.processes()[-1]
        self.assertEqual(self.box.connect(last.id).wait().signal, signal.SIGKILL)


class ProcessTest(Session):
    def test_events(self):
        process = self.box.start("echo one; echo two >&2; exit 5")
        started, *parts, exited = process.events()
        self.assertIsInstance(started, Started)
        self.assertIsInstance(exited, Exited)
        self.assertEqual(exited.result.exit_code, 5)
        self.assertTrue(all(isinstance(part, Output) for part in parts))
        text = {s: "".join(p.text for p in parts if p.stream == s) for s in ("stdout", "stderr")}
        self.assertEqual(text, {"stdout": "one\n", "stderr": "two\n"})
        later = [e.text for e in process.events(stdout_offset=2, stderr_offset=4) if isinstance(e, Output)]
        self.assertEqual(later, ["e\n"])
        self.assertEqual((list(process.stdout), list(process.stderr)), (["one"], ["two"]))
        self.assertEqual((process.wait().stdout, process.wait().stderr), ("one\n", "two\n"))

    def test_a_conversation(self):
        process = self.box.start("while read line; do echo got $line; done; echo end", stdin=True)
        lines = process.stdout
        for word in ["one", "two"]:
            process.send(word + "\n")
            self.assertEqual(next(lines), f"got {word}")
        process.close_input()
        self.assertEqual(list(lines), ["end"])
        with self.assertRaises(BrokenPipeError):
            process.send("late\n")

    def test_logs(self):
        process = self.box.start("echo one; read x; echo two", stdin=True)
        self.assertEqual(next(process.stdout), "one")
        outputs = lambda events: "".join(e.text for e in events if isinstance(e, Output))
        self.assertEqual(outputs(self.box.logs(process.id)), "one\n")
        time.sleep(0.1)
        process.close_input()
        self.assertEqual(outputs(self.box.logs(process.id, follow=True)), "one\ntwo\n")
        timed = [e for e in self.box.logs(process.id, timestamps=True) if isinstance(e, Output)]
        self.assertEqual([e.text for e in timed], ["one\n", "two\n"])
        self.assertLess(timed[0].time, timed[1].time)
        self.assertEqual(outputs(self.box.logs(process.id, since=timed[1].time)), "two\n")
        self.assertEqual(outputs(self.box.logs(process.id, follow=True, until=timed[0].time + timedelta(milliseconds=50))), "one\n")

    def test_signals(self):
        process = self.box.start("trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done")
        next(process.stdout)
        self.box.connect(process.id).signal("INT")
        self.assertEqual(process.wait().exit_code, 5)
        process.kill()  # it has ended
        with self.assertRaises(State):
            process.signal("INT")
        other = self.box.start("sleep 600")
        other.kill()
        self.assertEqual(other.wait().signal, signal.SIGKILL)
        self.assertIn((other.id, "exited"), [(info.id, info.state) for info in self.box.processes()])
        with self.assertRaises(ExecNotFound):
            self.box.connect("12345")

    def test_a_terminal(self):
        script = "trap 'stty size; exit' WINCH; stty size; read word; echo got $word; while :; do sleep 0.05; done"
        process = self.box.start(script, tty=(11, 22))
        lines = process.stdout
        self.assertEqual(next(lines), "11 22\r")
        process.send("x\n")
        self.assertEqual([next(lines), next(lines)], ["x\r", "got x\r"])  # the terminal echoes
        process.resize(33, 44)
        self.assertEqual(list(lines), ["33 44\r"])

    def test_limits_of_one_command(self):
        self.assertEqual(self.box.run("sleep 1 & sleep 1 & wait", pids=16).exit_code, 0)
        result = self.box.run("tail /dev/zero", memory="16M")
        self.assertEqual((result.reason, result.oom_killed), ("oom", True))


class SandboxTest(unittest.TestCase):
    def setUp(self):
        self.client = Client()
        self.addCleanup(self.client.close)

    def test_a_life(self):
        with Sandbox.create(name="py-life", labels={"suite": "py"}, ttl=600, idle_timeout=300, client=self.client) as box:
            self.assertEqual([b.id for b in self.client.list(labels={"suite": "py"})], [box.id])
            self.assertEqual(self.client.list(labels={"suite": "other"}), [])
            self.assertEqual((self.client.get("py-life").id, box.name, box.info.idle_timeout), (box.id, "py-life", 300))
            with self.assertRaises(Exists):
                Sandbox.create(name="py-life", client=self.client)
            again = Sandbox.create(
                name="py-life", labels={"suite": "py"}, ttl=600, idle_timeout=300, ensure=True, client=self.client
            )
            self.assertEqual(again.id, box.id)
            self.assertEqual(box.pause().state, "paused")
            with self.assertRaises(Paused):
                box.run("true")
            self.assertEqual(box.resume().state, "running")
            box.update(memory="100M", labels={"more": "1"})
            detail = box.inspect()
            self.assertEqual((detail.limits.memory_bytes, detail.sandbox.labels["more"]), (100 << 20, "1"))
            self.assertEqual((box.stop(0.1).state, box.wait().state), ("exited", "exited"))
        with self.assertRaises(NotFound):
            self.client.get(box.id)

    def test_idle_pause(self):
        with Sandbox.create(idle_timeout=1, on_idle="pause", client=self.client) as box:
            self.assertEqual((box.info.on_idle, box.info.paused_by), ("pause", ""))
            self.assertIsNotNone(box.info.idle_at)
            for _ in range(200):
                if box.inspect().sandbox.paused_by == "idle":
                    break
                time.sleep(0.1)
            self.assertEqual(box.inspect().sandbox.state, "paused")
            self.assertEqual(box.run("echo awake").stdout, "awake\n")
            self.assertEqual(box.update(on_idle="remove").on_idle, "remove")

    def test_refusals(self):
        with self.assertRaises(Limits) as caught:
            Sandbox.create(pids=-1, client=self.client)
        self.assertEqual(caught.exception.class_, "invalid_input")
        with self.assertRaises(caisson.ImageNotFound):
            Sandbox.create("absent", client=self.client)
        with self.assertRaises(caisson.CaissonError):
            Sandbox.create(allow=["not a rule!"], client=self.client)

    def test_a_command_of_its_own(self):
        result = self.client.run("cat; exit 2", input="in", memory="64M", env={"A": "b"})
        self.assertEqual((result.stdout, result.exit_code), ("in", 2))
        self.assertNotIn(result.sandbox.id, [box.id for box in self.client.list()])

    def test_policy(self):
        with Sandbox.create(allow=["github.com"], client=self.client) as box:
            self.assertTrue(box.policy.check("https://github.com").allowed)
            verdict = box.policy.check("https://example.com")
            self.assertEqual((verdict.allowed, verdict.needs), (False, "example.com:443"))
            box.run("wget -q -T 5 -O- http://10.1.2.3/")
            self.assertIn("refused", [attempt.verdict for attempt in box.policy.traffic()])
            self.assertTrue(box.policy.explain())
            box.update(allow=[])
            self.assertFalse(box.policy.check("https://github.com").allowed)

    def test_ports(self):
        with Sandbox.create(publish=["0:8080"], client=self.client) as box:
            (port,) = box.ports
            self.assertEqual((port.address, port.port), ("127.0.0.1", 8080))
            self.assertGreater(port.host_port, 0)

    def test_the_daemon(self):
        self.assertTrue(self.client.version().containerd)
        self.assertTrue(self.client.doctor().checks)
        self.assertIn("base", [image.name for image in self.client.images.list()])
        self.assertEqual(self.client.images.get("base").source, "embedded")
        self.assertGreaterEqual(self.client.info().queued, 0)

    def test_usage_and_events(self):
        box = Sandbox.create(client=self.client, memory="64M")
        self.addCleanup(box.remove)
        box.run("exit 3")
        stats = box.stats()
        self.assertEqual((stats.sandbox_id, stats.memory_limit_bytes, stats.state), (box.id, 64 << 20, "running"))
        self.assertGreater(stats.memory_bytes, 0)
        self.assertGreaterEqual(stats.cpu_percent, 0.0)
        history = box.history()
        self.assertEqual(history.memory_limit_bytes, 64 << 20)
        self.assertEqual([s.time for s in history.samples], sorted(s.time for s in history.samples))
        events = list(self.client.events(filter=[f"sandbox={box.id}"]))
        self.assertEqual(events[0].type, "run.caisson.sandbox.created")
        self.assertGreater(len(events[0].data.stages), 3)
        ended = [e for e in events if e.type == "run.caisson.exec.ended"]
        self.assertEqual([(e.data.exit_code, e.data.exec_id) for e in ended], [(3, "1")])
        self.assertGreater(ended[0].data.duration, 0.0)
        rest = [e.type for e in self.client.events(since=ended[0].id, filter=[f"sandbox={box.id}"])]
        self.assertNotIn("run.caisson.exec.ended", rest)
        with self.assertRaises(CaissonError):
            list(self.client.events(filter=["absent=x"]))


if __name__ == "__main__":
    unittest.main()
