"""What is made from other files of the repository is up to date."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

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


if __name__ == "__main__":
    unittest.main()
