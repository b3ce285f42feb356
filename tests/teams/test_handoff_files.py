"""A file as a source of a hand-off: read inside the team's folder, bounded, absent without a word."""

from __future__ import annotations

from ctxkit.agent import RootFolder
from ctxkit.teams.contract_checks import TurnChanges
from ctxkit.teams.handoffs import SourceFiles, format_handoff
from ctxkit.teams.plan import ContextSource


def block(folder, path, chars=20):
    source = ContextSource(kind="file", argument=path, max_chars=chars, label="")
    return format_handoff(
        SourceFiles(root=RootFolder(folder), brief="brief.json", changes=()), (source,), "Tester"
    )


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


def test_without_a_number_a_source_has_all_recent_changes(tmp_path):
    """F46: `changes_recent` gives all of them, `changes_recent:2` the newest two."""
    changes = [
        TurnChanges(turn=n, agent="A", time=0.0, files=(f"{n}.txt",), commands=()) for n in range(5)
    ]
    files = SourceFiles(root=RootFolder(tmp_path), brief="brief.json", changes=changes)
    for argument, count in (("", 5), ("2", 2)):
        source = ContextSource(kind="changes_recent", argument=argument)
        told = format_handoff(files, (source,), "Tester")
        assert [f"{n}.txt" in told for n in range(5)] == [False] * (5 - count) + [True] * count
