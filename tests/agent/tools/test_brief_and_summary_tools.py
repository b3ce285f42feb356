"""The tools for the brief and the summary of a session's work."""

from __future__ import annotations

import sys

import pytest

from ctxkit.agent import make_inert_brief_and_summary_tools
from ctxkit.agent.tools.python_shell_and_summary_tools import (
    MAX_WRITTEN_CHARS,
    make_brief_and_summary_tools,
)
from ctxkit.errors import BadArguments, StoreError


def nested(lists):
    return '{"a":' + "[" * lists + "]" * lists + "}"


@pytest.mark.parametrize(
    "brief",
    [
        "{",
        "[1]",
        lambda: nested(sys.getrecursionlimit() - 100),  # libraries raise the limit for good
        lambda: nested(90_000),
        '{"a": "' + "x" * MAX_WRITTEN_CHARS + '"}',
    ],
    ids=["cut off", "a list", "deep", "deeper", "long"],
)
def test_a_brief_that_cannot_be_kept_is_refused_in_a_sentence_and_not_written(brief):
    kept = []
    tools = {
        t.name: t.run
        for t in make_brief_and_summary_tools(lambda *given: kept.append(given), lambda _: "")
    }
    with pytest.raises(BadArguments, match=r"\.$"):
        tools["brief_write"](brief=brief() if callable(brief) else brief)
    assert not kept


@pytest.fixture
def work_files():
    """The work files by name, and the four tools by name."""
    files = {}
    tools = make_brief_and_summary_tools(files.__setitem__, lambda name: files.get(name, ""))
    return files, {t.name: t.run for t in tools}


def test_a_summary_is_written_whole_and_read_up_to_8000_characters(work_files):
    files, tools = work_files
    assert list(tools) == [
        "session_context_write",
        "session_context_read",
        "brief_write",
        "brief_read",
    ]
    assert tools["session_context_read"]() == "(nothing)"
    key = "sk-ant-api03-" + "Ab3xY9" * 15
    assert (
        tools["session_context_write"](text=f"the key {key}") == f"Kept {8 + len(key)} characters."
    )
    assert files == {"context_summary.md": "the key [redacted]"}
    assert tools["session_context_read"]() == "the key [redacted]"
    files["context_summary.md"] = "x" * 8_000
    assert tools["session_context_read"]() == "x" * 8_000
    files["context_summary.md"] = "x" * 9_234
    assert tools["session_context_read"]() == "x" * 8_000 + "\n[1,234 characters more]"
    assert tools["session_context_write"](text="x" * 200_000) == "Kept 200,000 characters."
    with pytest.raises(BadArguments, match=r"^Write at most 200,000 characters\.$"):
        tools["session_context_write"](text="x" * 200_001)


def test_a_brief_is_written_as_json_and_read_whole_or_by_field(work_files):
    files, tools = work_files
    assert tools["brief_read"]() == tools["brief_read"](field="goal") == "(nothing)"
    key = "sk-ant-api03-" + "Ab3xY9" * 15
    brief = f'{{"goal": "Schön {key}", "files": ["a", 1]}}'
    assert tools["brief_write"](brief=brief) == "Kept goal, files."
    written = '{\n  "goal": "Schön [redacted]",\n  "files": [\n    "a",\n    1\n  ]\n}'
    assert files == {"brief.json": written}
    assert tools["brief_read"]() == written
    assert (
        tools["brief_read"](field="goal") == tools["brief_read"](field="GOAL") == "Schön [redacted]"
    )
    assert tools["brief_read"](field="files") == '["a", 1]'
    with pytest.raises(
        BadArguments, match=rf"^The brief has no field '{'x' * 80}'; it has goal, files\.$"
    ):
        tools["brief_read"](field="x" * 90)
    names = [f"field{i:03}" for i in range(50)]
    assert tools["brief_write"](brief=str(dict.fromkeys(names, 1)).replace("'", '"')) == (
        "Kept " + ", ".join(names)[:300] + "."
    )
    files["brief.json"] = "[1]"
    with pytest.raises(BadArguments, match=r"^The brief has no field 'goal'; it has \.$"):
        tools["brief_read"](field="goal")
    files["brief.json"] = "no JSON"
    for field in ("", "goal"):
        with pytest.raises(StoreError, match=r"^The brief on disk is no JSON: write it anew\.$"):
            tools["brief_read"](field=field)


@pytest.mark.parametrize(
    ("brief", "error"),
    [
        ("[1]", r"^The brief is a JSON object: name its fields\.$"),
        ('"text"', r"^The brief is a JSON object: name its fields\.$"),
        ("{", r"^The brief is no JSON that can be kept: Expecting property name .*\.$"),
        ("x" * 200_001, r"^Write at most 200,000 characters\.$"),
    ],
)
def test_what_is_no_brief_is_refused(work_files, brief, error):
    files, tools = work_files
    with pytest.raises(BadArguments, match=error):
        tools["brief_write"](brief=brief)
    assert files == {}


def test_tools_without_a_session_store_nothing():
    tools = {t.name: t.run for t in make_inert_brief_and_summary_tools()}
    assert tools["brief_write"](brief='{"goal": 1}') == "Kept goal."
    assert tools["brief_read"]() == tools["session_context_read"]() == "(nothing)"
