"""A log that grows: the calls that it knows by their replies alone."""

from __future__ import annotations

import pytest
from builders import assistant, result, tool_call, user
from random_sessions import Fours

from ctxkit.policies import History, MessageLog


def test_a_call_known_by_its_reply_alone_was_sent_its_latency_before():
    """Without a latency it was sent when the message before it came."""
    log = MessageLog(Fours())
    log.append(user("Go on.", time=1_000.0))
    log.append(assistant("So.", time=1_100.0, latency=30.0))
    log.append(user("And?", time=1_200.0))
    log.append(assistant("So.", time=1_300.0))
    assert (log.sent, log.end_times) == ([1_070.0, 1_200.0], [1_100.0, 1_300.0])


@pytest.mark.parametrize(
    ("tool", "of", "name"),
    [("bash", "c1", "bash"), (None, "c1", "read_file"), (None, "c9", ""), ("bash", "c9", "bash")],
)
def test_the_tool_of_a_result_is_its_own_else_that_of_its_call(tool, of, name):
    """No call has the id c9."""
    asked = assistant("", tool_call("write_file", "c0"), tool_call("read_file", "c1"))
    rest = [user("Go on."), asked, result("1", "c0", "write_file"), result("2", of, tool)]
    log = MessageLog.of(rest, Fours())
    assert [log.tool(row) for row in range(4)] == ["", "", "write_file", name]


def test_what_a_call_is_billed_later_is_in_the_sums_of_its_agent():
    """Each agent has running sums of its calls and of their prompts, 10 tokens per message."""
    log = MessageLog(Fours())
    log.append(user("x" * 40))
    log.append(assistant("y" * 40, agent="planner"))
    log.append(user("x" * 40))
    log.append(assistant("y" * 40, agent="writer"))
    assert log.spending() == {
        "planner": ([0, 1, 1], [0, 10, 10]),
        "writer": ([0, 0, 1], [0, 0, 30]),
    }
    log.bill_extra(7)
    assert log.spending() == {
        "planner": ([0, 1, 1], [0, 10, 10]),
        "writer": ([0, 0, 1], [0, 0, 37]),
    }


@pytest.mark.parametrize("name", ["tokens", "chars", "roles", "turns", "stays"])
def test_a_column_of_a_log_cannot_be_changed(name):
    """Neither the log's own column nor that of a history, before and after the log grows."""
    log = MessageLog(Fours())
    for _ in range(3):
        log.append(user("x" * 40))
        call = log.open()
        log.append(assistant("y" * 40))
        for column in (log.column(name), History.start(log, call).column(name)):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 1
