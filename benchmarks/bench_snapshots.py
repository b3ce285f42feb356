"""Snapshot logs: first load, opening again and after 1,000 new lines, against
`pandas.read_json(lines=True)`.

    python benchmarks/bench_snapshots.py [lines]

Each loader runs in its own process; imports are not counted. Figures are CPU seconds, medians of
rounds in which both loaders take turns. Equality of every column is asserted first.
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


def write_logs(folder: Path, lines_n: int, files_n: int) -> None:
    """Write one log of all lines, and the same lines as a folder of many logs."""
    from ctxkit.formats.snapshots.token_log_writer import encode_snapshot

    rng = random.Random(1)
    (folder / "many").mkdir()
    (folder / "one").mkdir()
    with (folder / "one" / "ctx_snapshots.jsonl").open("w") as log:
        for file_number in range(files_n):
            session, agent_tokens, lines_of_file = (
                f"{rng.getrandbits(32):08x}",
                dict.fromkeys(AGENTS, 0),
                [],
            )
            for turn in range(lines_n // files_n):
                is_compaction = turn % 40 == 39
                agent = "system" if is_compaction else AGENTS[turn % 5 if turn % 7 else 0]
                input_tokens = 0 if is_compaction else rng.randrange(2000, 90_000)
                agent_tokens = (
                    dict.fromkeys(AGENTS, 0)
                    if is_compaction
                    else {**agent_tokens, agent: agent_tokens[agent] + input_tokens}
                )
                row = {
                    "ts": (
                        f"2026-11-{1 + turn % 28:02d}T{turn % 24:02d}:{turn % 60:02d}:00."
                        f"{rng.randrange(10**7):07d}+00:00"
                    ),
                    "session": session,
                    "agent": agent,
                    "turn": turn,
                    "turn_input_tokens": input_tokens,
                    "turn_output_tokens": 0 if is_compaction else rng.randrange(20, 1800),
                    "cumulative_input_tokens": 0 if is_compaction else agent_tokens[agent],
                }
                other_fields = (
                    {"compaction_occurred": True}
                    if is_compaction
                    else {"warn_at": 60_000, "cutover_at": 100_000}
                )
                row["ts"] = row["ts"].replace(
                    "+", "\\u002B"
                )  # `line` parses times: slow for so many
                lines_of_file.append(
                    json.dumps({**row, **other_fields}, separators=(",", ":")).replace(
                        "\\\\u002B", "\\u002B"
                    )
                    + "\n"
                )
            log.writelines(lines_of_file)
            (folder / "many" / f"ctx_snapshots_{file_number:05d}.jsonl").write_text(
                "".join(lines_of_file)
            )
    first = json.loads(lines_of_file[0])
    assert encode_snapshot(first) + "\n" == lines_of_file[0]


def read_with_pandas(path: Path):
    import pandas as pd

    files = sorted(path.iterdir())
    frames = [pd.read_json(f, lines=True, dtype={"session": str}) for f in files]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def read_with_ctxkit(path: Path):
    import ctxkit

    return ctxkit.read_snapshots(path)


def measure_loader(load, path: Path) -> dict:
    with (
        tempfile.TemporaryDirectory() as temporary
    ):  # a first load of a few lines imports all that is needed
        small_log = Path(temporary) / "ctx_snapshots.jsonl"
        with next(path.iterdir()).open() as lines:
            small_log.write_text("".join(next(lines) for _ in range(50)))
        load(small_log.parent)
    memory_before = get_peak_memory()
    start = time.process_time()
    frame = load(path)
    seconds = time.process_time() - start
    memory_used = get_peak_memory() - memory_before
    sums = {name: int(frame[name].sum()) for name in COUNTS}
    texts = [
        frame[name].astype(str).value_counts().sort_index().to_dict()
        for name in ("agent", "session")
    ]
    return {"seconds": seconds, "mb": memory_used, "content": [len(frame), sums, texts]}


def get_peak_memory() -> float:
    """Return the peak memory of this process in MB.

    It is read from Linux' `/proc`, because `getrusage` would count the parent's memory as well.
    """
    status = Path("/proc/self/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
        / 1024
    )


def run_loader(loader: str, path: Path, cache: Path) -> dict:
    env = {**os.environ, "CTXKIT_CACHE_DIR": str(cache)}
    process = subprocess.run(
        [sys.executable, __file__, "load", loader, path],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)


def run(lines: int = LINES) -> list[dict]:
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_logs(folder, lines, max(1, lines * FILES // LINES))
        for shape in ("one", "many"):
            rows += _measure_shape(folder, shape)
    return rows


def _measure_shape(folder: Path, shape: str) -> list[dict]:
    path, cache = folder / shape, folder / "cache"
    runs_by_step: dict[str, list[dict]] = {"peer": [], "first": [], "again": [], "more": []}
    last = max(path.iterdir())
    tail = last.read_text().splitlines(keepends=True)[-1000:]
    for k in range(ROUNDS):
        run_cache = cache / f"{shape}{k}"
        runs_by_step["peer"].append(run_loader("peer", path, run_cache))
        runs_by_step["first"].append(run_loader("ours", path, run_cache))
        runs_by_step["again"] += [run_loader("ours", path, run_cache) for _ in range(2)]
        assert (
            len(
                {
                    json.dumps(runs_by_step[name][-1]["content"], sort_keys=True)
                    for name in ("peer", "first", "again")
                }
            )
            == 1
        )
        size = last.stat().st_size
        with last.open("a") as log:
            log.writelines(tail)
        runs_by_step["more"].append(run_loader("ours", path, run_cache))
        assert runs_by_step["more"][-1]["content"][0] == runs_by_step["first"][-1]["content"][
            0
        ] + len(tail)
        os.truncate(last, size)
    seconds = {
        name: statistics.median(r["seconds"] for r in runs) for name, runs in runs_by_step.items()
    }
    memory = {name: statistics.median(r["mb"] for r in runs) for name, runs in runs_by_step.items()}
    labels = {
        "first": ("first load", 4),
        "again": ("opened again", 1000),
        "more": ("after 1,000 new lines", 300),
    }
    rows = [
        {
            "name": f"snapshots, {shape}: {label}",
            "ours": seconds[k],
            "peer": seconds["peer"],
            "ratio": seconds["peer"] / seconds[k],
            "goal": goal,
            "unit": "CPU s",
        }
        for k, (label, goal) in labels.items()
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
        print(
            json.dumps(
                measure_loader(
                    read_with_pandas if sys.argv[2] == "peer" else read_with_ctxkit,
                    Path(sys.argv[3]),
                )
            )
        )
    else:
        for row in run(*map(int, sys.argv[1:2])):
            figures = (
                f"{row['name']:42s} {row['ours']:10.4f} {row['peer']:10.4f} {row['ratio']:10.2f}"
            )
            print(f"{figures} (goal {row['goal']}) {row['unit']}")
