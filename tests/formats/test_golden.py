"""One short conversation, written by hand in every format, so that each reader is tested without real logs.

The first part: a question; `read_file` is called for a file that exists and for one that does not;
the answer. The second part shows what else the format records: a compaction whose summary replaces
the first part, a second question, a subagent, and an answer with thinking and a cache write.
`test_declared_features.py` compares the samples with what the readers declare.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from crush_databases import crush
from formats.golden_sessions import FOLDER, format_session

import ctxkit as ck
from ctxkit.formats import all_readers
from ctxkit.session import Message, Session, SizeOnly, Text, Thinking

GOLDEN = Path(__file__).parent / "golden"
SAMPLES = {p.name.split(".")[0]: p for p in sorted(GOLDEN.iterdir())}
DATABASE_FOLDER = Path(tempfile.mkdtemp(prefix="ctxkit-golden-"))
atexit.register(shutil.rmtree, DATABASE_FOLDER, ignore_errors=True)
SAMPLES["crush"] = crush(DATABASE_FOLDER / "crush.db")
"""The sample of a database is written by `crush_databases.py`, as its file cannot be read in a diff."""
QUESTION = "How many words are in notes.txt and log.txt?"
ANSWER = "notes.txt has three words; there is no log.txt."
SECOND_ANSWER = "Three."
THINKING = "Only one of the files has words."
TASK, TASK_ANSWER = "Count the words of notes.txt.", "There are three."
"""Prompt and answer of the subagent."""
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
"""With the sizes of results only."""
NO_USAGE = {
    "crush",
    "goose",
    "hermes",
    "sharegpt",
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
WRITING_PROMPT = (100, 0, 800)
"""Uncached input, cache read and cache write of the call that writes to the cache."""
SUBAGENTS = {
    "native": "reader",
    "claude-code": "sidechain-0",
    "copilot-cli": "explore",
    "fuseraft-events": "explore",
    "atif": "reader",
    "inspect-ai": "reader",
    "crush": "main",
}
"""Name of the subagent; lines of Claude Code's older sidechains and Crush's sessions have none."""
EDITS_WITHOUT_SUMMARY = {
    "fuseraft-events": "summarised",
    "fuseraft-snapshots": "summarised",
    "fuseraft-turns": "summarised",
    "notebook": "summarised",
    "langfuse": "dropped",
}
"""Kind of the edit where the sample has a compaction or removal, but not the summary's text."""
QUESTION_STAYS = {"inspect-ai"}
"""Compactions that keep the first question."""


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
"""Formats whose sample has the text of a summary: each must give a compaction."""
WITH_THINKING = {name for name, data in BYTES.items() if THINKING.encode() in data}
WITH_SUBAGENT = {name for name, data in BYTES.items() if TASK.encode() in data}
WITH_CACHE_WRITE = {
    name
    for name, data in BYTES.items()
    if re.search(rb"(?i)(writes?|creation)\w*\W+800(?!\d)", data)
}


@pytest.fixture(params=SAMPLES)
def name(request) -> str:
    return request.param


@cache
def read_sample(name: str) -> Session:
    return ck.read(SAMPLES[name])


def read_first_part(name: str) -> list[Message]:
    """Return the messages up to the first answer that is no call."""
    log = [e for e in read_sample(name).log if isinstance(e, Message)]
    end = next((i for i, m in enumerate(log) if m.text == ANSWER), len(log) - 1)
    return log[: end + 1 + 2 * (name == "fuseraft-turns")]


def test_every_reader_has_a_sample():
    assert set(SAMPLES) == {m.NAME for m in all_readers()}


def test_samples_are_small():
    assert sum(p.stat().st_size for p in GOLDEN.rglob("*") if p.is_file()) < 120_000


def test_a_sample_is_known_by_its_content(name: str):
    session = read_sample(name)
    assert session.format == ("pi" if name == "native" else name)  # a copy names its origin
    assert not session.faults


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - SIZES_ONLY))
def test_the_words_are_read(name: str):
    texts = [m.text for m in read_first_part(name)]
    assert QUESTION in texts or name in NO_REQUEST
    assert ANSWER in texts


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - NO_CALLS))
def test_calls_are_read_and_paired(name: str):
    calls = [c for m in read_first_part(name) for c in m.tool_calls]
    results = [m for m in read_first_part(name) if m.role == "tool"]
    assert [c.name for c in calls] == [tool for tool, _ in CALLS]
    assert [m.call_id for m in results] == [c.id for c in calls]
    assert [m.tool for m in results] == [tool for tool, _ in CALLS]
    if name not in NO_ARGUMENTS:
        assert [c.arguments for c in calls] == [arguments for _, arguments in CALLS]


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - NO_CALLS))
def test_results_are_read_or_sized(name: str):
    (first, second) = [m for m in read_first_part(name) if m.role == "tool"]
    kind = SizeOnly if name in NO_RESULTS else Text
    assert all(type(p) is kind for m in (first, second) for p in m.parts)
    if kind is Text:
        assert [m.text.strip('"') for m in (first, second)] == RESULTS
    if name not in NO_FAILURE:
        assert (first.is_error, second.is_error) == (False, True)


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - NO_USAGE - NO_CACHE))
def test_usage_is_read(name: str):
    used = [m.usage for m in read_first_part(name) if m.role == "assistant" and m.usage]
    assert [(u.input_tokens, u.cache_read_tokens, u.output_tokens) for u in used] == USAGE


@pytest.mark.parametrize("name", sorted(NO_USAGE))
def test_usage_that_is_not_recorded_is_missing(name: str):
    assert all(m.usage is None for m in read_first_part(name))


@pytest.mark.parametrize("name", sorted(COMPACTED))
def test_a_compaction_is_read(name: str):
    session = read_sample(name)
    (edit,) = [e for e in session.edits if e.kind == "summarised"]
    (summary,) = edit.inserted
    assert (summary.role, summary.text, edit.source) == ("summary", SUMMARY, "recorded")
    removed = {ANSWER} if name in QUESTION_STAYS else {QUESTION, ANSWER}
    assert not removed & {m.text for m in session.view()}
    assert Text(SECOND_ANSWER) in session.view()[-1].parts


@pytest.mark.parametrize("name", sorted(EDITS_WITHOUT_SUMMARY))
def test_an_edit_without_the_text_of_its_summary_is_read(name: str):
    session = read_sample(name)
    (edit,) = session.edits
    assert edit.kind == EDITS_WITHOUT_SUMMARY[name]
    assert edit.source == ("derived" if edit.kind == "dropped" else "recorded")
    if edit.kind == "dropped":
        texts = {m.text for m in session.view()}
        assert (texts & {QUESTION, ANSWER, *RESULTS}) == {QUESTION, ANSWER}
    assert SUMMARY not in {m.text for m in session.view()}


@pytest.mark.parametrize("name", sorted(WITH_THINKING))
def test_thinking_is_read_as_a_part_of_its_reply(name: str):
    (reply,) = [e for e in read_sample(name).log if isinstance(e, Message) and e.thinks]
    (thinking,) = [p for p in reply.parts if isinstance(p, Thinking)]
    assert reply.role == "assistant"
    assert THINKING in thinking.text
    assert THINKING not in "".join(p.text for p in reply.parts if isinstance(p, Text))


@pytest.mark.parametrize("name", ["codex", "openai-responses"])
def test_encrypted_reasoning_has_a_size_and_no_text(name: str):
    thinking = [p for m in read_sample(name).messages for p in m.parts if isinstance(p, Thinking)]
    assert [(p.text, p.hidden) for p in thinking] == [("", 24)]


@pytest.mark.parametrize("name", sorted(WITH_CACHE_WRITE))
def test_a_cache_write_is_read_as_a_class_of_its_own(name: str):
    used = [m.usage for m in read_sample(name).messages if m.usage]
    (usage,) = [u for u in used if u.cache_write_tokens]
    written = usage.cache_write_tokens + (usage.cache_write_1h_tokens or 0)
    assert (usage.input_tokens, usage.cache_read_tokens, written) == WRITING_PROMPT
    if b"1h" in BYTES[name]:
        assert (usage.cache_write_tokens, usage.cache_write_1h_tokens) == (300, 500)


@pytest.mark.parametrize("name", sorted(WITH_SUBAGENT))
def test_a_subagent_is_a_session_of_its_own(name: str):
    session = read_sample(name)
    (child,) = session.children
    assert (child.parent, child.agent) == (session.id, SUBAGENTS[name])
    (task,) = [m for m in child.messages if m.role == "user"]
    (answer,) = [m for m in child.messages if m.role == "assistant"]
    assert task.text == TASK
    (part,) = answer.parts
    size_only = SizeOnly("text", chars=len(TASK_ANSWER))
    assert part == (size_only if name in NO_RESULTS else Text(TASK_ANSWER))
    assert TASK not in {m.text for m in session.messages}


def test_formats_are_found_by_the_texts_of_their_samples():
    assert len(COMPACTED) >= 14
    assert {"native", "pi", "claude-code", "codex", "crush", "inspect-ai", "otel"} <= COMPACTED
    assert len(WITH_THINKING) >= 15
    assert {"native", "pi", "claude-code", "opencode", "kimi-cli", "inspect-ai", "cline", "langchain", "anthropic"} == WITH_CACHE_WRITE  # fmt: skip
    assert set(SUBAGENTS) == WITH_SUBAGENT


def test_what_the_bytes_of_a_sample_record_is_read(name: str):
    """A reader that leaves out what is in its own sample is wrong, whatever the lists above say."""
    session, data = read_sample(name), BYTES[name]
    used = [m.usage for m in session.messages if m.usage is not None]
    if re.search(rb"(?<!\d)(1200|1260)(?!\d)", data):  # the tokens of its prompts
        assert used
    if name not in NO_CACHE and re.search(rb"(?i)cache\w*\W+1200(?!\d)", data):
        assert sum(u.cache_read_tokens or 0 for u in used) >= 2400
    if re.search(rb'(?i)is_?error"?\W+(true|1\b)', data):
        assert any(m.is_error for m in session.messages)
    assert bool(session.children) == (name in WITH_SUBAGENT)
    assert bool(session.edits) == (name in COMPACTED or name in EDITS_WITHOUT_SUMMARY)


def test_every_field_of_a_sample_is_read_as_it_is_written_down(name: str):
    """Ids, times, usage, stops, sizes and details too, which the tests above do not look at one by one."""
    wanted = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert format_session(read_sample(name)).splitlines() == wanted


def test_no_expected_session_is_without_a_sample():
    assert {p.stem for p in FOLDER.iterdir()} == set(SAMPLES)


def test_a_native_copy_is_equal(name: str, tmp_path: Path):
    session = read_sample(name)
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
