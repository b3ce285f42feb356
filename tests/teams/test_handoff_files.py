"""A file as a source of a hand-off: read inside the team's folder, bounded, absent without a word."""

from __future__ import annotations

import pytest

from ctxkit.agent import RootFolder
from ctxkit.errors import BadArguments
from ctxkit.presets import ConfigSection
from ctxkit.teams import ContextSource
from ctxkit.teams.handoffs_and_contracts import (
    ContextSourceInputs,
    TurnFilesAndCommands,
    format_handoff,
    parse_context_sources,
)


def block(folder, path, chars=20):
    source = ContextSource(kind="file", argument=path, max_chars=chars, label="")
    return format_handoff(
        ContextSourceInputs(root=RootFolder(folder), brief="brief.json", changes=()),
        (source,),
        "Tester",
    )


def sources(*rows):
    return parse_context_sources([ConfigSection(row) for row in rows], "Context", allow_own=True)


def test_a_hand_off_holds_a_file(tmp_path):
    """F48: Under its own name, cut where it is long, nothing where it is not there or leads out."""
    team = tmp_path / "team"
    (team / "notes").mkdir(parents=True)
    (team / "notes" / "plan.md").write_text("First test, then ship it to them.")
    (tmp_path / "secret.md").write_text("not theirs")
    told = block(team, "notes/plan.md")
    assert told.startswith(
        "[HANDOFF CONTEXT — assembled for Tester]\n\n## plan.md\nFirst test, then shi"
    )
    assert "13 chars truncated" in told
    assert block(team, "notes/none.md") == block(team, "../secret.md") == ""


def test_a_file_comes_as_it_is(tmp_path):
    """F48: Its raw content, where it is not longer than may be."""
    raw = '{"a": [1,\n  2]}\n\n# no heading, *no* mark'
    (tmp_path / "raw.txt").write_text(raw)
    assert block(tmp_path, "raw.txt", 4_000).endswith(f"## raw.txt\n{raw}")


SOURCES = {"session_context": 4_000, "changes_recent": 4_000, "changes_recent:5": 4_000,
           "brief_field:goal": 4_000, "file:a.txt": 4_000, "own_history": 8_000,
           "own_history:4": 8_000}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("more", [{}, {"MaxChars": 0}, {"MaxChars": 70}])
def test_a_source_has_the_documents_length_unless_it_says_another(source, more):
    """F51: 4,000 characters of an artifact, 8,000 of own_history; 0 is the default."""
    [parsed] = sources({"Source": source, **more})
    assert (parsed.name, parsed.max_chars) == (source, more.get("MaxChars") or SOURCES[source])


@pytest.mark.parametrize("row", [{}, {"Source": ""}, {"Source": "transcript"}, {"Label": "x"}])
def test_a_source_has_to_be_one_of_the_five(row):
    """F51: Source is required, and there is no sixth."""
    with pytest.raises(BadArguments, match="there are session_context, changes_recent"):
        sources(row)


def test_a_label_is_the_heading_and_else_the_kind_is(tmp_path):
    """F51: Each kind of source has a heading, and Label stands in its place."""
    (tmp_path / "brief.json").write_text('{"goal": "ship"}')
    (tmp_path / "context_summary.md").write_text("so far")
    (tmp_path / "a.txt").write_text("text")
    changes = [TurnFilesAndCommands(turn=1, agent="A", time=0.0, files=("a.txt",), commands=())]
    files = ContextSourceInputs(root=RootFolder(tmp_path), brief="brief.json", changes=changes)
    names = ("session_context", "changes_recent", "brief_field:goal", "file:a.txt")
    for label in ("", "Mine"):
        rows = sources(*({"Source": name, "Label": label} for name in names))
        text = format_handoff(files, rows, "B")
        heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
        kinds = ["Session Context", "Recent Changes", "Task: goal", "a.txt"]
        assert heads == ([label] * 4 if label else kinds)


def test_without_a_number_a_source_has_all_recent_changes(tmp_path):
    """F46: `changes_recent` gives all of them, `changes_recent:2` the newest two."""
    changes = [
        TurnFilesAndCommands(turn=n, agent="A", time=0.0, files=(f"{n}.txt",), commands=())
        for n in range(5)
    ]
    files = ContextSourceInputs(root=RootFolder(tmp_path), brief="brief.json", changes=changes)
    for argument, count in (("", 5), ("2", 2)):
        source = ContextSource(kind="changes_recent", argument=argument)
        told = format_handoff(files, (source,), "Tester")
        assert [f"{n}.txt" in told for n in range(5)] == [False] * (5 - count) + [True] * count
