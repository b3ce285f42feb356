"""Reading files and building call and message frames, against a bare `msgspec.json` decode of the
same bytes.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import msgspec

import ctxkit as ck
from benchmarks.cpu_timing import measure_in_turns

GOAL = 4.0
FORMATS = (
    "pi",
    "claude-code",
    "codex",
    "openai-messages",
    "gemini-cli",
    "opencode",
    "openhands",
    "swe-agent",
    "mini-swe-agent",
    "tau-bench",
    "inspect-ai",
    "atif",
    "langfuse",
    "kimi-cli",
)


def decode_files(files: list[Path]) -> int:
    """Decode each file as JSON: its lines, the whole file or an archive's members.

    Returns the number of values.
    """
    decode = msgspec.json.Decoder().decode
    values_n = 0
    for file in files:
        data = file.read_bytes()
        if file.suffix == ".eval":
            with zipfile.ZipFile(file) as archive:
                for member in archive.namelist():
                    decode(archive.read(member))
                    values_n += 1
        elif file.suffix == ".jsonl":
            for line in data.split(b"\n"):
                try:
                    decode(line)
                    values_n += 1
                except msgspec.DecodeError:
                    pass
        else:
            decode(data)
            values_n += 1
    return values_n


def measure_reader(name: str, folder: Path) -> dict[str, Any]:
    files = sorted(
        f for f in folder.rglob("*") if f.suffix in {".jsonl", ".json", ".traj", ".eval"}
    )

    def read_and_frame() -> Any:
        sessions = ck.read_all(folder, progress=False)
        return sessions, ck.frame(sessions, per="call"), ck.frame(sessions, per="message")

    sessions, calls, messages = read_and_frame()
    assert not sessions.failures
    assert len(calls) == sum(len(s.calls) for s in sessions) > 0
    assert len(messages) == sum(len(s.messages) for s in sessions)
    our_seconds, peer_seconds = measure_in_turns(read_and_frame, lambda: decode_files(files))
    return {
        "name": f"read_all and frames: {name}",
        "ours": our_seconds,
        "peer": peer_seconds,
        "ratio": our_seconds / peer_seconds,
        "goal": GOAL,
        "unit": "s CPU; peer: msgspec.json decode of the same bytes",
    }


def run() -> list[dict[str, Any]]:
    """Return one row per format and one for all; none where there are no real sessions."""
    root = Path(os.environ.get("CTXKIT_SESSIONS", "/nonexistent"))
    rows = [measure_reader(name, root / name) for name in FORMATS if (root / name).is_dir()]
    if rows:
        ours, peer = sum(r["ours"] for r in rows), sum(r["peer"] for r in rows)
        rows.append(
            {
                **rows[0],
                "name": "read_all and frames: all of these",
                "ours": ours,
                "peer": peer,
                "ratio": ours / peer,
            }
        )
    return rows


if __name__ == "__main__":
    for r in run():
        print(
            f"{r['name']:45} {r['ours']:.4f} / {r['peer']:.4f} = {r['ratio']:.2f} (goal"
            f" {r['goal']}) {r['unit']}"
        )
