"""Exit codes: what tells of a failed command where a format has no mark for it."""

from __future__ import annotations

import re

_HEAD = 400
_SAID = re.compile(
    r"\A\s*<returncode>\s*(-?\d+)|^Exit code: (-?\d+)\s*$|^Process exited with code (-?\d+)\s*$"
    r"|\A(?:exec_command )?failed in sandbox .*?exit code: (-?\d+)",
    re.MULTILINE,
)
"""How mini-SWE-agent and Codex (its shell, its unified shell, its sandbox) head an output."""


def exit_code(output: str) -> int | None:
    """Return the exit code that heads the output of a command; None where none does."""
    found = _SAID.search(output[:_HEAD])
    return None if found is None else int(next(g for g in found.groups() if g is not None))


def is_failure(code: object) -> bool:
    """Say whether an exit code is one of a failure."""
    return type(code) is int and code != 0
