"""Signals in an agent's own reply: a keyword alone on a line, or at the beginning of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_MARKS = str.maketrans("", "", "*_")


def said(text: str, signals: Iterable[str]) -> tuple[str, ...]:
    """Return the signals that a reply gives, in the order in which they are asked for.

    A signal stands alone on its line, or begins it and is followed by a blank or a sign
    (fuseraft's rule, with `*` and `_` left out; upper and lower case alike). Inside a fence of
    code, on a line that is quoted (`>`), indented as code, or in quotes, it is somebody else's.
    """
    lines = [line.translate(_MARKS).strip().casefold() for line in _own(text)]
    found = []
    for signal in signals:
        wanted = signal.translate(_MARKS).strip().casefold()
        if wanted and any(_begins(line, wanted) for line in lines):
            found.append(signal)
    return _longest(found)


def _begins(line: str, wanted: str) -> bool:
    rest = line[len(wanted) :]
    return line.startswith(wanted) and not rest[:1].isalnum() and not rest.startswith("-")


def _own(text: str) -> Iterable[str]:
    """Yield the lines that are the speaker's own words."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            if (
                mark
                and mark[1][0] == fence[0]
                and len(mark[1]) >= len(fence)
                and not line.strip(mark[1][0] + " \t")
            ):
                fence = ""
        elif mark:
            fence = mark[1]
        elif not line.lstrip().startswith(">") and not line.startswith(("    ", "\t")):
            yield line


def _longest(found: list[str]) -> tuple[str, ...]:
    """Leave out what only begins another signal that was given: `DONE` of `DONE WITH BUGS`."""
    low = {s: s.casefold() for s in found}
    return tuple(s for s in found if not any(o != s and low[o].startswith(low[s]) for o in found))
