"""One small talk, made by hand in every format: a clone with no real logs proves each reader.

The talk: a question; `read_file` is called for a file that is there and for one that is not; the
answer. Where a format marks compactions, a summary then takes the place of all this, and a second
question is answered.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from crush_databases import crush
from formats.golden_sessions import FOLDER, format_session

import ctxkit as ck
from ctxkit.formats import all_readers
from ctxkit.session import Message, SizeOnly, Text

GOLDEN = Path(__file__).parent / "golden"
SAMPLES = {p.name.split(".")[0]: p for p in sorted(GOLDEN.iterdir())}
MADE = Path(tempfile.mkdtemp(prefix="ctxkit-golden-"))
atexit.register(shutil.rmtree, MADE, ignore_errors=True)
SAMPLES["crush"] = crush(MADE / "crush.db")
"""A database is no text to look at: it is made by the words of `crush_databases.py`."""
ASKED = "How many words are in notes.txt and log.txt?"
SAID = "notes.txt has three words; there is no log.txt."
RESULTS = ["one two three", "No such file: log.txt"]
CALLS = [("read_file", {"path": "notes.txt"}), ("read_file", {"path": "log.txt"})]
USAGE = [(1200, 0, 21), (60, 1200, 19), (100, 1200, 15)]
"""Input that was not read from the cache, input that was, and output, of the first three calls."""
NO_REQUEST = {"codex-exec"}
SIZES_ONLY = {"fuseraft-snapshots"}
NO_CALLS = {"aider", *NO_REQUEST, *SIZES_ONLY}
"""Without calls, or (`codex exec`) with calls of its own."""
NO_ARGUMENTS = {"fuseraft-turns", "notebook"}
NO_RESULTS = {"fuseraft-events", "fuseraft-turns", "notebook"}
NO_USAGE = {
    "crush",
    "goose",
    "hermes",
    "sharegpt",
    "openai",
    "tau-bench",
    "swe-agent",
    "fuseraft-checkpoint",
}
NO_CACHE = {
    "aider",
    "copilot-cli",
    "codex-exec",
    "fuseraft-events",
    "fuseraft-turns",
    "fuseraft-snapshots",
    "notebook",
}
NO_FAILURE = {"hermes", "sharegpt", "atif", "langfuse", "mlflow", "openai", "openai-responses", "otel", "swe-agent", "tau-bench",
              "fuseraft-checkpoint"}  # fmt: skip
SUMMARY = "The user asked for words; notes.txt has three."
SUBAGENT_WORDS = (b'isSidechain": true', b'isSidechain":true')
"""What marks a record of a subagent in the formats that have them beside the others."""


def read_bytes(path: Path) -> bytes:
    """Return what a sample says, whatever holds it: a file, a folder, an archive or a database."""
    if path.is_dir():
        return b"\n".join(p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file())
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"\n".join(archive.read(name) for name in archive.namelist())
    return path.read_bytes()


BYTES = {name: read_bytes(path) for name, path in SAMPLES.items()}
COMPACTED = {name for name, data in BYTES.items() if SUMMARY.encode() in data}
"""Formats whose sample says the words of a summary: each must give a compaction."""


@pytest.fixture(params=SAMPLES)
def name(request) -> str:
    return request.param


def told(name: str) -> list[Message]:
    """The messages up to the first answer that is no call."""
    log = [e for e in ck.read(SAMPLES[name]).log if isinstance(e, Message)]
    end = next((i for i, m in enumerate(log) if m.text == SAID), len(log) - 1)
    return log[: end + 1 + 2 * (name == "fuseraft-turns")]


def test_every_reader_has_a_sample():
    assert set(SAMPLES) == {m.NAME for m in all_readers()}


def test_samples_are_small():
    assert sum(p.stat().st_size for p in GOLDEN.rglob("*") if p.is_file()) < 90_000


def test_a_sample_is_known_by_its_content(name: str):
    session = ck.read(SAMPLES[name])
    assert session.format == ("pi" if name == "native" else name)  # a copy says whence it came
    assert not session.faults


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - SIZES_ONLY))
def test_the_words_are_read(name: str):
    said = [m.text for m in told(name)]
    assert ASKED in said or name in NO_REQUEST
    assert SAID in said


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - NO_CALLS))
def test_calls_are_read_and_paired(name: str):
    calls = [c for m in told(name) for c in m.tool_calls]
    results = [m for m in told(name) if m.role == "tool"]
    assert [c.name for c in calls] == [tool for tool, _ in CALLS]
    assert [m.call_id for m in results] == [c.id for c in calls]
    assert [m.tool for m in results] == [tool for tool, _ in CALLS]
    if name not in NO_ARGUMENTS:
        assert [c.arguments for c in calls] == [arguments for _, arguments in CALLS]


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - NO_CALLS))
def test_results_are_read_or_sized(name: str):
    (first, second) = [m for m in told(name) if m.role == "tool"]
    kind = SizeOnly if name in NO_RESULTS else Text
    assert all(type(p) is kind for m in (first, second) for p in m.parts)
    if kind is Text:
        assert [m.text.strip('"') for m in (first, second)] == RESULTS
    if name not in NO_FAILURE | {"fuseraft-events"}:
        assert (first.is_error, second.is_error) == (False, True)


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - NO_USAGE - NO_CACHE))
def test_usage_is_read(name: str):
    used = [m.usage for m in told(name) if m.role == "assistant" and m.usage]
    assert [(u.input_tokens, u.cache_read_tokens, u.output_tokens) for u in used] == USAGE


@pytest.mark.parametrize("name", sorted(NO_USAGE))
def test_usage_that_is_not_said_is_missing(name: str):
    assert all(m.usage is None for m in told(name))


@pytest.mark.parametrize("name", sorted(COMPACTED))
def test_a_compaction_is_read(name: str):
    session = ck.read(SAMPLES[name])
    (edit,) = session.edits
    (summary,) = edit.inserted
    assert summary.text == SUMMARY
    assert not {ASKED, SAID} & {m.text for m in session.view()}
    assert session.view()[-1].text == "Three."


def test_formats_with_compactions_are_found_by_their_samples():
    assert len(COMPACTED) >= 12
    assert {"native", "pi", "claude-code", "codex", "crush"} <= COMPACTED


def test_what_a_sample_says_is_read(name: str):
    """A reader that leaves out what its own sample says is wrong, whatever the lists above say."""
    session, data = ck.read(SAMPLES[name]), BYTES[name]
    used = [m.usage for m in session.messages if m.usage is not None]
    if re.search(rb"(?<!\d)(1200|1260)(?!\d)", data):  # the tokens of its prompts
        assert used
    if name not in NO_CACHE and re.search(rb"(?i)cache\w*\W+1200(?!\d)", data):
        assert sum(u.cache_read_tokens or 0 for u in used) >= 2400
    if re.search(rb'(?i)is_?error"?\W+(true|1\b)', data):
        assert any(m.is_error for m in session.messages)
    if any(words in data for words in SUBAGENT_WORDS):
        assert session.children
    assert bool(session.edits) == (name in COMPACTED)


def test_every_field_of_a_sample_is_read_as_it_is_written_down(name: str):
    """Ids, times, usage, stops, sizes and details too, which the tests above do not look at one by one."""
    wanted = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert format_session(ck.read(SAMPLES[name])).splitlines() == wanted


def test_no_sample_is_written_down_that_is_gone():
    assert {p.stem for p in FOLDER.iterdir()} == set(SAMPLES)


def test_a_native_copy_is_equal(name: str, tmp_path: Path):
    session = ck.read(SAMPLES[name])
    assert ck.write(session, tmp_path / "copy.jsonl").lost == {}
    assert ck.read(tmp_path / "copy.jsonl") == session


def test_a_torn_sample_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path):
    if SAMPLES[name].is_dir():
        return
    data = SAMPLES[name].read_bytes().rstrip()
    for cut in range(1, len(data), max(len(data) // 40, 1)):
        (tmp_path / SAMPLES[name].name).write_bytes(data[:-cut])
        with suppress(ck.ReadError):  # anything else is a mistake of the reader
            ck.read(tmp_path / SAMPLES[name].name)
