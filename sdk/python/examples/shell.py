"""A shell with a terminal, driven by a program.

    python3 shell.py
"""

from caisson import Output, Sandbox


def main() -> None:
    with Sandbox.create() as box:
        shell = box.start(["sh"], tty=(40, 120), env={"PS1": "> "})
        shell.send("stty size\n")
        shell.send("echo the answer is $((6 * 7))\n")
        shell.send("exit 7\n")
        for event in shell.events():
            if isinstance(event, Output):
                print(event.text, end="")
        print(f"\nended with {shell.wait().exit_code}")


if __name__ == "__main__":
    main()
