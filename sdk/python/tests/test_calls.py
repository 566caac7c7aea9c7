"""No call of the API lacks a method."""

import contextlib
import io
import json
import pathlib
import re
import tempfile
import unittest

from caisson import Client, Sandbox
from caisson._sync.http import Transport
from caisson._sync.process import Process
from caisson.types import ProcessInfo, SandboxInfo

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
PATHS = json.loads((ROOT / "api/openapi/openapi.json").read_text())["paths"]

# Calls that a method does by another call.
OTHERWISE = {
    "SandboxLogsByGetOutput": "Sandbox.logs uses SandboxLogs",
    "SandboxLogsByGetStdout": "Process.stdout uses ExecAttach: it goes on after a break",
    "SandboxLogsByGetStderr": "Process.stderr uses ExecAttach",
    "ExecStreamInput": "Process.send uses ExecSendInput: it can be sent again",
    "ExecWait": "Process.wait uses ExecAttach: the result has the output",
}


class Stop(Exception):
    """Ends a method when its request is known."""


class Recorder(Transport):
    """Notes requests and sends none."""

    def __init__(self):
        super().__init__("/nowhere", 0)
        self.made = []

    def open(self, request):
        self.made.append((request.method, request.target().partition("?")[0]))
        if self.made[-1] == ("PUT", "/v1/sandboxes/box/dirs/d"):  # copy_in makes the directory first
            return self
        raise Stop

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self):
        return b"{}"


def methods(transport):
    """Returns one call of each method that makes a request."""
    client = Client()
    client.transport = client.images._transport = client.volumes._transport = client.secrets._transport = client.snapshots._transport = client.templates._transport = client.changesets._transport = transport
    box = Sandbox(transport, SandboxInfo(id="box", name="box"))
    job = Process(transport, "box", ProcessInfo(id="job"), own=True)
    images, volumes, snapshots, files, policy = client.images, client.volumes, client.snapshots, box.files, box.policy
    source = tempfile.TemporaryDirectory()
    return source, [
        lambda: client.run("x"), lambda: client.spec("x"), client.list, lambda: next(client.stats()),
        lambda: next(client.events()), lambda: client.get("box"), client.version, client.doctor, client.info, client.usage, client.ping,
        client.capabilities, client.cleanup, client.reload_config, lambda: Sandbox.create(client=client),
        images.list, lambda: images.get("a"), lambda: images.load(io.BytesIO(), "a"), lambda: images.load(io.BytesIO()),
        lambda: images.pull("a"), lambda: images.build("a", "FROM b"), lambda: images.from_host("a", packages=["b"]),
        lambda: images.tag("a", "b"), lambda: next(images.save("a")), images.prune, images.du, lambda: images.remove("a"),
        volumes.list, lambda: volumes.create("v"), lambda: volumes.get("v"), lambda: volumes.remove("v"), volumes.prune,
        client.secrets.list, lambda: client.secrets.set("s", "file:/k"), lambda: client.secrets.remove("s"),
        snapshots.list, lambda: snapshots.get("s"), lambda: snapshots.diff("s", "t"), lambda: snapshots.remove("s"), lambda: next(snapshots.save("s")), lambda: snapshots.load(io.BytesIO(), "s"), lambda: snapshots.load(io.BytesIO()), box.snapshot, box.fork, lambda: box.forward(80), box.diff, box.apply,
        client.templates.list, lambda: client.templates.get("t"), lambda: client.templates.build("t"), lambda: client.templates.remove("t"),
        client.changesets.list, lambda: client.changesets.diff("c"), lambda: client.changesets.apply("c"), lambda: client.changesets.discard("c"),
        lambda: box.run("x"), lambda: box.start("x"), box.processes, lambda: next(box.logs()), box.update, lambda: box.attach_workspace("."), lambda: box.attach_snapshot("s"), box.pause,
        box.resume, box.stop, box.clean, lambda: box.rewind("one"), box.restart, box.wait, box.inspect, box.stats, box.history, box.remove,
        lambda: next(job.events()), job.wait, lambda: job.send("x"), lambda: job.signal("INT"), lambda: job.resize(1, 2),
        lambda: files.read("/f"), lambda: files.write("/f", ""), lambda: files.list("/d"), lambda: files.stat("/f"),
        lambda: files.mkdir("/d"), lambda: files.move("/f", "/g"), lambda: files.remove("/f"), lambda: files.watch("/d"),
        lambda: files.copy_in(source.name, "/d"), lambda: files.copy_out("/d", source.name),
        lambda: policy.check("a"), policy.explain, policy.learned, lambda: next(policy.traffic()),
    ]


class CallsTest(unittest.TestCase):
    def test_every_call_has_a_method(self):
        recorder = Recorder()
        source, calls = methods(recorder)
        with source:
            for call in calls:
                before = len(recorder.made)
                with contextlib.suppress(Stop):
                    call()
                self.assertGreater(len(recorder.made), before)
        lacking = {}
        for path, verbs in PATHS.items():
            pattern = re.compile(re.sub(r"\{\w+\}", ".+" if path.endswith(("{path}", "{name}")) else "[^/]+", path))
            for verb, operation in verbs.items():
                if not any(verb.upper() == method and pattern.fullmatch(made) for method, made in recorder.made):
                    lacking[operation["operationId"]] = path
        self.assertEqual(set(lacking), set(OTHERWISE), lacking)


if __name__ == "__main__":
    unittest.main()
