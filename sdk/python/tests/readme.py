"""Runs the Python blocks of the README, each as a program of its own."""

import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def main() -> None:
    text = pathlib.Path(sys.argv[1]).read_text()
    blocks = BLOCK.findall(text)
    if len(blocks) < 6:
        sys.exit(f"only {len(blocks)} blocks")
    for block in blocks:
        done = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True)
        if done.returncode or done.stderr:
            sys.exit(f"{block}\n{done.stdout}{done.stderr}")
        print(done.stdout)


if __name__ == "__main__":
    main()
