"""Listing 1,000 sessions on disk, against reading them for the same facts (lines and size) in plain
Python.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cpu_timing import measure_cpu
from ctxkit.formats.log_discovery import discover

FILES, LINES = 1_000, 2_000
GOAL_SECONDS = 1.0


def write_logs(home: Path) -> None:
    line = b'{"type":"user","message":{"role":"user","content":"' + b"x" * 80 + b'"}}\n'
    for n in range(FILES):
        folder = home / f".claude/projects/-w-project-{n % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n}.jsonl").write_bytes(line * LINES)


def list_files(home: Path) -> list[tuple[str, int, int]]:
    files = []
    for file in sorted(home.rglob("*.jsonl")):
        with file.open("rb") as lines:
            files.append((str(file), file.stat().st_size, sum(1 for _ in lines)))
    return files


def run() -> list[dict[str, Any]]:
    """Return one row, once both sides agree: equal sizes, line estimates within one per cent."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_logs(home)
        frame, files = discover(home).sort_values("path"), list_files(home)
        assert frame["path"].tolist() == [p for p, _, _ in files]
        assert frame["size_bytes"].tolist() == [s for _, s, _ in files]
        pairs = zip(frame["messages"], (n for _, _, n in files), strict=True)
        assert all(abs(m - n) <= n / 100 for m, n in pairs)
        ours, peer = (
            measure_cpu(lambda: discover(home), warm=True),
            measure_cpu(lambda: list_files(home), 3, warm=True),
        )
    assert ours < GOAL_SECONDS
    return [
        {
            "name": f"discover {FILES:,} sessions",
            "ours": ours,
            "peer": peer,
            "ratio": ours / peer,
            "goal": 1.0,
            "unit": "s CPU; peer: counting the lines of every file",
        }
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
