"""The errors of the package.

A call that fails raises a CaissonError. Its class says the code: codes.py has one for
each. A command that fails is no error, unless you ask for it with check=True.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .types import Result


class CaissonError(Exception):
    """A call that was refused or failed.

    code is stable, such as "SBX-107". class_ says who can act on it, remedy what to do.
    retryable says whether the same call may succeed later. status is that of HTTP, and 0
    if the daemon was not reached.
    """

    code: str = ""
    class_: str = ""
    remedy: str = ""
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        class_: str = "",
        cause: str = "",
        remedy: str = "",
        retryable: Optional[bool] = None,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.status = status
        self.code = code or self.code
        self.class_ = class_ or self.class_
        self.remedy = remedy or self.remedy
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        text = f"{self.message}: {self.cause}" if self.cause else self.message
        return f"{text} [{self.code}] ({self.remedy})" if self.remedy else f"{text} [{self.code}]"


class CommandFailed(Exception):
    """A command that was run with check=True did not exit with 0."""

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        last = self.result.stderr.strip().rsplit("\n", 1)[-1]
        text = f"the command ended with exit code {self.result.exit_code} ({self.result.reason})"
        return f"{text}: {last}" if last else text
