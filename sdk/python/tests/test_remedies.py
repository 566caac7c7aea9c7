"""Remedies name calls and options of this package, not commands and flags."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

from caisson import _wire
from caisson._remedies import in_python
from caisson.types import SandboxInfo, Verdict

SDK = pathlib.Path(__file__).resolve().parent.parent


class RemediesTest(unittest.TestCase):
    def test_every_remedy_of_the_daemon(self):
        tool = [sys.executable, SDK / "tools/remedies.py", SDK.parent.parent]
        texts = json.loads(subprocess.run(tool, check=True, capture_output=True).stdout)
        self.assertGreater(len(texts), 60)
        for text in texts:
            said = in_python(text + ("NAME" if text.endswith(" ") else ""))
            self.assertIsNone(re.search(r"\bcaisson (?!with )[a-z]|--[a-z]|\x00", said), f"{text!r} becomes {said!r}: see api/openapi/gen/remedies.go")

    def test_words(self):
        for text, want in [
            ("start the sandbox with --network allow --allow a.b:5432,private", 'start the sandbox with network="allow", allow=["a.b:5432,private"]'),
            ("resume it first: caisson resume agent-7", "resume it first: Sandbox.resume()"),
            ("name its destinations: --allow HOST, or --network allow for the rules", 'name its destinations: allow=[HOST], or network="allow" for the rules'),
            ("with a longer --ttl or --idle-timeout", "with a longer ttl or idle_timeout"),
            ("start it with --allow-ech, now", "start it with allow_ech=True, now"),
            ("caisson image pull, import or from-host", "Client.images.pull(), load() or from_host()"),
            ("create it with --rootfs rw, or with --disk for more", 'create it with rootfs="rw", or with disk for more'),
            ("begin with --from SNAPSHOT", "begin with from_=SNAPSHOT"),
            ("or remove that one: caisson snapshot rm one", "or remove that one: Client.snapshots.remove()"),
            ("use another --root, or iptables --version", "use another --root, or iptables --version"),  # of other programs
            ("check the value", "check the value"),
        ]:
            self.assertEqual(in_python(text), want)

    def test_where_it_is_said(self):
        error = {"code": "SBX-114", "message": "caisson resume x", "remedy": "caisson resume x"}
        self.assertEqual(str(_wire.error_of({"error": error})), "caisson resume x [SBX-114] (Sandbox.resume())")
        self.assertEqual(_wire.decode(Verdict, {"remedy": "allow it with --allow a.b"}).remedy, 'allow it with allow=["a.b"]')
        self.assertEqual(_wire.decode(SandboxInfo, {"warnings": ["--replace makes it"]}).warnings, ["replace=True makes it"])


if __name__ == "__main__":
    unittest.main()
