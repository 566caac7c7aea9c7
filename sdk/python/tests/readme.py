"""Runs the Python blocks of a page, each as a program of its own.

    python3 readme.py PAGE COUNT
"""

import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def main() -> None:
    text = pathlib.Path(sys.argv[1]).read_text()
    blocks = BLOCK.findall(text)
    if len(blocks) != int(sys.argv[2]):
        sys.exit(f"{len(blocks)} blocks, want {sys.argv[2]}")
    for block in blocks:
        done = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True)
        if done.returncode or done.stderr:
            sys.exit(f"{block}\n{done.stdout}{done.stderr}")
        print(done.stdout)


if __name__ == "__main__":
    main()
