"""Sizes that no window holds: whatever a log claims, reading it costs what its bytes cost."""

from __future__ import annotations

import re
import resource
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from formats.test_golden import SAMPLES
from truth.claude_code_transcripts import MODEL, Transcript, said

import ctxkit as ck
from ctxkit.formats import impossible_size_removal
from ctxkit.formats import zero_usage_and_lost_start_repairs as recording_errors
from ctxkit.formats.impossible_size_removal import drop_impossible_sizes
from ctxkit.session import MISSING_START_KIND, Edit, Message, Session, SizeOnly, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Part

KEYED = re.compile(
    rb"""((?:token|input|output|cache|read|write|prompt|completion|reason|total|chars|window)[\w.]*
    \\*"\s*[:,]\s*(?:"value":\s*\{"intValue":\s*")?)(\d+)(?![\d.])""",
    re.IGNORECASE | re.VERBOSE,
)
"""A figure behind a key that names sizes, also of a JSON text in JSON and of OTLP's attributes."""
SPOKEN = re.compile(
    rb"()(?<![\w.,])(\d[\d.,]*)(?=[kM]? (?:sent|received|fresh|cached|out|characters|tokens|\xe2))"
)
"""A figure before a word for what it counts."""
FACTORS = (10**6, 10**9, 10**12)
CLAIMED = "windows of its model"
MEMORY, SECONDS = 256 << 20, 2.0
"""What reading a few kilobytes may take, whatever they claim."""
LIMIT = impossible_size_removal.MAX_WINDOWS * 2_000_000
"""Tokens that a model may claim whose window nobody knows."""


def multiplied(data: bytes, factor: int) -> bytes:
    def times(figure: re.Match[bytes]) -> bytes:
        return figure[1] + b"%d" % (float(figure[2].replace(b",", b"")) * factor)

    return SPOKEN.sub(times, KEYED.sub(times, data))


def headless(data: bytes, factor: int) -> bytes:
    """A file whose first line is gone, and whose first half alone claims too much."""
    lines = data.split(b"\n")[1:]
    half = len(lines) // 2
    return b"\n".join([multiplied(b"\n".join(lines[:half]), factor), *lines[half:]])


def copied(sample: Path, folder: Path, factor: int, change=multiplied) -> Path:
    """Write a sample again with its figures multiplied; a database in its columns."""
    copy = folder / sample.name
    if sample.is_dir():
        shutil.copytree(sample, copy)
    else:
        shutil.copy(sample, copy)
    for file in [copy] if copy.is_file() else sorted(p for p in copy.rglob("*") if p.is_file()):
        if file.suffix == ".db":
            with closing(sqlite3.connect(file)) as db, db:
                db.execute(f"UPDATE sessions SET prompt_tokens = prompt_tokens * {factor}")
                db.execute(f"UPDATE sessions SET completion_tokens = completion_tokens * {factor}")
        else:
            file.write_bytes(change(file.read_bytes(), factor))
    return copy


@contextmanager
def bounded() -> Iterator[None]:
    """Let a reading take so much memory and no more, and hold it to its time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm").read_text()  # what is mapped now, in pages
    mapped = int(statm.split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, hard))
    begun = time.thread_time()
    try:
        yield
        assert time.thread_time() - begun < SECONDS
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def figures(session: Session) -> Iterator[tuple[int, str]]:
    """Yield every size that a session holds, with the kind of its message."""
    for entry in session.log:
        edit = isinstance(entry, Edit)
        for m in (*entry.inserted, entry) if edit else (entry,):
            if m.usage is not None:
                yield m.usage.prompt_tokens or 0, getattr(m, "kind", "")
                yield m.usage.output_tokens or 0, getattr(m, "kind", "")
            yield from ((p.tokens or 0, "") for p in getattr(m, "parts", ()) if type(p) is SizeOnly)
        if edit:
            yield from ((n or 0, "") for n in (entry.tokens_before, entry.tokens_after))


def check_sizes(sessions: list[Session]) -> None:
    for s in sessions:
        for size, kind in figures(s):
            assert size <= LIMIT * (
                impossible_size_removal.MAX_CALLS_PER_TURN if kind == "turn" else 1
            )
        assert (
            sum(m.kind == MISSING_START_KIND for m in s.messages)
            <= recording_errors._MAX_PLACEHOLDERS
        )


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_that_claims_too_much_is_read_in_bounds(name: str, factor: int, tmp_path: Path):
    before = ck.read(SAMPLES[name])
    path = copied(SAMPLES[name], tmp_path, factor)
    with bounded():
        session = ck.read(path)
    check_sizes([session])
    assert len(session.log) == len(before.log)
    if before.has_usage and factor > 10**6:  # the bill of a turn may hold a thousand calls
        assert not session.has_usage
        calls = [m for m in before.messages if m.usage is not None]
        assert sum(CLAIMED in f.why for f in session.faults) >= len(calls)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", sorted(n for n, p in SAMPLES.items() if p.suffix == ".jsonl"))
def test_a_sample_without_its_beginning_is_read_in_bounds(name: str, factor: int, tmp_path: Path):
    path = copied(SAMPLES[name], tmp_path, factor, headless)
    with bounded():
        sessions = list(ck.read_all(path, progress=False))
    check_sizes(sessions)


@pytest.mark.parametrize("claimed", [19 * 10**6, 10**10, 10**11])
def test_a_lost_beginning_is_a_bounded_number_of_messages(claimed: int):
    t = Transcript("elsewhere")
    t.ask("go on")
    t.reply("a", claimed, 60, said("word"), stop="end_turn", read=11_000)
    t.ask("more")
    t.reply("b", 30_000, 60, said("word"), stop="end_turn", read=11_000)
    with bounded():
        session = t.read()
    lost = [m for m in session.messages if m.kind == MISSING_START_KIND]
    sizes = [p.tokens for m in lost for p in m.parts if isinstance(p, SizeOnly)]
    believed = claimed < 20 * 10**6  # the table gives the model 200,000
    assert len(lost) == (recording_errors._MAX_PLACEHOLDERS if believed else 0)
    assert sum(sizes) == pytest.approx(claimed - 30_000 if believed else 0, abs=100)
    assert [CLAIMED in f.why for f in session.faults] == ([] if believed else [True])


def test_ids_of_lost_messages_are_found_in_time_that_grows_with_the_file():
    t = Transcript("elsewhere")
    t.ask("go on")
    t.reply("a", 100_000, 60, said("word"), stop="end_turn", read=11_000)
    for n in range(3000):
        t.ask("more")
        own = f"lost{n or ''}-0"
        t.lines[-1]["uuid"], t._at = own, own
    t.reply("b", 30_000, 60, said("word"), stop="end_turn", read=11_000)
    with bounded():
        session = t.read()
    assert session.messages[0].id == "lost3000-0"


def session_of(*log: Message | Edit, **about) -> Session:
    return Session(id="s", log=log, **about)


def reply(usage: Usage | None = None, *parts: Part, **more) -> Message:
    return Message(role="assistant", id="a", usage=usage, parts=parts, **more)


def test_what_can_be_true_is_left_as_it_is():
    usage = Usage(input_tokens=5, cache_read_tokens=LIMIT - 5, output_tokens=LIMIT)
    true = session_of(
        reply(usage, SizeOnly("blob", tokens=LIMIT)),
        Edit(kind="summarised", id="e", tokens_before=LIMIT, tokens_after=LIMIT),
        context_window=LIMIT,
    )
    assert drop_impossible_sizes(true) is true


@pytest.mark.parametrize(
    ("usage", "left"),
    [
        (Usage(input_tokens=LIMIT, cache_read_tokens=1, output_tokens=7), Usage(output_tokens=7)),
        (Usage(input_tokens=9, output_tokens=LIMIT + 1), Usage(input_tokens=9)),
        (Usage(input_tokens=9, output_tokens=5, reasoning_tokens=LIMIT + 1), Usage(input_tokens=9)),
        (Usage(input_tokens=LIMIT + 1, cost_usd=0.5), Usage(cost_usd=0.5)),
        (Usage(cache_write_tokens=LIMIT + 1), None),
    ],
)
def test_a_prompt_or_an_output_that_cannot_be_is_missing(usage: Usage, left: Usage | None):
    session = drop_impossible_sizes(session_of(reply(usage)))
    assert session.log[0].usage == left
    assert [f.line for f in session.faults if CLAIMED in f.why] == [0]


def test_the_window_is_that_of_the_model():
    small = reply(Usage(input_tokens=20_000_001), model=MODEL)
    assert drop_impossible_sizes(session_of(small)).log[0].usage is None
    assert (
        drop_impossible_sizes(session_of(small, context_window=1_000_000)).log[0].usage is not None
    )
    own = reply(Usage(input_tokens=20_000_001), model=MODEL, context_window=1_000_000)
    assert drop_impossible_sizes(session_of(own)).log[0].usage is not None


@pytest.mark.parametrize("where", ["session", "message"])
def test_a_window_that_cannot_be_is_missing_and_allows_nothing(where: str):
    window = {"context_window": LIMIT + 1}
    message = reply(Usage(input_tokens=LIMIT + 1), **(window if where == "message" else {}))
    session = drop_impossible_sizes(session_of(message, **(window if where == "session" else {})))
    assert session.context_window is None
    assert (session.log[0].context_window, session.log[0].usage) == (None, None)
    assert len(session.faults) == 1 + (where == "session")


def test_a_turn_may_hold_many_calls():
    assert (
        drop_impossible_sizes(session_of(reply(Usage(input_tokens=LIMIT * 1000), kind="turn")))
        .log[0]
        .usage
    )
    session = drop_impossible_sizes(
        session_of(reply(Usage(input_tokens=LIMIT * 1000 + 1), kind="turn"))
    )
    assert session.log[0].usage is None


def test_edits_parts_and_subagents_are_held_to_it():
    size = SizeOnly("summary", chars=4 * LIMIT + 1, tokens=LIMIT + 1)
    summary = Message(role="summary", id="s", parts=(size,))
    edit = Edit(
        kind="summarised",
        id="e",
        inserted=(summary,),
        tokens_before=LIMIT + 1,
        tokens_after=LIMIT + 1,
        usage=Usage(output_tokens=LIMIT + 1),
    )
    child = session_of(reply(Usage(input_tokens=LIMIT + 1)))
    session = drop_impossible_sizes(session_of(edit, children=(child,)))
    (found,) = session.edits
    assert (found.tokens_before, found.tokens_after, found.usage) == (None, None, None)
    assert found.inserted[0].parts == (SizeOnly("summary"),)
    assert (len(session.faults), len(session.children[0].faults)) == (1, 1)
    assert session.children[0].log[0].usage is None


def test_a_part_whose_tokens_cannot_be_keeps_its_characters():
    part = SizeOnly("blob", tokens=LIMIT + 1, chars=4 * LIMIT)
    (found,) = drop_impossible_sizes(session_of(reply(None, part))).messages[0].parts
    assert found == SizeOnly("blob", tokens=None, chars=4 * LIMIT)


def test_the_bounds_stand_in_the_policy():
    policy = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    assert (
        f"{impossible_size_removal.MAX_WINDOWS} windows of its model (of {LIMIT // impossible_size_removal.MAX_WINDOWS:,} tokens"
        in policy
    )
    assert f"whole turn {impossible_size_removal.MAX_CALLS_PER_TURN:,} times as much" in policy
    assert (
        f"| {recording_errors._MAX_PLACEHOLDERS:,}; they are larger for more than {recording_errors._MAX_PLACEHOLDERS * recording_errors._PLACEHOLDER_TOKENS:,} tokens"
        in policy
    )
