"""Real files by format, from the manifest beside them; a new format needs only its name in `FORMATS`."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from conftest import sessions_folder

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = {
    "pi": "pi",
    "claude-code": "claude-code",
    "codex": "codex",
    "openai-messages": "openai-responses",
    "gemini-cli": "gemini-cli",
    "opencode": "opencode",
    "tau-bench": "tau-bench",
    "mini-swe-agent": "mini-swe-agent",
    "atif": "atif",
    "aider": "aider",
    "langfuse": "langfuse",
    "inspect-ai": "inspect-ai",
    "openhands": "openhands",
    "swe-agent": "swe-agent",
    "kimi-cli": "kimi-cli",
}
"""The manifest's word for a format, and the name of the reader that must know it."""


def rows() -> list[dict[str, str]]:
    """The manifest's rows of these formats; empty where there are no real files."""
    folder = sessions_folder()
    if folder is None:
        return []
    with (folder / "manifest.csv").open() as f:
        return [row for row in csv.DictReader(f) if row["format"] in FORMATS]


def paths() -> list[str]:
    """All files of these formats, relative to the folder of real sessions."""
    return [row["file"] for row in rows()]


def small(folder: Path, format: str) -> bytes:
    """The bytes of one small real file of a format: the smallest that holds a conversation, long lists cut short."""
    sizes = sorted((int(r["bytes"]), r["file"]) for r in rows() if r["format"] == format)
    file = next((f for n, f in sizes if n > 2000 or f.endswith(".jsonl")), sizes[0][1])
    data = (folder / file).read_bytes()
    if len(data) > 1_000_000 and data[:1] == b"[":
        return json.dumps(json.loads(data)[:2]).encode()
    return data
