"""Snapshot logs: first load, opening again and after 1,000 new lines, against
`pandas.read_json(lines=True)`.

    python benchmarks/bench_snapshots.py [lines]

Each loader runs in a process of its own, imports not counted; CPU seconds, medians of rounds in
which both took turns. Equality of every column is asserted first.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINES, FILES, ROUNDS = 1_000_000, 1000, 2
AGENTS = ("Planner", "Developer", "Reviewer", "Tester", "Researcher")
COUNTS = ("turn", "turn_input_tokens", "turn_output_tokens", "cumulative_input_tokens")


def make(folder: Path, lines: int, files: int) -> None:
    """One log of all lines, and the same lines in a folder of many."""
    from ctxkit.formats.snapshots.log_writer import encode_snapshot

    random_ = random.Random(1)
    (folder / "many").mkdir()
    (folder / "one").mkdir()
    with (folder / "one" / "ctx_snapshots.jsonl").open("w") as one:
        for f in range(files):
            session, sums, out = f"{random_.getrandbits(32):08x}", dict.fromkeys(AGENTS, 0), []
            for i in range(lines // files):
                marker = i % 40 == 39
                agent = "system" if marker else AGENTS[i % 5 if i % 7 else 0]
                spent = 0 if marker else random_.randrange(2000, 90_000)
                sums = dict.fromkeys(AGENTS, 0) if marker else {**sums, agent: sums[agent] + spent}
                row = {
                    "ts": (
                        f"2026-11-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:00."
                        f"{random_.randrange(10**7):07d}+00:00"
                    ),
                    "session": session,
                    "agent": agent,
                    "turn": i,
                    "turn_input_tokens": spent,
                    "turn_output_tokens": 0 if marker else random_.randrange(20, 1800),
                    "cumulative_input_tokens": 0 if marker else sums[agent],
                }
                more = (
                    {"compaction_occurred": True}
                    if marker
                    else {"warn_at": 60_000, "cutover_at": 100_000}
                )
                row["ts"] = row["ts"].replace(
                    "+", "\\u002B"
                )  # `line` parses times: slow for so many
                out.append(
                    json.dumps({**row, **more}, separators=(",", ":")).replace(
                        "\\\\u002B", "\\u002B"
                    )
                    + "\n"
                )
            one.writelines(out)
            (folder / "many" / f"ctx_snapshots_{f:05d}.jsonl").write_text("".join(out))
    first = json.loads(out[0])
    assert encode_snapshot(first) + "\n" == out[0]


def peer(path: Path):
    import pandas as pd

    files = sorted(path.iterdir())
    frames = [pd.read_json(f, lines=True, dtype={"session": str}) for f in files]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def ours(path: Path):
    import ctxkit

    return ctxkit.read_snapshots(path)


def measured(load, path: Path) -> dict:
    with (
        tempfile.TemporaryDirectory() as where
    ):  # imports are not the loader's bill: once on a few lines
        some = Path(where) / "ctx_snapshots.jsonl"
        with next(path.iterdir()).open() as f:
            some.write_text("".join(next(f) for _ in range(50)))
        load(some.parent)
    before = peak()
    start = time.process_time()
    frame = load(path)
    seconds = time.process_time() - start
    used = peak() - before
    sums = {name: int(frame[name].sum()) for name in COUNTS}
    texts = [
        frame[name].astype(str).value_counts().sort_index().to_dict()
        for name in ("agent", "session")
    ]
    return {"seconds": seconds, "mb": used, "content": [len(frame), sums, texts]}


def peak() -> float:
    """The most memory that this process has held, in MB (Linux; `getrusage` would count the
    parent's as well).
    """
    status = Path("/proc/self/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
        / 1024
    )


def in_process(who: str, path: Path, cache: Path) -> dict:
    env = {**os.environ, "CTXKIT_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, __file__, "load", who, path],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def run(lines: int = LINES) -> list[dict]:
    rows = []
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        make(folder, lines, max(1, lines * FILES // LINES))
        for shape in ("one", "many"):
            rows += _shape(folder, shape)
    return rows


def _shape(folder: Path, shape: str) -> list[dict]:
    path, cache = folder / shape, folder / "cache"
    found: dict[str, list[dict]] = {"peer": [], "first": [], "again": [], "more": []}
    last = max(path.iterdir())
    tail = last.read_text().splitlines(keepends=True)[-1000:]
    for k in range(ROUNDS):
        fresh = cache / f"{shape}{k}"
        found["peer"].append(in_process("peer", path, fresh))
        found["first"].append(in_process("ours", path, fresh))
        found["again"] += [in_process("ours", path, fresh) for _ in range(2)]
        assert (
            len(
                {
                    json.dumps(found[name][-1]["content"], sort_keys=True)
                    for name in ("peer", "first", "again")
                }
            )
            == 1
        )
        size = last.stat().st_size
        with last.open("a") as f:
            f.writelines(tail)
        found["more"].append(in_process("ours", path, fresh))
        assert found["more"][-1]["content"][0] == found["first"][-1]["content"][0] + len(tail)
        os.truncate(last, size)
    middle = {name: statistics.median(r["seconds"] for r in runs) for name, runs in found.items()}
    memory = {name: statistics.median(r["mb"] for r in runs) for name, runs in found.items()}
    names = {
        "first": ("first load", 4),
        "again": ("opened again", 1000),
        "more": ("after 1,000 new lines", 300),
    }
    rows = [
        {
            "name": f"snapshots, {shape}: {what}",
            "ours": middle[k],
            "peer": middle["peer"],
            "ratio": middle["peer"] / middle[k],
            "goal": goal,
            "unit": "CPU s",
        }
        for k, (what, goal) in names.items()
    ]
    share = memory["first"] / memory["peer"]
    rows.append(
        {
            "name": f"snapshots, {shape}: peak memory",
            "ours": memory["first"],
            "peer": memory["peer"],
            "ratio": share,
            "goal": 0.35,
            "unit": "MB above the imports, at most",
        }
    )
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        print(json.dumps(measured(peer if sys.argv[2] == "peer" else ours, Path(sys.argv[3]))))
    else:
        for row in run(*map(int, sys.argv[1:2])):
            told = f"{row['name']:42s} {row['ours']:10.4f} {row['peer']:10.4f} {row['ratio']:10.2f}"
            print(f"{told} (goal {row['goal']}) {row['unit']}")
