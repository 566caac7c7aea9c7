"""Prints as JSON what remedies say, for the tests of both SDKs.

    python3 sdk/python/tools/remedies.py .

They are the strings of the daemon that name a command or a flag, but for those that no
caller of the API is told.
"""

import json
import pathlib
import re
import sys

# Folders whose strings are told to a caller of the API.
TOLD = ["api/sbxerr", "gateway", "rootfs", "runtime", "server", "oci", "seccomp", "netns", "cgroups"]

# What such strings hold of other programs and for operators. One that is nowhere is an error.
NOT_TOLD = [
    "iptables 1.6.2", "iptables --version", "--ctstate", "--mark", "--set-xmark", "--reject-with", "--notrack", "--dst-type",
    "--uid-owner", "--dport",  # rules and their program
    "run %q --version", "dpkg --configure", "without --pid",  # other programs
    "--root, --state", "--bin-dir", "another --state",  # the daemon's own flags
    "diff --git",  # in a patch
    "RUN --%s", "--exclude", "caisson base", "write --checksum=", "of its --mount",  # of Dockerfiles and the base image
    "caisson page", "caisson bundle create", "caisson explain",  # which only the command line has
    "use caisson cp, or a workspace", "give it with --secret",  # messages, not remedies
    "EXPOSE has no effect", "VOLUME has no effect", "hide names in TLS hellos (",
]

NAMED = re.compile(r"\bcaisson (?!with )[a-z]|(?<=[ (])--[a-z]")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals(root: pathlib.Path):
    for folder in TOLD:
        for file in sorted((root / folder).rglob("*.go")):
            if file.name.endswith("_test.go"):
                continue
            for line in file.read_text().splitlines():
                if not line.strip().startswith("//"):
                    yield from (text.replace('\\"', '"') for text in LITERAL.findall(line))


def main(root: pathlib.Path) -> None:
    texts = sorted({text for text in literals(root) if " " in text and NAMED.search(text)})
    unused = [part for part in NOT_TOLD if not any(part in text for text in texts)]
    if unused:
        sys.exit(f"no string of the daemon holds these any more: {unused}")
    told = [text for text in texts if not any(part in text for part in NOT_TOLD)]
    print(json.dumps(told))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
