"""A session of an agent: a workspace, a few steps, and what came of them.

    python3 agent.py
"""

import tempfile

from caisson import CommandFailed, Sandbox

STEPS = [
    "printf 'def double(x):\\n    return 2 * x\\n' > double.txt",
    "wc -l double.txt",
    "grep -c return double.txt",
    "cat absent.txt",
]


def main() -> None:
    with tempfile.TemporaryDirectory() as out:
        with Sandbox.create(memory="256M", pids=64, ttl=600, labels={"example": "agent"}) as box:
            box.files.mkdir("/tmp/work")
            for step in STEPS:
                try:
                    result = box.run(step, workdir="/tmp/work", timeout=30, check=True)
                    print(f"$ {step}\n{result.stdout}", end="")
                except CommandFailed as e:
                    print(f"$ {step}\n{e}")
            copied = box.files.copy_out("/tmp/work", out)
            print(f"{copied.entries} entries with {copied.bytes} bytes")


if __name__ == "__main__":
    main()
