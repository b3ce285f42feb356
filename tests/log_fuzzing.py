"""Damaged logs taken through the kit: read, report, frames, replay, charts, scores and every writer.

`python tests/log_fuzzing.py --count 500` runs them, continues at every failure and prints each distinct one: by the type of
its error and the innermost line of the kit. The seed and its number alone make a mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from contextlib import contextmanager, suppress
from functools import cache
from inspect import isfunction, signature
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from ipywidgets import Widget

import ctxkit as ck
from ctxkit.formats import WRITE_FORMATS as WRITERS
from ctxkit.formats import Source, find_unread_logs, get_reader, read_source
from ctxkit.metrics import FRAME_COLUMNS
from ctxkit.presets import names, preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ctxkit.session import Session

sys.path[:0] = [str(Path(__file__).parent)] * (__name__ == "__main__")

import real_logs  # noqa: E402
from log_damage import KINDS  # noqa: E402


def _takes_a_session(public: Any) -> bool:
    """Say whether a session alone is enough for a function."""
    if not isfunction(public):
        return False
    first, *more = signature(public).parameters.values()
    optional = all(p.default is not p.empty or p.kind == p.VAR_KEYWORD for p in more)
    return first.name in ("session", "of") and optional


GOLDEN = Path(__file__).parent / "formats/golden"
FOLDERS = {
    "openhands": "openhands/sdk-conversation-cd945624",
    "claude-code": "claude-code/session-share",
}
"""Real logs of several files."""
SEED_OF_ALL = "all"
"""The seed of the mutants of `make test-all`."""
MOST_SECONDS, MOST_BYTES, KIT_BYTES = 20, 700 << 20, 300 << 20
"""What a mutant may take: of a processor, and of memory beside what the kit and its libraries take once all are used."""
SMALL_WINDOWS = (6_000, 30_000)
"""Tokens of the window of the second preset: logs that are cut short still fill it."""
LARGE_EXPORT = 16 << 20
"""Bytes above which what was written is not read again: spans hold each prompt whole, of a long log 200 MB."""
SHORT, WHOLE, COMPACTED = 120_000, 0.05, 0.3
"""Bytes to which a log is cut, the share of mutants that are of the whole log, and of those of logs with a
compaction."""
GIVEN = {
    "frontier": lambda s: ck.sweep(s, ["pi", "codex"], loss=True),
    "heatmap": lambda s: ck.sweep(s, ck.grid("pi", reserve_tokens=[9_000, 20_000])),
    "views": lambda s: ck.compare(s, "views"),
}
"""What is given to the charts that take no session."""
SETTINGS = {"heatmap": ("rules", "session")}
PER = tuple(FRAME_COLUMNS)
COUNTS = (None, "exact", "anchored")
APART = ("frame", "report", "score", "compare", "watch")
"""What takes a session and is done with each, or works for seconds."""
OTHERS = tuple(n for n in ck.__all__ if n not in APART and _takes_a_session(getattr(ck, n)))
"""What else of the kit takes a session alone, by its signature: frames, metrics, widgets."""


class TooSlow(BaseException):
    """Raised where a mutant takes more of a processor than it may: nothing in the kit catches it."""


class LogBase(msgspec.Struct, frozen=True, eq=False):
    """A whole log, to be damaged: its files by their names, which are one in most formats."""

    format: str
    files: dict[str, bytes]
    archive: str = ""
    """Name of the archive in which the files stand, if in one."""


class Failure(NamedTuple):
    """What a mutant must not do."""

    error: str
    place: str
    """The innermost line of the kit."""
    step: str
    trace: str


class Findings:
    """The result of a run: each distinct failure with the mutants that show it, and what was taken."""

    def __init__(self) -> None:
        self.failures: dict[tuple[str, str], tuple[Failure, list[int]]] = {}
        self.steps = Counter[str]()
        self.run = self.read = 0
        self.slowest = self.largest = (0.0, -1)

    def add(self, number: int, failures: Iterable[Failure]) -> None:
        """Note the failures of a mutant."""
        for f in failures:
            self.failures.setdefault((f.error.split(":")[0], f.place), (f, []))[1].append(number)

    def __str__(self) -> str:
        head = (
            f"{self.run} mutants, {self.read} read, {len(self.failures)} distinct failures; slowest"
            f" {self.slowest[0]:.1f} s (mutant {self.slowest[1]}), most memory {self.largest[0] / 2**20:.0f} MB"
            f" (mutant {self.largest[1]})"
        )
        most = sorted(self.failures.values(), key=lambda each: -len(each[1]))
        return "\n\n".join(
            [
                head,
                *(
                    f"{len(ns)} times, first mutants {ns[:3]}, in {f.step}: {f.error[:300]} at {f.place}\n{f.trace}"
                    for f, ns in most
                ),
            ]
        )


@cache
def bases() -> tuple[LogBase, ...]:
    """Return the logs that are damaged: shipped and golden samples, and real logs where there are some."""
    out = [
        LogBase("native", {f"{p.stem.split('.')[0]}.jsonl": Source(p).data})
        for p in ck.samples.paths()
    ]
    out += [_log(p.name.split(".")[0], p) for p in sorted(GOLDEN.iterdir())]
    real = real_logs.sessions_folder()
    if real is not None:
        rows = [row for row in real_logs.rows() if FOLDERS["openhands"] not in row["file"]]
        out += [_log(real_logs.FORMATS[row["format"]], real / row["file"]) for row in rows]
        out += [_log(name, real / place) for name, place in FOLDERS.items()]
    return tuple(out)


def _log(format: str, place: Path) -> LogBase:
    """Return a log of a file, of a folder, or of an archive."""
    if place.suffix == ".eval":
        with zipfile.ZipFile(place) as archive:
            return LogBase(format, {n: archive.read(n) for n in archive.namelist()}, place.name)
    files = [place] if place.is_file() else sorted(place.rglob("*.json*"))
    return LogBase(
        format, {str(p.relative_to(place)) if p != place else p.name: p.read_bytes() for p in files}
    )


@cache
def shortened(base: LogBase) -> LogBase:
    """Return a log of which each file is cut to about `SHORT` bytes: first and last lines, or shorter lists."""
    return msgspec.structs.replace(
        base, files={name: _shorter(data) for name, data in base.files.items()}
    )


def _shorter(data: bytes) -> bytes:
    if len(data) <= SHORT:
        return data
    with suppress(ValueError):
        return _shorter_document(json.loads(data))
    lines = data.splitlines(keepends=True)
    head, tail = list[bytes](), list[bytes]()
    for side, rows in ((head, lines[: len(lines) // 2]), (tail, lines[: len(lines) // 2 - 1 : -1])):
        for line in rows:
            if side and sum(map(len, side)) + len(line) > SHORT // 2:
                break
            side.append(line)
    return b"".join([*head, *reversed(tail)])


def _shorter_document(document: Any) -> bytes:
    """Halve the longest list until the document is short enough, or no list is long."""
    while len(data := json.dumps(document).encode()) > SHORT:
        lists, below = [], [document]
        while below:
            one = below.pop()
            if isinstance(one, list):
                lists.append(one)
            below += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        longest = max(lists, key=len, default=[])
        if len(longest) < 3:
            break
        del longest[len(longest) // 2 :]
    return data


@cache
def compacted() -> tuple[LogBase, ...]:
    """Return the logs that have a compaction, also when they are cut short."""
    out = []
    for base in bases():
        with tempfile.TemporaryDirectory() as folder:
            if any(s.edits for s in read(shortened(base), Path(folder))):
                out.append(base)
    return tuple(out)


def mutant(seed: str, number: int) -> LogBase:
    """Return a damaged log."""
    r = random.Random(f"{seed} {number}")
    base = r.choice(compacted() if r.random() < COMPACTED else bases())
    if r.random() >= WHOLE:
        base = shortened(base)
    names = [name for name, data in base.files.items() if data]
    files = dict(base.files)
    for _ in range(r.choice([1, 1, 2, 5])):
        name = r.choice(names)
        files[name] = r.choice(KINDS)(files[name] or b"{}", r)
    return msgspec.structs.replace(base, files=files)


def read(base: LogBase, place: Path) -> list[Session]:
    """Write a log to a folder and read it as its format.

    Raises:
        ReadError: it is no session any more.
        AssertionError: a reader stumbled, and the catalogue had to put its error into a sentence.
    """
    reader = get_reader(base.format)
    if base.archive:
        with zipfile.ZipFile(place / base.archive, "w") as archive:
            for name, data in base.files.items():
                archive.writestr(name, data)
    for name, data in {} if base.archive else base.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    one = base.archive or (next(iter(base.files)) if len(base.files) == 1 else "")
    try:
        logs = find_unread_logs(place / one, reader)
        return [
            s
            for f in logs
            for s in (
                f.read_folder(f.path) if f.read_folder else read_source(Source(f.path), reader)
            )
        ]
    except ck.ReadError as e:
        if e.__cause__ is not None:
            raise AssertionError(f"{type(e.__cause__).__name__} in the reader") from e.__cause__
        raise


def show(shown: Any) -> None:
    """Make all forms in which a notebook shows something; a kernel sends them as JSON."""
    json.dumps(shown._repr_mimebundle_(), allow_nan=False).encode()
    repr(shown).encode()


def use(made: Any) -> None:
    """Read what is streamed, and make the forms that a notebook shows of all else."""
    if isinstance(made, pa.RecordBatchReader):
        made.read_all()
    elif hasattr(made, "_repr_mimebundle_"):
        made._repr_mimebundle_()
    repr(made).encode()
    Widget.close_all()


def show_chart(name: str, of: Any, settings: tuple[Any, ...] = ()) -> None:
    chart = getattr(ck.plots, name)(
        GIVEN[name](of) if name in GIVEN else of, *SETTINGS.get(name, settings)
    )
    show(chart)
    chart.figure()
    chart.to_html().encode()


def steps(session: Session, number: int, place: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what is done with a session, in rotation by the number of its mutant."""
    presets, charts = names(), ck.plots.__all__
    first, second = (presets[n % len(presets)] for n in (number, 7 * number + 3))
    small = (
        {"context_window": SMALL_WINDOWS[number % 2]}
        if "context_window" in signature(getattr(ck.presets, second)).parameters
        else {}
    )
    replays = list[Any]()
    yield "show", lambda: show(session)
    yield "report", lambda: show(ck.report(session))
    yield (
        "frame",
        lambda: ck.frame(session, PER[number % len(PER)], count=COUNTS[number % len(COUNTS)]),
    )
    yield f"replay {first}", lambda: replays.append(ck.replay(session, first))
    yield f"replay {second}", lambda: replays.append(ck.replay(session, preset(second, **small)))
    every = [session, *replays]
    for n, of in enumerate(every):
        chart = charts[(number + 5 * n) % len(charts)]
        yield f"chart {chart}", lambda chart=chart, of=of: show_chart(chart, of)
    yield "tiles", lambda: show_chart("composition", every[-1], (number % 3,))
    yield "last diff", lambda: show_chart("diff", every[-1], (-1,))
    of = every[number % len(every)]
    other = OTHERS[number % len(OTHERS)]
    yield other, lambda: use(getattr(ck, other)(of))
    yield "report of a replay", lambda: show(ck.report(every[-1], None))
    yield "score", lambda: ck.score(of)
    writer = WRITERS[number % len(WRITERS)]
    yield f"write {writer}", lambda: ck.write(of, place / "written", writer)
    if (place / "written").exists() and (place / "written").stat().st_size < LARGE_EXPORT:
        yield f"read {writer}", lambda: ck.read_all(place / "written", progress=False)
    if number % 25 == 0:
        yield "export", lambda: ck.export(of, place / "page.html")
    if number % 25 == 1:
        yield "export a notebook", lambda: ck.export(of, place / "page.ipynb")


def take(base: LogBase, number: int) -> tuple[bool, list[Failure], Counter[str]]:
    """Take a damaged log through the kit; return whether it was read, its failures, and what was done."""
    out, done, sessions = list[Failure](), Counter[str](), list[Any]()

    def attempt(step: str, do: Callable[[], Any]) -> None:
        done[step] += 1
        try:
            do()
        except ck.CtxkitError:
            done[step + ": refused"] += 1
        except TooSlow:
            raise
        except Exception as e:
            out.append(failure(e, step))

    with tempfile.TemporaryDirectory(prefix="ctxkit-mutant-") as folder:
        place = Path(folder)
        (place / "log").mkdir()
        try:
            with limited(MOST_SECONDS):
                attempt("read", lambda: sessions.extend(read(base, place / "log")))
                if sessions:
                    for step, do in steps(sessions[number % len(sessions)], number, place):
                        attempt(step, do)
        except TooSlow as e:
            out.append(failure(e, "all"))
    return bool(sessions), out, done


def failure(error: BaseException, step: str) -> Failure:
    """Return a failure by its error: its sentence without what differs from log to log."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f"{os.sep}ctxkit{os.sep}" in f.filename]
    place = "tests"
    if own:
        file = own[-1].filename.rpartition(f"{os.sep}ctxkit{os.sep}")[2]
        place = f"ctxkit/{file}:{own[-1].lineno} {own[-1].name}"
    trace = "".join(traceback.format_list(frames[-6:]))
    return Failure(f"{type(error).__name__}: {error}", place, step, trace)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Let what is done take only so much time of a processor; other load of the machine does not count."""

    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {seconds} s of a processor")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def most_memory(*, begin: bool = False) -> int:
    """Return the bytes that this process took at most since it was last asked to begin; 0 where none can say."""
    with suppress(OSError):
        if begin:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    return 0


def run(seed: str, numbers: Iterable[int], findings: Findings | None = None) -> Findings:
    """Take mutants through the kit, one after the other; continue at failures and collect them."""
    findings = findings or Findings()
    for number in numbers:
        base = mutant(seed, number)
        before = most_memory(begin=True)
        start = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "The rules .* have a policy without a trigger")
            is_read, failures, done = take(base, number)
        seconds, memory = process_time() - start, most_memory()
        taken = memory - max(before, KIT_BYTES)
        if taken > MOST_BYTES:
            size = f"{taken >> 20} MB"
            failures.append(Failure("MemoryError: too much", base.format, "all", size))
        findings.slowest = max(findings.slowest, (seconds, number))
        findings.largest = max(findings.largest, (memory, number))
        findings.run, findings.read = findings.run + 1, findings.read + is_read
        findings.steps += done
        findings.add(number, failures)
    return findings


def main() -> None:
    """Run mutants and print their failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=SEED_OF_ALL)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument(
        "--log", type=Path, help="a file for the failures so far, after each hundred"
    )
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
    findings = Findings()
    for first in range(asked.first, asked.first + asked.count, 100):
        end = min(first + 100, asked.first + asked.count)
        run(asked.seed, range(first, end), findings)
        if asked.log:
            asked.log.write_text(
                f"to {end}: {findings}\n\n{dict(sorted(findings.steps.items()))}\n"
            )
    sys.stdout.write(f"{findings}\n")
    sys.exit(bool(findings.failures))


if __name__ == "__main__":
    main()
