"""The state of a team in fuseraft's record: the newest one counts, and what is long is bounded."""

from __future__ import annotations

from builders import user

from ctxkit.policies.tool_evidence_summaries import (
    TEAM_STATE_KEY,
    find_newest_team_state,
    format_team_state_sections,
)


def with_state(state):
    return user("go", details={TEAM_STATE_KEY: state})


def test_the_newest_message_with_a_state_counts():
    newest_first = [
        user("no state"),
        with_state({"state": "Review"}),
        with_state({"state": "Plan"}),
    ]
    assert find_newest_team_state(newest_first) == {"state": "Review"}
    assert find_newest_team_state([user("no state")]) == {}


def test_a_state_that_is_no_object_is_no_state():
    for damaged in ("Review", ["Review"], None, 3):
        assert format_team_state_sections(find_newest_team_state([with_state(damaged)])) == []


def test_sections_hold_forty_entries_of_two_hundred_characters():
    state = {"state": "Review", "agent": "Ann", "failures": ["x" * 1000] * 100}
    (section,) = format_team_state_sections(state)
    head, position, *failures = section.split("\n")
    assert (head, position) == (
        "STATE MACHINE POSITION (as this turn began)",
        "  State: Review (agent: Ann)",
    )
    assert len(failures) == 40
    assert {len(line.removeprefix("  Failed ")) for line in failures} == {200}


def test_contracts_stand_by_what_became_of_them():
    contracts = [{"name": "tests pass"}, {"name": "docs", "why": "no page"}, "damaged"]
    _, section = format_team_state_sections({"state": "Review", "contracts": contracts})
    assert section.split("\n") == [
        "CONTRACT STATUS",
        "  ✓ tests pass",
        "  ✗ docs",
        "    Reason: no page",
    ]
    assert "unknown" in format_team_state_sections({"state": "Review"})[0]
