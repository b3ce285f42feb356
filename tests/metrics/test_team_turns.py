"""Turns of recorded teams, and the log of each agent with what its peers said."""

from __future__ import annotations

from typing import Any

import pytest
from builders import assistant, result, session, summarised, tool_call, usage, user

from ctxkit.errors import BadArguments
from ctxkit.metrics import get_agent_logs, get_team_turns, tabulate_recorded_turns
from ctxkit.metrics.team_agent_logs_and_turns import (
    count_entries_before_parallel_branches,
    get_tool_agent_logs,
)
from ctxkit.session import Message, Session
from ctxkit.tokens import default_counter


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
    assert list(table.columns)[-2:] == ["warn_at", "cutover_at"]
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
    two = (make_helper(f"helper-{n}0", 0.5) for n in (1, 2))
    untimed = session(assistant(), assistant(time=2.0), agent="main", children=tuple(two))
    assert [(t.agent, t.calls) for t in get_team_turns(untimed)] == [
        ("main", (0,)),  # a first reply without a time comes before all others
        ("helper helper-1", (0,)),  # named by the first eight characters of its id
        ("helper helper-2", (0,)),
        ("main", (1,)),
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


@pytest.mark.parametrize("growth", [40, 400, 4_000])
def test_a_peers_message_is_as_large_as_the_record_says_that_such_texts_are(growth):
    """The record counts some share of what a plain count of its messages gives, or a multiple."""
    helper = session(
        user("Find it.", time=2.0), assistant("I have found it.", time=3.0), id="h", agent="helper"
    )
    main = session(
        user("word " * 100, time=0.0),
        assistant("A few words.", time=1.0, usage=usage(1_000, output=20)),
        user("word " * 400, time=4.0),
        assistant("Done.", time=5.0, usage=usage(1_020 + growth, output=5)),
        agent="main",
        children=(helper,),
    )
    log = next(log for log in get_agent_logs(main) if log.agent == "main")
    record, shared = log.record_sizes, log.message_sizes
    heard = log.shared.messages[2]
    assert heard.text == "[helper]\nI have found it."
    plain = default_counter().message(heard)
    size = max(round(plain / (1 + record.plain_count_error)), 1)
    assert (size == 1, size > 2 * plain) == (growth == 40, growth == 4_000)
    assert shared.tokens == (*record.tokens[:2], size, *record.tokens[2:])
    assert shared.source == (*record.source[:2], "estimated", *record.source[2:])
    assert shared.modelled == (1_000, 1_020 + growth + size)
    assert (shared.recorded, shared.fixed_at) == (record.recorded, record.fixed_at)
    assert (shared.session, shared.inserted) == (log.shared, ())


def test_each_speaker_of_one_log_sees_the_others_words_and_calls_with_their_results():
    grep, ls = tool_call("grep", "c1", q="x"), tool_call("ls", "c2")
    log = session(
        user("Go.", id="u", turn=0),
        assistant("I look.", grep, id="a1", agent="A", usage=usage(100)),
        result("found", grep, id="r1", agent="A"),
        assistant("", ls, id="b1", agent="B", thinking="secret", usage=usage(120)),
        result("files", ls, id="r2", agent="B"),
        assistant("B ends.", id="b2", usage=usage(130), agent="B"),
        assistant("A ends.", id="a2", agent="A", kind="turn", usage=usage(9_000)),
        agent="A",
    )
    logs = {one.agent: one for one in get_agent_logs(log)}
    assert list(logs) == ["A", "B"]
    assert all(one.shared is one.record and one.shared.agent == a for a, one in logs.items())

    def list_messages(agent: str) -> list[tuple[Any, ...]]:
        return [
            (m.id, m.role, m.kind, m.agent, m.tool, m.prompt_tokens, m.turn)
            for m in logs[agent].shared.messages
        ]

    assert list_messages("A") == [
        ("u", "user", "", None, None, None, 0),
        ("a1", "assistant", "", "A", None, 100, 0),
        ("r1", "tool", "", "A", "grep", None, 0),
        ("b1.0", "user", "frame", "B", "ls", None, 0),  # without its thinking
        ("b2.0", "user", "heard", "B", None, None, 0),
        ("a2", "assistant", "turn", "A", None, None, 0),  # the usage of a whole turn is no prompt
    ]
    assert list_messages("B") == [
        ("u", "user", "", None, None, None, 0),
        ("a1.0", "user", "heard", "A", None, None, 0),
        ("a1.1", "user", "frame", "A", "grep", None, 0),
        ("b1", "assistant", "", "B", None, 120, 0),
        ("r2", "tool", "", "B", "ls", None, 0),
        ("b2", "assistant", "", "B", None, 130, 0),
        ("a2.0", "user", "heard", "A", None, None, 0),
    ]
    assert logs["A"].shared.messages[-1].usage is None
    heard = logs["B"].shared.messages
    assert [m.text for m in heard[1:3]] == ["[A]\nI look.", '[A called grep({"q":"x"})]\nfound']
    assert [m.details["said"] for m in (heard[1], heard[2], heard[6])] == ["a1", "a1", "a2"]
    assert [(t.agent, t.calls) for t in get_team_turns(log)] == [
        ("A", (0,)),
        ("B", (0, 1)),
        ("A", (1,)),
    ]


def test_a_turn_of_a_log_ends_where_the_agent_or_the_request_changes():
    log = session(
        *(user(turn=0), assistant(agent="A", turn=0), assistant(agent="A", turn=0)),
        *(user(turn=1), assistant(agent="A", turn=1), assistant(agent="B", turn=1)),
        assistant(agent="A", turn=1),
    )
    assert [(t.agent, t.calls) for t in get_team_turns(log)] == [
        ("A", (0, 1)),
        ("A", (2,)),
        ("B", (0,)),
        ("A", (3,)),
    ]


def test_a_log_of_one_speaker_or_without_text_has_no_views():
    helper = session(user(), id="h", agent="helper")  # it never replied
    for alone in (session(user(), assistant()), session(user(), assistant(), children=(helper,))):
        with pytest.raises(BadArguments, match="only one speaks here"):
            get_agent_logs(alone)
    bare = Message(role="assistant", id="b", kind="turn", usage=usage(50))
    with pytest.raises(BadArguments, match="holds no text"):
        get_agent_logs(session(bare))
    assert get_tool_agent_logs(session(user(), assistant(), children=(helper,))) == []


def test_an_agent_that_is_called_as_a_tool_sees_only_its_own_log():
    tool_agent = session(user("Count."), assistant("Three."), id="t", agent="Counter")
    silent = session(user("Count."), id="t2", agent="Silent")
    members = [
        session(user(), assistant(), id=name, agent=name, children=children)
        for name, children in (("A", (tool_agent, silent)), ("B", ()))
    ]
    team = session(details={"team": "pair"}, children=tuple(members))
    (log,) = get_tool_agent_logs(team)
    assert (log.agent, log.record, log.shared) == ("Counter", tool_agent, tool_agent)
    assert log.message_sizes is log.record_sizes
    assert log.record_sizes.session is tool_agent


def test_an_entry_of_a_ledger_is_marked_by_its_source_and_by_whom_it_is_handed_to():
    a, b = (
        session(user("brief", turn=0), assistant("ok", turn=0), id=name, agent=name)
        for name in "AB"
    )
    team = session(
        user("Take over.", id="e1", kind="handoff", details={"for": "B"}),
        user("All see this.", id="e2"),
        make_move("A", from_own=0, own=0, kind="parallel_branch_end"),
        user("B itself says this.", id="e3"),
        make_move("B", from_own=0, own=0),
        details={"team": "pair"},
        children=(a, b),
    )
    shared = next(log.shared for log in get_agent_logs(team) if log.agent == "B").messages
    assert [(m.text, m.details, m.turn) for m in shared] == [
        ("Take over.", {"from": "e1", "for": "B"}, 0),
        ("All see this.", {"from": "e2"}, 0),
        ("brief", {}, 0),
        ("ok", {}, 0),
    ]
    # the first move begins before all entries, also at the end of a branch without a fork
    assert list_shared_texts(team, "A") == ["brief", "ok"]


@pytest.mark.parametrize(
    ("kinds", "entries_n"),
    [
        ((), 0),
        (("task", None), 0),
        (("parallel_start", None), 1),
        (("task", None, "parallel_start"), 3),
        (("parallel_start", None, "parallel_start", None, "parallel_branch_end"), 3),
        ((None, "parallel_start"), 2),
    ],
)
def test_entries_before_parallel_branches_end_with_the_move_that_forks(kinds, entries_n):
    entries = [user("said") if kind is None else make_move("A", kind=kind) for kind in kinds]
    assert count_entries_before_parallel_branches(entries) == entries_n


def test_a_later_turn_of_one_move_sees_nothing_new_and_a_turn_after_all_moves_sees_the_rest():
    a = session(*(assistant(f"A {n}", turn=n) for n in range(2)), id="a", agent="A")
    b = session(*(assistant(f"B {n}", turn=n) for n in (0, 1, 3)), id="b", agent="B")
    c = session(*(assistant(f"C {n}", turn=n) for n in range(2)), id="c", agent="C")
    team = session(
        make_move("C"),  # of its first turn alone
        user("first", id="e1", agent="A"),
        make_move("A", from_own=0, own=0),
        make_move("B", own=1),  # from its first turn on
        user("second", id="e2", agent="A"),
        make_move("A", from_own=1, own=1),
        user("behind the last move", id="e3", agent="A"),
        details={"team": "pair"},
        children=(a, b, c),
    )
    assert list_shared_texts(team, "B") == ["first", "B 0", "B 1", "second", "B 3"]
    assert list_shared_texts(team, "C") == ["C 0", "first", "second", "C 1"]


def test_the_words_of_subagents_are_merged_by_time_and_those_without_a_time_come_first():
    one = session(
        *(assistant("untimed"), assistant("at 2", time=2.0), assistant("at 6", time=6.0)),
        id="one", agent="one",
    )  # fmt: skip
    two = session(
        *(assistant("at 4", time=4.0), assistant("at 0.5", time=0.5), assistant("late", time=7.0)),
        id="two", agent="two",
    )  # fmt: skip
    main = session(
        user("Work."),
        assistant("One.", time=2.0),
        assistant("Two.", time=4.0),  # begins when the call before it has ended
        user("Next.", time=6.0),
        assistant("Three.", time=7.0),
        agent="main",
        children=(one, two),
    )
    texts = [text.replace("]\n", "] ") for text in list_shared_texts(main, "main")]
    assert texts == [
        *("[one] untimed", "Work.", "One.", "[two] at 0.5", "[one] at 2", "Two."),
        *("[two] at 4", "[one] at 6", "Next.", "Three."),
    ]
