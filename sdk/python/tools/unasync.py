"""Writes the synchronous modules from the asynchronous ones.

    python3 sdk/python/tools/unasync.py sdk/python/caisson/_async OUT

Each module of _async but io.py has a twin in _sync, with await and async taken out.
The two io.py are written by hand and hold all that really differs.
"""

import pathlib
import re
import sys

HEAD = "# Made by tools/unasync.py from _async/{name}; do not edit.\n"

RULES = [
    (re.compile(r"\basync (def|with|for)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bAsyncGenerator\[(.*), None\]"), r"Generator[\1, None, None]"),
    (re.compile(r"\bCoroutine\[Any, Any, (\w+)\]"), r"\1"),
    (re.compile(r"\bAsync([A-Z]\w*)"), r"\1"),
    (re.compile(r"\bStopAsyncIteration\b"), "StopIteration"),
    (re.compile(r"\b__a(enter|exit|iter|next)__"), r"__\1__"),
    (re.compile(r"\baclose\b"), "close"),
]


def main(source: pathlib.Path, out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*.py")):
        if file.name in ("io.py", "__init__.py"):
            continue
        text = file.read_text()
        for pattern, replacement in RULES:
            text = pattern.sub(replacement, text)
        (out / file.name).write_text(HEAD.format(name=file.name) + text)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
