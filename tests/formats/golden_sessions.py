"""The golden samples and the real logs as they are read, written down to be compared.

`python tests/formats/golden_sessions.py` writes each golden sample whole into `golden_sessions/`, one entry a line, and
of each real log one row of figures into `real_log_figures.json`. A change of a reader is then seen in the diff, field
by field: read it beside the sample before it is committed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from ctxkit.session import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session import Message, Session

FOLDER = Path(__file__).with_suffix("")
FIGURES = Path(__file__).with_name("real_log_figures.json")
SIZES = {"text": "text", "thinking": "text", "image": "data", "tool_call": "arguments"}
"""The field of each kind of part whose length is added up."""


def format_session(session: Session) -> str:
    """Return a session without its place on disk: a line for itself, then one for each entry."""
    header = to_plain(session)
    entries = header.pop("log", [])
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in [header, *entries]) + "\n"


def to_plain(session: Session) -> dict[str, Any]:
    """Return a session as JSON values, without the places on disk of it and its subagents."""
    out: dict[str, Any] = msgspec.to_builtins(session)
    remaining = [out]
    while remaining:
        each = remaining.pop()
        each.pop("path_", None)
        remaining += each.get("children", [])
    return out


def count_figures(sessions: Iterable[Session]) -> dict[str, Any]:
    """Return the sums of what a log says, and a check sum of every field of all its sessions."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    check_sums: Counter[str] = Counter()
    for session in _walk(sessions):
        sums["sessions"][session.format] += 1
        header = {k: v for k, v in to_plain(session).items() if k not in {"log", "children"}}
        _add_check_sums(check_sums, "session", header)
        for entry in session.log:
            if isinstance(entry, Edit):
                sums["edits"][entry.kind] += 1
                _add_check_sums(check_sums, "edit", msgspec.to_builtins(entry))
            else:
                _add_message(sums, entry)
                _add_check_sums(check_sums, "message", msgspec.to_builtins(entry))
    return {
        **{name: dict(sorted(counts.items())) for name, counts in sorted(sums.items())},
        "check sums": {name: f"{n:08x}" for name, n in sorted(check_sums.items())},
    }


def _walk(sessions: Iterable[Session]) -> Iterator[Session]:
    for session in sessions:
        yield session
        yield from _walk(session.children)


def _add_message(sums: dict[str, Counter[str]], message: Message) -> None:
    sums["messages"][message.role] += 1
    for part in msgspec.to_builtins(message.parts):
        sums["parts"][part["type"]] += 1
        size = len(str(part.get(SIZES.get(part["type"], ""), "")))
        sums["characters"][part["type"]] += size
    if message.usage is not None:
        used = msgspec.to_builtins(message.usage)
        sums["usage"].update({k: round(v, 6) for k, v in used.items() if v is not None})


def _add_check_sums(check_sums: Counter[str], owner: str, fields: dict[str, Any]) -> None:
    """Add one number for each field: the same for the same values in the same order."""
    for name, value in fields.items():
        key = f"{owner}.{name}"
        check_sums[key] = crc32(json.dumps(value).encode(), check_sums[key])


def main() -> None:
    """Write what the readers give now."""
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    from conftest import sessions_folder
    from real_logs import paths
    from test_golden import SAMPLES

    from ctxkit.formats import Source, read, read_source

    FOLDER.mkdir(exist_ok=True)
    for name, sample in SAMPLES.items():
        (FOLDER / f"{name}.jsonl").write_text(format_session(read(sample)), encoding="utf-8")
    if folder := sessions_folder():
        figures = {file: count_figures(read_source(Source(folder / file))) for file in paths()}
        lines = ",\n".join(f"{json.dumps(f)}: {json.dumps(row)}" for f, row in figures.items())
        FIGURES.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
