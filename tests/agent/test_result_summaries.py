"""Old tool results summarised by a model (ai's `llm`): what it is asked, what stays, what it costs."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, user
from msgspec import structs
from stand_in_models import Says, agent, run, said

import ctxkit as ck
from ctxkit import presets
from ctxkit.agent import tool
from ctxkit.policies import ARCHIVED_STUB, RecordedCompactionsPolicy, Rules
from ctxkit.session import Usage

WORDS = "the table has 40 rows; row 7 is wrong: see /srv/a.csv"


def flood(n: int = 0) -> str:
    """Say much."""
    return f"row {n} " * 4000


def worked(writer, strategy="llm", cutoff=1, **more):
    # in a window in which no compaction of the whole prompt is due
    rules = presets.ai(
        context_window=200_000, tool_call_cutoff=cutoff, tool_summary_strategy=strategy
    )
    calls = [said("", tool_call("flood", f"c{n}", n=n)) for n in range(3)]
    heard = more.pop("heard", [])
    made = agent(*calls, said("done"), rules=rules, tools=[tool(flood)], summary_model=writer,
                 heard=heard)  # fmt: skip
    outcome = run(made.turn("Go"))
    return made, outcome


def test_a_model_is_asked_for_each_result_that_grows_old():
    """A27, A28, A30, A31, A32: It reads 12,000 characters and its words have 1,200 at most; the
    oldest goes first, each at the call at which more are there than may stay.
    """
    writer = Says(said(WORDS), said("x" * 5000))
    made, outcome = worked(writer)
    assert outcome.ended == "answered"
    asked = [r.messages[0].text for r in writer.asked]
    assert len(asked) == 2
    assert "row 0" in asked[0]
    assert "row 1" in asked[1]
    assert 12_000 < len(asked[0]) < 12_700
    view = made.session.view()
    kinds = [(m.role, m.kind) for m in view if m.kind]
    assert kinds.count(("tool", "tool_result_archived")) == 2
    told = [m for m in view if m.kind == "tool_summary"]
    assert [m.role for m in told] == ["user", "user"]
    sent = [request.messages for request in made.model.asked[2:]]  # from the first summary on
    assert [m[-1].kind for m in sent] == ["tool_summary"] * 2  # one at a time, behind all others
    assert [sum(m.kind == "tool_summary" for m in messages) for messages in sent] == [1, 2]
    assert told[0].text.endswith(f"Status: ok\n{WORDS}")
    assert len(told[1].text.split("\n", 4)[-1]) == 1200
    assert [m.text for m in view if m.kind == "tool_result_archived"] == [ARCHIVED_STUB] * 2


def test_the_user_still_sees_what_was_archived_and_not_the_summary():
    """A29, A30, A41: The result is there for the user, whole; the summary is the agent's alone."""
    made, _ = worked(Says(said(WORDS), said(WORDS)))
    table = ck.metrics.audience(made.session)
    results = table[table["role"] == "tool"]
    assert results["user_sees"].all()
    assert results["agent_sees"].tolist() == [False, False, True]
    assert results["kind"].tolist() == ["tool_result_archived"] * 2 + ["tool_result"]
    assert (results["chars"] > 20_000).all()
    summaries = table[table["kind"] == "tool_summary"]
    assert not summaries["user_sees"].any()
    assert summaries["agent_sees"].all()


def test_a_result_that_the_user_did_not_see_stays_hidden_when_it_is_archived():
    """A29: An archived result is as visible to the user as it was before."""
    first, second = (tool_call("bash", f"c{n}", command=f"ls {n}") for n in range(2))
    hidden = structs.replace(result("row " * 3_000, first), details={"user_visible": False})
    at = session(user("Go"), assistant("", first), hidden, assistant("", second),
                 result("row " * 3_000, second), assistant("ok"))  # fmt: skip
    rules = presets.ai(context_window=200_000, tool_call_cutoff=0)
    made = agent(said("done"), at=at, rules=rules, summary_model=Says(said(WORDS), said(WORDS)))
    run(made.turn("Go on"))
    table = ck.metrics.audience(made.session)
    results = table[table["kind"] == "tool_result_archived"]
    assert results["user_sees"].tolist() == [False, True]
    stubs = [m for m in made.session.view() if m.kind == "tool_result_archived"]
    assert [m.details.get("user_visible", True) for m in stubs] == [False, True]


def test_it_is_billed_and_a_replay_of_the_record_sends_the_same():
    """Its cost stands with the edit; what was sent is what the record says."""
    bill = Usage(input_tokens=3000, output_tokens=50)
    made, outcome = worked(Says(said(WORDS, usage=bill), said(WORDS, usage=bill)))
    edits = [e for e in made.session.edits if e.usage is not None]
    assert [e.usage.input_tokens for e in edits] == [3000, 3000]
    assert {e.trigger for e in made.session.edits} == {"tool_summary"}
    assert outcome.spent.fresh >= 6000
    again = ck.replay(made.session, Rules(policy=RecordedCompactionsPolicy()))
    for call in range(4):
        texts = [m.text for m in again.view(call)]
        assert texts == [m.text for m in made.session.view(call)]


@pytest.mark.parametrize("failing", [RuntimeError("down"), said("  ")])
def test_where_the_model_fails_an_excerpt_stands_there(failing):
    """A33: As without a model; nothing is archived."""
    writer = Says(*[failing] * 9)
    made, outcome = worked(writer)
    assert outcome.ended == "answered"
    assert made.session.edits == ()
    sent = [m.text for m in made.model.asked[-1].messages if m.role == "tool"]
    assert sent[0].startswith("[Tool output summary]\nTool: flood")


@pytest.mark.parametrize("strategy", ["heuristic", "off"])
def test_other_strategies_ask_nobody(strategy):
    """A34: Only `llm` does, and only beyond the cutoff."""
    writer = Says()
    assert worked(writer, strategy)[0].session.edits == ()
    assert worked(writer, cutoff=9)[0].session.edits == ()
    assert writer.asked == []
