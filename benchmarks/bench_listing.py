"""Listing a home folder of Claude Code sessions, against ccusage and codeburn from npm.

The corpus is made from real transcripts (`CTXKIT_SESSIONS`): each synthetic session has a size
drawn from a log-normal distribution, the lines of one real transcript up to that size, and its own
ids. `CTXKIT_PEERS` names a folder in which `npm install ccusage codeburn` ran. Each program runs in
its own process over the same home folder; its CPU is that of the process and its children.

    python -m benchmarks.bench_listing HOME    makes the corpus in HOME and prints its size
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cpu_timing import make_bounded_row

SEED = 41
CORPUS_BYTES = 350 << 20
MEDIAN_BYTES, SPREAD = 450_000, 1.5
"""Median of the sizes, and the standard deviation of their logarithms."""
MAX_BYTES = 24 << 20
MANY_BYTES = 80 << 20
"""Size of a corpus of some 10,000 short sessions."""
ROUNDS = 5
_IDS = re.compile(
    rb"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    rb"|(?:msg|req|toolu)_[0-9A-Za-z]{12,40})\b"
)


def make_corpus(
    transcripts: list[Path], home: Path, n_bytes: int = CORPUS_BYTES, median: int = MEDIAN_BYTES
) -> int:
    """Write sessions below `home` until they have `n_bytes`; return how many there are."""
    rng = random.Random(SEED)
    contents = [_read_lines(path) for path in transcripts]
    written = sessions_n = 0
    while written < n_bytes:
        size = min(MAX_BYTES, int(rng.lognormvariate(0, SPREAD) * median), n_bytes - written)
        # a long session repeats a long transcript: a short one would repeat its few lines too often
        large_enough = [c for c in contents if sum(map(len, c)) * 4 >= size] or contents[-1:]
        content = _make_session(rng.choice(large_enough), max(size, 4_000), f"{SEED}-{sessions_n}")
        folder = home / f".claude/projects/-w-project-{sessions_n % 40}"
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(f"{SEED}-{sessions_n}".encode()).hexdigest()
        (folder / f"{_format_uuid(name)}.jsonl").write_bytes(content)
        written, sessions_n = written + len(content), sessions_n + 1
    return sessions_n


def _read_lines(path: Path) -> list[bytes]:
    """Return the lines that are JSON objects, without the comments that a publisher added."""
    return [e for e in path.read_bytes().splitlines(keepends=True) if e.startswith(b"{")]


def _make_session(lines: list[bytes], size: int, name: str) -> bytes:
    """Return the lines of a session up to a size, with one session id.

    Lines are repeated until the size is reached; each pass over them has new ids.
    """
    pieces: list[bytes] = []
    total = passes = 0
    session = _format_uuid(hashlib.sha256(name.encode()).hexdigest()).encode()
    while total < size:
        new_ids: dict[bytes, bytes] = {}

        def replace_id(
            match: re.Match[bytes], new_ids: dict = new_ids, salt: int = passes
        ) -> bytes:
            old = match[0]
            if old not in new_ids:
                digest = hashlib.sha256(b"%d %s %s" % (salt, name.encode(), old)).hexdigest()
                is_uuid = b"_" not in old
                new_ids[old] = (
                    _format_uuid(digest).encode()
                    if is_uuid
                    else old[: old.index(b"_") + 1] + digest[:24].encode()
                )
            return new_ids[old]

        for line in lines:
            if total >= size:
                break
            new_line = re.sub(
                rb'("sessionId":")[^"]+', rb"\g<1>" + session, _IDS.sub(replace_id, line)
            )
            pieces.append(new_line.removesuffix(b"\n") + b"\n")
            total += len(pieces[-1])
        passes += 1
    return b"".join(pieces)


def _format_uuid(digest: str) -> str:
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def find_transcripts() -> list[Path]:
    """Return the real transcripts of whole sessions, the smallest first."""
    folder = Path(os.environ["CTXKIT_SESSIONS"]) / "claude-code"
    files = [f for f in folder.rglob("*.jsonl") if "subagents" not in f.parts]
    return sorted(files, key=lambda f: (f.stat().st_size, f.name))


def measure_process(command: list[str], home: Path) -> tuple[float, str, float]:
    """Return a process's CPU seconds with its children's, what it wrote, and its memory in MB."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / ".state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "NO_COLOR": "1",
        "PATH": os.pathsep.join((str(PEER_PROGRAMS), os.environ["PATH"])),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles the kit again
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {text[-400:]}")
    return usage.ru_utime + usage.ru_stime, text, usage.ru_maxrss / 1024


def _list_sessions(home: Path) -> tuple[float, str, float]:
    return measure_process([sys.executable, "-m", "ctxkit", "list", "--all", "--json"], home)


def _remove_caches(home: Path) -> None:
    for name in (".state", ".cache"):
        shutil.rmtree(home / name, ignore_errors=True)


PEER_PROGRAMS = Path(os.environ.get("CTXKIT_PEERS", "")).absolute() / "node_modules" / ".bin"
CODEBURN_OPTIONS = ("--from", "2025-01-01", "--to", "2030-01-01", "--format", "json")
PEERS = {
    "ccusage": (("session", "--offline", "--json"), 2.5),
    "codeburn": (("report", *CODEBURN_OPTIONS), 1.0),
}
"""Arguments of each peer, and the goal of our CPU over its."""


def run() -> list[dict[str, Any]]:
    """Return one row per peer, and rows for a second listing, memory and many sessions."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sessions_n = make_corpus(find_transcripts(), home)
        rows = _measure_first_listing(home, sessions_n)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        short_sessions_n = make_corpus(find_transcripts()[:2], home, MANY_BYTES, median=2_000)
        _list_sessions(home)
        seconds = statistics.median(_list_sessions(home)[0] for _ in range(ROUNDS))
        return [
            *rows,
            make_bounded_row(
                f"list {short_sessions_n:,} sessions when nothing changed", seconds, 1.0, "s CPU"
            ),
            make_bounded_row(
                "ctxkit, first answer about a log of 5 MB", _measure_first_answer(), 2.0, "s CPU"
            ),
        ]


def _measure_first_answer() -> float:
    """Return the CPU of the first `ctxkit` in a home folder with one session of 5 MB."""
    lines = _read_lines(find_transcripts()[-1])
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / ".claude/projects/-w-project/session.jsonl"
        log.parent.mkdir(parents=True)
        log.write_bytes(_make_session(lines, 5 << 20, "one"))
        seconds = []
        for _ in range(ROUNDS):
            _remove_caches(Path(folder))
            seconds.append(measure_process([sys.executable, "-m", "ctxkit"], Path(folder))[0])
        return statistics.median(seconds)


def _measure_first_listing(home: Path, sessions_n: int) -> list[dict[str, Any]]:
    first_seconds, memory = [], []
    seconds_by_peer: dict[str, list[float]] = {n: [] for n in PEERS if (PEER_PROGRAMS / n).exists()}
    for _ in range(ROUNDS):
        _remove_caches(home)
        seconds, text, megabytes = _list_sessions(home)
        assert len(json.loads(text)) == sessions_n
        first_seconds.append(seconds)
        memory.append(megabytes)
        for name, peer_seconds in seconds_by_peer.items():
            command = [str(PEER_PROGRAMS / name), *PEERS[name][0]]
            peer_seconds.append(measure_process(command, home)[0])
    second_seconds = statistics.median(_list_sessions(home)[0] for _ in range(ROUNDS))
    ours, name = (
        statistics.median(first_seconds),
        f"list {sessions_n} sessions, 350 MB, the first time",
    )
    return [
        *(
            {
                "name": f"{name}, against {peer}",
                "ours": ours,
                "peer": statistics.median(peer_seconds),
                "ratio": ours / statistics.median(peer_seconds),
                "goal": f"<= {PEERS[peer][1]}",
                "unit": "s CPU of processes",
            }
            for peer, peer_seconds in seconds_by_peer.items()
        ),
        make_bounded_row("the same again, when nothing changed", second_seconds, 0.2, "s CPU"),
        make_bounded_row("memory of the first time", max(memory), 150.0, "MB"),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
        print(make_corpus(find_transcripts(), target), "sessions")
    else:
        for row in run():
            print(row)
