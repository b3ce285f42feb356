"""What models, tools and killed kernels leave behind: the session stays one that every provider takes."""

from __future__ import annotations

import asyncio
import time

import pytest
from builders import assistant, result, session, tool_call, user
from stand_in_models import COUNT, ECHO, USAGE, Says, agent, run, said

import ctxkit as ck
from ctxkit.agent import Limits, ModelSummariser, SpentInTurn, tool
from ctxkit.engine import make_log_from_session
from ctxkit.errors import BadArguments, ModelError
from ctxkit.formats import MISSING_RESULT, to_chat_messages
from ctxkit.policies import Above, Clear, History, Rules, SummariserInput, Summary
from ctxkit.session import Thinking, ToolCall, Usage

# -- pairs ---------------------------------------------------------------------------------------------------------------


def test_calls_that_a_killed_kernel_left_open_are_answered_before_the_next_prompt():
    asked = assistant("", tool_call("echo", "c1"), tool_call("echo", "c2"))
    a = agent(at=session(user(), asked, result("first", asked)))
    run(a.turn("go on"))
    shown = a.model.asked[0].messages
    assert [m.role for m in shown] == ["user", "assistant", "tool", "tool", "user"]
    assert (shown[3].call_id, shown[3].text) == (
        "c2",
        "The session ended before this call's result was kept; whether it ran is not known.",
    )
    assert shown[3].turn == shown[1].turn or shown[3].turn is None or shown[3].turn < shown[4].turn


def test_calls_of_one_id_get_ids_of_their_own():
    twice = said(
        ToolCall("call_0", "echo", {"x": "a"}), ToolCall("call_0", "echo", {"x": "b"}), stop="tool"
    )
    again = said(
        ToolCall("call_0", "echo", {"x": "c"}), ToolCall("", "echo", {"x": "d"}), stop="tool"
    )
    a = agent(twice, again, tools=[ECHO])
    assert run(a.turn("go")).text == "done"
    ids = [c.id for m in a.session.messages for c in m.tool_calls]
    assert len(set(ids)) == len(ids) == 4
    assert "" not in ids
    answers = {m.call_id: m.text for m in a.session.messages if m.role == "tool"}
    assert list(answers.values()) == ["<a>", "<b>", "<c>", "<d>"]
    assert list(answers) == ids


def test_a_chat_has_each_result_after_its_call_and_no_other():
    asked, late = (
        assistant("", tool_call("echo", "c1"), tool_call("echo", "c2")),
        result("late", "c2"),
    )
    orphan = result("orphan", "c9")
    chat = to_chat_messages(
        [
            user("a"),
            asked,
            user("b"),
            late,
            orphan,
            assistant(""),
            assistant("", thinking="hm"),
            user("c"),
        ]
    )
    assert [m["role"] for m in chat] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [m["content"] for m in chat[2:4]] == [MISSING_RESULT, "late"]
    assert [m["tool_call_id"] for m in chat[2:4]] == ["c1", "c2"]


# -- odd replies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reply", "why"), [
    (said(), "empty reply"), (said(Thinking("hm")), "thought, and gave no answer"), (said("  "), "empty reply"),
    (said(stop="pause_turn"), "empty reply (it ended with pause_turn)"),
])  # fmt: skip
def test_an_empty_reply_ends_the_turn_and_is_said(reply, why):
    outcome = run(agent(reply).turn("go"))
    assert outcome.ended == "answered"
    assert why in outcome.account()


def test_a_reply_with_calls_that_was_cut_runs_them_and_compacts():
    at = session(*(m for i in range(9) for m in (user(f"{i} " + "x" * 3000), assistant("ok"))))
    cut = said("half", ToolCall("c1", "echo", raw='{"x": "unfin'), stop="length")
    rules = Rules(policy=Summary(keep_tokens=2_000), trigger=Above(10**6), counter=COUNT)
    a = agent(cut, at=at, rules=rules, tools=[ECHO], summary_model=Says(said("notes")))
    assert run(a.turn("go")).text == "done"
    assert [e.trigger for e in a.session.edits] == ["length"]
    assert "no JSON object" in a.model.asked[1].messages[-1].text


def test_a_reply_cut_again_and_again_is_given_up_and_said():
    a = agent(*[said("half", stop="length")] * 9, limits=Limits(attempts=2))
    outcome = run(a.turn("go"))
    assert "cut by its limit" in outcome.account()
    asked = [r for r in a.model.asked if r.tools]  # the others are summaries
    assert len(asked) == 3
    assert asked[1].messages[-1].text.startswith("Your reply was cut")


def test_a_call_without_usage_is_counted_by_the_limits_and_said():
    asks = [
        said(ToolCall(f"c{i}", "echo", {"x": "y" * 4000}), stop="tool", usage=None)
        for i in range(9)
    ]
    outcome = run(agent(*asks, tools=[ECHO], limits=Limits(tokens=5_000)).turn("go"))
    assert outcome.ended == "limit"
    assert 0 < outcome.spent.unbilled <= 5_000
    assert "told no usage" in outcome.account()


def test_halves_of_characters_are_kept_as_question_marks():
    odd = said("a\ud83d", ToolCall("c1", "echo", {"x": "b\ud83d", "\udc00": 1}), stop="tool")
    a = agent(odd, tools=[ECHO])
    run(a.turn("go \ud83d"))
    a.session.log[0].text.encode()
    assert a.session.messages[0].text == "go ?"
    assert a.session.messages[1].tool_calls[0].arguments == {"x": "b?", "?": 1}


def test_a_model_that_raises_anything_ends_the_turn_with_an_error():
    outcome = run(agent(ValueError("no such thing")).turn("go"))
    assert outcome.ended == "error"
    assert "ValueError: no such thing" in outcome.why


def test_a_foreign_overflow_is_recovered_from():
    a = agent(RuntimeError("prompt is too long: 9 tokens > 8 maximum"))
    outcome = run(a.turn("go"))
    assert outcome.text == "done"
    assert len(a.model.asked) == 2


# -- limits --------------------------------------------------------------------------------------------------------------


class Hangs(Says):
    async def __call__(self, request, emit):
        self.asked.append(request)
        await asyncio.sleep(3600)


def test_a_hung_model_ends_at_the_limit_in_seconds():
    a = agent(model=Hangs(), limits=Limits(seconds=0.05), clock=lambda: 1.8e9)
    outcome = run(a.turn("go"))
    assert (outcome.ended, outcome.why) == ("limit", "stopped at the limit of 0.05 seconds")
    assert a.session.messages[-1].error == "stopped at the limit of 0.05 seconds"


def test_a_hung_tool_ends_there_too_and_has_its_result():
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(3600)

    reply = said(ToolCall("c1", "wait"), stop="tool")
    a = agent(reply, tools=[tool(wait)], limits=Limits(seconds=0.5), clock=lambda: 1.8e9)
    assert run(a.turn("go")).ended == "limit"
    assert a.session.messages[-1].text == "Stopped at the limit of 0.5 seconds, before it ended."


@pytest.mark.parametrize("later", [True, False], ids=["the limit holds after it", "in time"])
def test_the_time_that_a_person_thinks_is_not_the_turns(later):
    """A minute of thought passes a limit of 30 s; a tool that takes as long is ended by it."""
    passed = 0.0

    def now() -> float:
        return time.monotonic() + passed

    async def takes_a_minute():
        nonlocal passed
        passed += 60  # as the clock and the loop see it
        await asyncio.sleep(0.01)

    async def thinks(_call):
        await takes_a_minute()
        return True

    async def wait() -> str:
        """Wait."""
        if later:
            await takes_a_minute()

    async def turn():
        asyncio.get_running_loop().time = now
        return await a.turn("go")

    reply = said(ToolCall("c1", "wait"), stop="tool")
    a = agent(reply, tools=[tool(wait)], limits=Limits(seconds=30), clock=now, approve=thinks)
    outcome = run(turn())
    assert outcome.ended == ("limit" if later else "answered")
    assert (outcome.spent.seconds > 60) is later


def test_a_limit_that_cannot_be_kept_leaves_no_trace():
    class Paid(Says):
        name, notice = "nobody/knows", ""

    a = agent(model=Paid(), limits=Limits(cost_usd=1))
    with pytest.raises(BadArguments):
        run(a.turn("go"))
    assert not a.session.log


def test_retries_after_an_overflow_keep_to_the_limit_of_calls():
    a = agent(*[ModelError("too long", overflow=True)] * 9, limits=Limits(calls=2, attempts=9))
    assert run(a.turn("go")).ended == "limit"
    assert len(a.model.asked) == 2


def test_a_paid_summary_is_billed_beside_a_free_model():
    spent = SpentInTurn(free=True)
    spent.add(Usage(input_tokens=1_000, output_tokens=10), "scripted/x")
    assert spent.cost_usd == 0
    spent.add_summary(
        Usage(input_tokens=1_000_000, output_tokens=0), "claude-sonnet-4-5", free=False
    )
    assert spent.cost_usd > 1


# -- interrupted summaries -----------------------------------------------------------------------------------------------

FULL = Rules(policy=Summary(keep_tokens=2_000), trigger=Above(4_000), counter=COUNT)


def test_a_turn_stopped_while_it_is_summarised_leaves_the_context_as_it_was():
    at = session(*(m for i in range(9) for m in (user(f"{i} " + "x" * 3000), assistant("ok"))))
    writer = Hangs()
    a = agent(at=at, rules=FULL, summary_model=writer)

    async def go():
        task = asyncio.ensure_future(a.turn("go"))
        while not writer.asked:  # noqa: ASYNC110  the model knows no event
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(go())
    assert not a.session.edits
    assert a.compactor.context.messages == len(a.session.messages)
    a.compactor._summary_model = Says(said("notes"))
    assert run(a.turn("again")).text == "done"
    assert [e.inserted[0].text for e in a.session.edits] == ["notes"]


def test_a_summary_that_would_pass_a_limit_is_not_asked_for():
    loop, writer = asyncio.new_event_loop(), Says()
    log = History.start(make_log_from_session(session(user("x" * 400))))
    write = ModelSummariser(
        writer, loop, exceeded_limit=lambda tokens: "the limit of 1 calls" if tokens > 100 else None
    )
    with pytest.raises(ModelError, match="would exceed the limit of 1 calls"):
        write(SummariserInput(log, 1))
    loop.close()
    assert not writer.asked


def test_a_stopped_summariser_asks_for_no_further_summary():
    loop, model = asyncio.new_event_loop(), Says()
    log = History.start(make_log_from_session(session(user("x" * 400))))
    write = ModelSummariser(model, loop, seconds=0.05)  # nothing runs the loop: it cannot answer
    write.stop()
    with pytest.raises(ModelError, match="The turn was stopped before the summary was written"):
        write(SummariserInput(log, 1))
    loop.close()
    assert write.request_count == 0


def test_a_turn_that_used_up_its_calls_leaves_a_compaction_by_hand_its_own():
    writer = Says(said("SUMMARY: the ids"))
    a = agent(said("one " * 900), said("two " * 900), limits=Limits(calls=1), summary_model=writer)
    run(a.turn("first " * 400))
    run(a.turn("second"))
    (edit,) = run(a.compact(Summary(keep_turns=1)))
    assert "SUMMARY: the ids" in edit.inserted[0].text
    assert edit.usage == USAGE


def test_another_models_window_is_noted_at_its_calls():
    at = session(user(), assistant(), context_window=16_000)
    a = agent(said("one"), ModelError("down"), at=at)  # its model takes 50,000
    run(a.turn("go"))
    run(a.turn("go"))
    assert [c.message.context_window for c in a.session.calls] == [None, 50_000, 50_000]
    assert ck.report(a.session).limit == 50_000


def test_a_turn_that_sends_nothing_says_how_full_the_context_is():
    a = agent(at=session(user("x" * 4_000), assistant()), limits=Limits(tokens=100))
    assert 1_000 < run(a.turn("go")).context_tokens < 1_200


def test_limits_and_gauges_count_what_is_sent_after_pruning():
    asked = assistant("", tool_call("echo", "c1"))
    at = session(user(), asked, result("z" * 40_000, asked), assistant())
    a = agent(
        at=at, rules=Rules(counter=COUNT, pruning=Clear(keep_last=0)), limits=Limits(tokens=1_000)
    )
    assert a.compactor.context.tokens > 10_000 > 1_000 > a.compactor.context.next_prompt_tokens
    outcome = run(a.turn("go"))
    assert outcome.ended == "answered"
    assert outcome.context_tokens < 1_000


def test_an_overflow_that_the_rules_did_not_expect_is_compacted_all_the_same():
    heard, full = [], ModelError("prompt is too long", overflow=True)
    rules = Rules(counter=COUNT, policy=Summary(keep_share=0.5), trigger=Above(40_000))
    talk = (m for i in range(4) for m in (user(f"{i} " + "x " * 800), assistant("ok")))
    a = agent(full, said("notes"), said("fits"), at=session(*talk), rules=rules, heard=heard)
    outcome = run(a.turn("go"))
    assert (outcome.text, outcome.compactions) == ("fits", 1)
    ended = [e.payload["outcome"] for e in heard if e.kind == "compaction_end"]
    assert ended == ["compacted"]
    assert not [e for e in heard if e.kind == "context_exceeded_recovery"]


def test_after_a_compaction_all_three_stages_are_tried():
    heard, full = [], ModelError("prompt is too long", overflow=True)
    talk = (m for i in range(4) for m in (user(f"{i} " + "x " * 800), assistant("ok")))
    model = Says(full, full, full, full, said("fits"))
    a = agent(model=model, at=session(*talk), heard=heard, summary_model=Says(said("notes")))
    assert run(a.turn("go")).text == "fits"
    assert [e.payload["stage"] for e in heard if e.kind == "context_exceeded_recovery"] == [1, 2, 3]
