"""Writes caisson/codes.py: one exception class for each row of api/sbxerr/table.go.

    python3 sdk/python/tools/codes.py . > sdk/python/caisson/codes.py

The argument is the root of the repository. A row that cannot be read is an error.
"""

import pathlib
import re
import sys
import textwrap

HEAD = '''"""One exception class for each error code. Made by tools/codes.py; do not edit."""

from typing import Dict, Type

from .errors import CaissonError
'''

TAIL = """
BY_CODE: Dict[str, Type[CaissonError]] = {c.code: c for c in CaissonError.__subclasses__()}"""

CONST = re.compile(r'^\t(\w+)\s+Code = "(SBX-\d+)"', re.M)
ROW = re.compile(r'^\t\{(\w+), "((?:[^"\\]|\\.)*)", Class\w+, \d+, (?:true|false), ".*"\},$', re.M)


def main(root: pathlib.Path) -> None:
    codes = dict(CONST.findall((root / "api/sbxerr/codes.go").read_text()))
    rows = ROW.findall((root / "api/sbxerr/table.go").read_text())
    unread = set(codes) ^ {name for name, _ in rows}
    if unread:
        sys.exit(f"codes.go and table.go differ, or were not understood: {sorted(unread)}")
    print(HEAD)
    for name, summary in rows:
        print(f"\nclass {name}(CaissonError):")
        doc = textwrap.wrap(f'"""{codes[name]}: {summary}."""', 96)
        print("\n".join(f"    {line}" for line in doc))
        print(f'\n    code = "{codes[name]}"\n')
    print(TAIL)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
