"""Turns of recorded teams, and the log of each agent with what its peers said."""

from __future__ import annotations

from typing import Any

import pytest
from builders import assistant, result, session, summarised, tool_call, usage, user

from ctxkit.metrics import get_agent_logs, get_team_turns, tabulate_recorded_turns
from ctxkit.session import Message, Session


def make_move(agent: str | None, entry_kind: str = "move", **record: Any) -> Message:
    return Message(
        role="system", kind=entry_kind, visible=False, agent=agent, details={"told": record}
    )


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
        make_move("B", "note", own=0),
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


def list_shared_texts(team: Session, agent: str) -> list[str]:
    (found,) = (log for log in get_agent_logs(team) if log.agent == agent)
    return [m.text or m.kind or m.role for m in found.shared.messages]


def make_team_with_branches() -> Session:
    """Return a ledger in which A and B work in parallel after the first turn of A."""

    def make_entry(text: str, agent: str | None = None, **details: str) -> Message:
        return user(text, id=text, agent=agent, details=details)

    a = session(
        user("A's brief", turn=0), assistant("A starts", turn=0), assistant("A forks", turn=1), assistant("A ends", turn=2),
        id="a", agent="A",
    )  # fmt: skip
    b = session(
        user("B's brief", turn=0),
        user("a copy of the ledger", turn=0, details={"from": "task"}),
        user("files of a stage, rebuilt before each turn", turn=0, kind="artifacts"),
        assistant("B forks", turn=0),
        assistant("B ends", turn=1),
        user("after its last turn", turn=2),
        id="b", agent="B",
    )  # fmt: skip
    return session(
        make_entry("task"),
        make_move(None, kind="task"),
        make_entry("A said it started", "A"),
        make_move("A", from_own=0, own=0),
        make_entry("for B", to="B"),
        make_entry("for A", to="A"),
        make_move(None, kind="parallel_start"),
        make_entry("A said it forked", "A"),
        make_move("A", from_own=1, own=1, kind="parallel_branch_end"),
        make_entry("B said it forked", "B"),
        make_move("B", from_own=0, own=0, kind="parallel_branch_end"),
        make_entry("A said both ended", "A"),
        make_move("A", from_own=2, own=2),
        make_move("B", from_own=1, own=1),
        make_entry("behind the last move", "A"),
        details={"team": "pair"},
        children=(a, b),
    )


def test_an_agent_sees_the_entries_of_a_ledger_before_its_turn_and_those_before_a_fork():
    team = make_team_with_branches()
    assert list_shared_texts(team, "B") == [
        *("task", "A said it started", "for B", "B's brief", "B forks"),
        # the branch of A is seen by the turn after both
        *("A said it forked", "A said both ended", "B ends"),
        "after its last turn",
    ]
    assert list_shared_texts(team, "A") == [
        *("task", "A's brief", "A starts", "for A", "A forks", "B said it forked", "A ends"),
    ]


def test_a_subagents_words_come_between_two_steps_and_not_between_a_call_and_its_result():
    call = tool_call("task")
    helper = session(
        user("Find it.", time=2.0), assistant("I have found it.", time=3.0), id="h", agent="helper"
    )
    main = session(
        user("Work.", time=0.0),
        assistant("I ask.", call, time=1.0),
        user("Hurry.", time=4.0),
        result("Found.", call, time=5.0),
        assistant("Done.", time=6.0),
        agent="main",
        children=(helper,),
    )
    assert list_shared_texts(main, "main") == [
        *("Work.", "I ask.", "Hurry.", "Found.", "[helper]\nI have found it.", "Done."),
    ]
    heard = list_shared_texts(main, "helper")
    assert heard[0] == "[main]\nI ask."
    assert heard[1].startswith("[main called task(")
    assert heard[2:] == ["Find it.", "I have found it."]  # not what was said later
