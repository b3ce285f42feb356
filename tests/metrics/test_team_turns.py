"""Turns of recorded teams: of a ledger with members' sessions, of subagents, and of one log."""

from __future__ import annotations

from typing import Any

import pytest
from builders import assistant, session, summarised, usage, user

from ctxkit.metrics import get_team_turns
from ctxkit.metrics.team_agent_logs_and_turns import tabulate_recorded_turns
from ctxkit.session import Message, Session


def make_move(agent: str, kind: str = "move", **record: Any) -> Message:
    return Message(role="system", kind=kind, visible=False, agent=agent, details={"told": record})


@pytest.fixture(scope="module")
def ledger() -> Session:
    request = user("Look again.")
    a = session(
        user("Look."),
        assistant("I look.", usage=usage(100, output=10)),
        assistant("Seen.", usage=usage(130, output=20)),
        request,
        assistant("The same.", usage=usage(200, output=5)),
        user("Once more."),
        summarised([request]),
        assistant("Nothing new.", usage=usage(40, output=1)),
        id="a",
        agent="A",
    )
    b = session(user("Check."), assistant("Good.", usage=usage(50, output=2)), id="b", agent="B")
    return session(
        make_move("A", from_own=0, own=0),
        make_move("B", own=0),  # without the first of its turns: from the beginning
        make_move("B", kind="note", own=0),
        make_move("A", state="stopped"),
        make_move("C", own=0),
        make_move("A", from_own=1, own=1),
        make_move("A", from_own=2, own=2),
        details={"team": "pair", "warn_at": 300},
        children=(a, b),
    )


def test_a_move_of_a_ledger_is_a_turn_with_the_calls_of_its_range(ledger):
    assert [(t.agent, t.calls) for t in get_team_turns(ledger)] == [
        ("A", (0, 1)),
        ("B", (0,)),
        ("A", (2,)),
        ("A", (3,)),
    ]
    over_two = session(make_move("A", from_own=1, own=2), details=ledger.details, children=ledger.children)  # fmt: skip
    assert [t.calls for t in get_team_turns(over_two)] == [(2, 3)]


def test_a_table_of_turns_sums_each_agents_input_until_its_compaction(ledger):
    table = tabulate_recorded_turns(ledger)
    assert table.to_dict("list") == {
        "agent": ["A", "B", "A", "A"],
        "turn": [0, 1, 2, 3],
        "turn_input_tokens": [230, 50, 200, 40],
        "turn_output_tokens": [30, 2, 5, 1],
        "cumulative_input_tokens": [230, 50, 430, 40],
        "compaction_occurred": [False, False, False, True],
        "to": ["B", "A", "", ""],
        "warn_at": [300] * 4,
        "cutover_at": [0] * 4,
    }
    assert tabulate_recorded_turns(ledger.children[0]) is None
    assert tabulate_recorded_turns("ledger") is None


def test_a_subagent_splits_the_turn_of_the_session_that_started_it():
    def make_helper(name: str, *times: float | None, **more: Any) -> Session:
        return session(*(assistant(time=t) for t in times), id=name, agent="helper", **more)

    children = (
        make_helper("first", 6.0, 3.0),
        make_helper("again", 4.5),  # directly behind the first: a turn of its own
        make_helper("unasked"),
        make_helper("no time", None, started=7.5),
    )
    main = session(
        *(assistant(time=t) for t in (1.0, 2.0, 5.0, None, 8.0)), agent="main", children=children
    )
    assert [(t.agent, t.calls) for t in get_team_turns(main)] == [
        ("main", (0, 1)),
        ("helper first", (0, 1)),
        ("helper again", (0,)),
        ("main", (2, 3)),  # a reply without a time follows the one before it
        ("helper no time", (0,)),
        ("main", (4,)),
    ]
