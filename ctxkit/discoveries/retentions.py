"""For how long a tool keeps a session: its settings where they say it, else its own default."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import json5

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 1 << 20
_AGE = re.compile(r"(\d{1,6})([hdwm])")
_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}
_CLAUDE = 30.0
"""Days without a change after which Claude Code deletes a session (`cleanupPeriodDays`)."""


def kept_days(tool: str, top: Path) -> float | None:
    """Return the days after the last change; None where the tool keeps sessions for good, or says
    nothing.

    Args:
        tool: its name, as `Place` has it.
        top: the folder of its sessions; its settings lie above.
    """
    if tool == "claude-code":
        days = _settings(top.parent / "settings.json").get("cleanupPeriodDays")
        return float(days) if isinstance(days, (int, float)) and 0 <= days < 1e6 else _CLAUDE
    if tool == "gemini-cli":
        about = _settings(top.parent / "settings.json").get("general")
        kept = about.get("sessionRetention") if isinstance(about, dict) else None
        return _gemini(kept if isinstance(kept, dict) else {})
    return None


def _gemini(kept: dict[str, Any]) -> float | None:
    """Off unless `sessionRetention.enabled` is true (`docs/cli/session-management.md`)."""
    if kept.get("enabled") is not True:
        return None
    age = kept.get("maxAge")
    found = _AGE.fullmatch(age) if isinstance(age, str) else None
    return int(found[1]) * _DAYS[found[2]] if found else None


def _settings(file: Path) -> dict[str, Any]:
    """Return a settings file, which may have comments; an empty one where it cannot be read."""
    try:
        if file.stat().st_size > _MOST:
            return {}
        found = json5.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
