"""What is made from other files of the repository is up to date."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import typing
import unittest

from caisson import host, types

SDK = pathlib.Path(__file__).resolve().parent.parent
ROOT = SDK.parent.parent


class GeneratedTest(unittest.TestCase):
    def test_codes(self):
        done = subprocess.run([sys.executable, SDK / "tools/codes.py", ROOT], check=True, capture_output=True, text=True)
        self.assertEqual(done.stdout, (SDK / "caisson/codes.py").read_text(), "run make generate")
        documented = re.findall(r"^\| (SBX-\d+) ", (ROOT / "docs/reference/errors.md").read_text(), re.M)
        self.assertEqual(re.findall(r'code = "(SBX-\d+)"', done.stdout), documented)

    def test_twins(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([sys.executable, SDK / "tools/unasync.py", SDK / "caisson/_async", out], check=True)
            made = sorted(pathlib.Path(out).glob("*.py"))
            self.assertGreater(len(made), 5)
            for file in made:
                self.assertEqual(file.read_text(), (SDK / "caisson/_sync" / file.name).read_text(), "run make generate")
                self.assertIsNone(re.search(r"\b(async|await|asyncio)\b", file.read_text().split("\n", 1)[1]), file)

    def test_values(self):
        """A string with a closed set of values has them in its type, and no other string has."""
        named = {
            "SandboxInfo": "Sandbox", "ProcessInfo": "Exec", "Verdict": "CheckPolicyResponse", "Attempt": "TrafficResponse",
            "Check": "DoctorCheck", "History": "HistoryResponse",
        }
        document = json.loads((ROOT / "api/openapi/openapi.json").read_text())
        compared = 0
        for kind in [*vars(types).values(), *vars(host).values()]:
            schema = document["components"]["schemas"].get(named.get(getattr(kind, "__name__", ""), getattr(kind, "__name__", "")))
            if not dataclasses.is_dataclass(kind) or schema is None or kind is types.Output:  # of both streams
                continue
            for name, hint in typing.get_type_hints(kind).items():
                if name not in schema["properties"]:
                    continue
                field = schema["properties"][name]
                values = field.get("items", field).get("enum", [])
                hint = typing.get_args(hint)[0] if typing.get_origin(hint) is list else hint
                have = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
                self.assertEqual(set(have), set(values) - {""}, f"{kind.__name__}.{name}")
                compared += len(have) > 0
        self.assertGreater(compared, 20)


if __name__ == "__main__":
    unittest.main()
