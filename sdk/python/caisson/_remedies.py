"""Remedies in the words of this package. The daemon's name commands and flags."""

from __future__ import annotations

import re
from typing import Match

from ._options import CALLS, FLAGS, LISTS, OTHERS, SWITCHES

_CALLS = [(re.compile(command), call) for command, call in CALLS]
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?:[ =](\"[^\"]*\"|[^\s;()]*[^\s;(),.:]))?")
_PLACE = re.compile(r"[A-Z][A-Z_]*")  # a word that stands for a value
_VALUE = re.compile(r"\".*\"|.*[.:*/\d].*|allow|open|none|bridge|base|rw")
_BESIDE = "\x00 "


def in_python(remedy: str) -> str:
    """Returns a remedy with calls in place of commands and options in place of flags."""
    for command, call in _CALLS:
        remedy = command.sub(call, remedy)
    remedy = _FLAG.sub(_option, remedy)
    return re.sub(_BESIDE + r"(?=\w+=)", ", ", remedy).replace("\x00", "")


def _option(match: "Match[str]") -> str:
    flag, word = match[1], match[2] or ""
    name = FLAGS.get(flag, flag.replace("-", "_"))
    after = match[0][match.end(1) - match.start() :]
    if name in SWITCHES:
        return f"{name}=True{after}"
    if name not in LISTS and name not in OTHERS and flag not in FLAGS:
        return match[0]  # of another program
    if not _PLACE.fullmatch(word):
        if not _VALUE.fullmatch(word):
            return name + after
        word = word if word[0] == '"' else f'"{word}"'
    return f"{name}=[{word}]\x00" if name in LISTS else f"{name}={word}\x00"
