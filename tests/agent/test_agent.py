"""A turn asks, runs tools, compacts, recovers, stops at limits, and leaves a whole session whatever happens."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from builders import assistant, session, tool_call, user

import ctxkit as ck
from ctxkit import presets, tokens
from ctxkit.agent import (
    SCRIPT_OVER,
    Agent,
    Delta,
    Limits,
    RootFolder,
    ScriptedModel,
    get_script,
    make_file_tools,
    tool,
)
from ctxkit.errors import BadArguments, ModelError
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import Message, Text, Usage
from ctxkit.tokens import estimate_schema_tokens

COUNT = tokens.get_counter("chars/4")


def clock():
    ticks = count(1_800_000_000)
    return lambda: float(next(ticks))


def scripted(*turns, **more):
    return ScriptedModel(turns, name="test", counter=COUNT, clock=clock(), **more)


def agent(model, rules=None, *, tools=(), heard=None, at=None, **more):
    hear = heard.append if heard is not None else lambda _: None
    return Agent(
        at or session(),
        model=model,
        rules=rules or Rules(counter=COUNT),
        tools=tools,
        clock=clock(),
        listener=hear,
        **more,
    )


def run(coroutine):
    return asyncio.run(coroutine)


def audit(tmp_path, rules, heard=None, **more):
    """Run the whole long script with real tools."""
    made = get_script("audit")
    a = agent(
        scripted(*made.turns, context_window=32_000),
        rules,
        tools=make_file_tools(RootFolder(tmp_path)),
        heard=heard,
        **more,
    )
    outcomes = [run(a.turn(p)) for p in made.prompts]
    return a, outcomes


COMPACTING = Rules(
    policy=Summary(keep_tokens=4_000), trigger=Above(12_000), counter=COUNT, window=32_000
)


def test_a_turn_runs_tools_until_it_is_answered(tmp_path):
    made, heard = get_script("tour"), []
    a = agent(scripted(*made.turns), tools=make_file_tools(RootFolder(tmp_path)), heard=heard)
    outcome = run(a.turn(made.prompts[0]))
    assert outcome.ended == "answered"
    assert "heat.py" in outcome.text
    assert (tmp_path / "heat.py").exists()
    assert [m.role for m in a.session.messages] == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert [e.kind for e in heard if e.kind.startswith("tool")] == ["tool_call", "tool_result"] * 3
    assert {m.turn for m in a.session.messages} == {0}


def test_the_next_turn_is_the_next_turn_of_the_script(tmp_path):
    made = get_script("tour")
    a = agent(scripted(*made.turns), tools=make_file_tools(RootFolder(tmp_path)))
    texts = [run(a.turn(p)).text for p in (*made.prompts, "and now?")]
    assert "30 and is 32" in texts[1]
    assert texts[3] == SCRIPT_OVER


def test_the_rules_compact_before_a_call_and_the_edit_is_kept(tmp_path):
    heard = []
    a, outcomes = audit(tmp_path, COMPACTING, heard)
    assert len(a.session.edits) >= 2
    assert sum(o.compactions for o in outcomes) == len(a.session.edits)
    assert all(e.tokens_after < e.tokens_before for e in a.session.edits)
    assert max(o.context_tokens for o in outcomes) <= 12_000
    assert [e.kind for e in heard if e.kind.startswith("compaction")].count(
        "compaction_end"
    ) == len(a.session.edits)
    assert outcomes[-1].text.startswith("All 8 ledgers are mended")


def test_live_and_replay_agree_call_by_call(tmp_path):
    """A live session, and a replay of its own record under the same rules: the same prompts, the same edits."""
    a, _ = audit(tmp_path, COMPACTING)
    live = a.session
    sizes = [COUNT.message(m) for m in live.messages]
    again = ck.replay(
        live,
        COMPACTING,
        tokens=sizes,
        fixed=estimate_schema_tokens(t.schema for t in a.tools.values()),
    )
    assert [c.message.usage.prompt_tokens for c in again.calls] == [
        c.message.usage.prompt_tokens for c in live.calls
    ]
    assert [(e.targets, e.inserted[0].text) for e in again.edits] == [
        (e.targets, e.inserted[0].text) for e in live.edits
    ]
    assert [[m.text for m in v] for _, v in again.views()] == [
        [m.text for m in v] for _, v in live.views()
    ]


def test_a_session_goes_on_with_its_edits_in_force(tmp_path):
    whole, _ = audit(tmp_path / "whole", COMPACTING)
    made = get_script("audit")
    first = agent(
        scripted(*made.turns, context_window=32_000),
        COMPACTING,
        tools=make_file_tools(RootFolder(tmp_path / "halves")),
    )
    for p in made.prompts[:5]:
        run(first.turn(p))
    second = agent(
        scripted(*made.turns, context_window=32_000),
        COMPACTING,
        tools=make_file_tools(RootFolder(tmp_path / "halves")),
        at=first.session,
    )
    for p in made.prompts[5:]:
        run(second.turn(p))
    assert [len(v) for _, v in second.session.views()] == [len(v) for _, v in whole.session.views()]
    assert len(second.session.edits) == len(whole.session.edits)


def test_a_resumed_session_over_its_threshold_is_compacted_before_the_first_call():
    at = session(
        *(m for i in range(40) for m in (user(f"{i} " + "x" * 2000), assistant("ok " * 100)))
    )
    a = agent(scripted(*[(assistant("r"),)] * 50), COMPACTING, at=at)
    run(a.turn("go on"))
    assert len(a.session.edits) == 1
    assert isinstance(a.session.path[-2], ck.Edit)


# -- overflow, cut replies, failed summaries -----------------------------------------------------------------------------


class Failing:
    """A model that fails a number of times and then answers."""

    name, notice, context_window = "test/failing", "test model", 50_000

    def __init__(self, *errors: Exception, reply: Message | None = None) -> None:
        self.errors, self.asked = list(errors), []
        self.answer = reply or Message(
            role="assistant",
            parts=(Text("fine"),),
            stop="stop",
            usage=Usage(input_tokens=10, output_tokens=1),
        )

    async def __call__(self, request, emit):
        self.asked.append(request)
        if self.errors:
            raise self.errors.pop(0)
        return self.answer


def make_priced(name, input_tokens):
    """Return a model with a price whose calls report so many input tokens."""
    usage = Usage(input_tokens=input_tokens, output_tokens=50)
    model = Failing(
        reply=Message(
            role="assistant", parts=(Text("notes"),), stop="stop", usage=usage, model=name
        )
    )
    model.name, model.notice = name, ""
    return model


TOO_LONG = ModelError("prompt is too long", overflow=True)


def long_session(prefix=""):
    log = []
    for i in (f"{prefix}{n}" for n in range(6)):
        asked = assistant("", tool_call("read_file", f"c{i}", path=f"f{i}"))
        log += [
            user(f"ask {i}"),
            asked,
            Message(
                role="tool",
                id=f"t{i}",
                parts=(Text("y" * 9000),),
                call_id=f"c{i}",
                tool="read_file",
            ),
            assistant("ok"),
        ]
    return session(*log)


def test_an_overflow_is_answered_by_one_compaction_and_a_retry():
    model, heard = Failing(TOO_LONG), []
    a = agent(model, Rules(policy=Summary(keep_tokens=3_000), trigger=Above(10**6), counter=COUNT), at=long_session(), heard=heard,
              summary_model=Failing())  # fmt: skip
    outcome = run(a.turn("go on"))
    assert outcome.ended == "answered"
    assert a.session.edits[-1].trigger == "overflow"
    assert len(model.asked[1].messages) < len(model.asked[0].messages)
    assert a.session.calls[-2].message.is_error
    assert not any(m.is_error for m in a.session.view(-1))


@pytest.mark.parametrize(
    ("window", "errors", "trigger"),
    [(100_000, [TOO_LONG], "overflow"), (50_000, [], "window_size")],
)
def test_fased_unasked_compacts_a_full_session_and_sends_a_refused_request_again(
    window, errors, trigger
):
    """D16: With the settings that hold where a file says none, a session that is near its window is
    compacted, and a refused request is sent again: the same question, behind a summary.
    """
    log = [m for n in range(4) for m in long_session(f"{n}-").messages]
    model, rules = Failing(*errors), presets.fased(context_window=window)
    a = agent(model, rules, at=session(*log), summary_model=Failing())
    assert run(a.turn("go on")).ended == "answered"
    (edit,) = a.session.edits
    assert edit.trigger == trigger
    asked = [[m.text for m in request.messages] for request in model.asked]
    assert [texts[-1] for texts in asked] == ["go on"] * (len(errors) + 1)
    assert [edit.inserted[0].text in texts for texts in asked] == [False] * len(errors) + [True]
    assert len(asked[-1]) < len(log)


def test_an_overflow_that_stays_is_trimmed_in_three_stages_and_given_up():
    model, heard = Failing(*[TOO_LONG] * 9), []
    a = agent(
        model, at=long_session(), heard=heard, limits=Limits(attempts=5), summary_model=Failing()
    )
    assert run(a.turn("go on")).ended == "error"
    stages = [e.payload["chars"] for e in heard if e.kind == "context_exceeded_recovery"]
    assert stages == [4000, 500, 0]
    assert [sum(len(m.text) for m in r.messages if m.role == "tool") > 0 for r in model.asked][
        -1
    ] is False


def test_attempts_are_bounded():
    model = Failing(*[TOO_LONG] * 9)
    run(
        agent(model, at=long_session(), limits=Limits(attempts=2), summary_model=Failing()).turn(
            "go on"
        )
    )
    assert len(model.asked) == 3


def test_another_error_is_not_retried():
    model = Failing(ModelError("no such model"))
    outcome = run(agent(model).turn("hi"))
    assert (outcome.ended, outcome.why) == ("error", "no such model")
    assert len(model.asked) == 1


def test_a_reply_cut_by_length_forces_a_compaction():
    cut = Message(
        role="assistant",
        parts=(Text("half"),),
        stop="length",
        usage=Usage(input_tokens=10, output_tokens=1),
    )
    model = Failing(reply=cut)
    a = agent(
        model,
        Rules(policy=Summary(keep_tokens=3_000), trigger=Above(10**6), counter=COUNT),
        at=long_session(),
        summary_model=Failing(),
    )
    run(a.turn("go on"))
    assert a.session.edits[0].trigger == "length"
    assert len(model.asked) <= 1 + Limits().attempts


def test_a_failed_summary_leaves_the_marker_and_the_whole_tail():
    broken = Failing(*[ModelError("summary model is down")] * 9)
    rules = Rules(policy=Summary(keep_tokens=3_000), trigger=Above(10**6), counter=COUNT)
    a = agent(Failing(TOO_LONG), rules, at=long_session(), summary_model=broken)
    run(a.turn("go on"))
    assert not a.session.edits
    shown = a.session.view()
    assert any("COMPACTION FAILED" in m.text for m in shown)
    assert sum("y" * 9000 in m.text for m in shown) == 6


def test_a_summary_models_cost_is_carried_by_the_summary():
    writer = Failing(
        reply=Message(
            role="assistant",
            parts=(Text("notes"),),
            usage=Usage(input_tokens=4_000, output_tokens=50),
        )
    )
    rules = Rules(policy=Summary(keep_tokens=3_000), trigger=Above(5_000), counter=COUNT)
    a = agent(Failing(), rules, at=long_session(), summary_model=writer)
    run(a.turn("go on"))
    (edit,) = a.session.edits
    assert edit.inserted[0].text.startswith("notes")
    assert edit.usage.input_tokens == 4_000 * len(writer.asked)
    assert edit.model == "test/failing"


def test_a_budget_is_exact_across_a_compaction():
    """F83: The turns that went stay in the sum, and the call that wrote the summary comes to it."""
    writer = make_priced("claude-haiku-4-5", 4_000)
    rules = Rules(policy=Summary(keep_turns=1), trigger=Above(10**6), counter=COUNT)
    a = agent(make_priced("claude-opus-4-5", 1_000), rules, summary_model=writer)
    spent = [run(a.turn(f"ask {n} " + "x" * 4_000)).spent.cost_usd for n in range(3)]
    before = ck.frame(a.session, per="session").iloc[0]
    assert before["cost_usd"] == pytest.approx(sum(spent))
    (edit,) = run(a.compact())
    after = ck.frame(a.session, per="session").iloc[0]
    assert len(a.session.view()) < len(a.session.messages)
    assert after["calls_usd"] == before["calls_usd"]
    assert after["cost_usd"] == pytest.approx(
        before["cost_usd"] + ck.prices.cost_usd(edit.usage, writer.name)
    )


# -- limits, by hand, interrupts -----------------------------------------------------------------------------------------


def test_a_limit_stops_before_the_call_that_would_pass_it(tmp_path):
    made = get_script("tour")
    a = agent(
        scripted(*made.turns), tools=make_file_tools(RootFolder(tmp_path)), limits=Limits(calls=2)
    )
    outcome = run(a.turn("go"))
    assert (outcome.ended, outcome.spent.calls) == ("limit", 2)
    assert "2 calls" in outcome.account()


def test_a_limit_in_dollars_stops_before_the_call_with_the_counted_prompt():
    class Dear(Failing):
        name, notice = "claude-opus-4-5", ""

    model = Dear()
    outcome = run(agent(model, at=long_session(), limits=Limits(cost_usd=0.001)).turn("go on"))
    assert outcome.ended == "limit"
    assert model.asked == []


def test_a_limit_in_dollars_needs_a_price():
    class Unknown(Failing):
        name, notice = "nobody/knows", ""

    with pytest.raises(BadArguments, match="No price"):
        run(agent(Unknown(), limits=Limits(cost_usd=1)).turn("hi"))


def test_the_agent_may_ask_for_a_compaction():
    asked = assistant("", tool_call("compact_conversation"))
    a = agent(
        scripted((asked, assistant("done"))),
        Rules(policy=Summary(keep_tokens=3_000), trigger=Above(10**6), counter=COUNT),
    )
    a.move(long_session())
    a.model.turns = ((),) * 6 + ((asked, assistant("done")),)
    run(a.turn("tidy up"))
    assert a.session.edits[0].trigger == "agent_requested"


def test_by_hand_with_a_focus_and_too_little_to_compact():
    a = agent(scripted((assistant("r"),)))
    assert run(a.compact()) == ()
    a.move(long_session())
    (edit,) = run(a.compact(focus="file f3"))
    assert edit.trigger == "manual"
    assert a.session.view()[0].role == "summary"


def test_an_interrupt_keeps_the_partial_turn(tmp_path):
    started = asyncio.Event()

    async def slow() -> str:
        """Wait."""
        started.set()
        await asyncio.sleep(60)
        return "never"

    asked = assistant("", tool_call("slow", "c1"), tool_call("slow", "c2"))
    a = agent(scripted((asked, assistant("done"))), tools=[tool(slow)])

    async def go():
        task = asyncio.ensure_future(a.turn("go"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(go())
    results = [m for m in a.session.messages if m.role == "tool"]
    assert [m.call_id for m in results] == ["c1", "c2"]
    assert all("Interrupted" in m.text for m in results)
    a.model.turns = ((), (assistant("back"),))
    assert run(a.turn("go on")).text == "back"


def test_an_interrupt_of_a_reply_keeps_and_counts_what_came():
    heard = []

    class Slow:
        name, notice, context_window = "test/slow", "test model", 50_000

        async def __call__(self, request, emit):
            emit(Delta("text", "Half a "))
            emit(Delta("text", "sentence"))
            started.set()
            await asyncio.sleep(60)

    a = agent(Slow(), heard=heard)

    async def go():
        task = asyncio.ensure_future(a.turn("go"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = asyncio.Event()
    run(go())
    cancelled = [e.payload for e in heard if e.kind == "cancelled"]
    assert cancelled == [{"chars": 15, "why": "interrupted by the user"}]
    reply = a.session.messages[-1]
    assert (reply.text, reply.stop, reply.error) == (
        "Half a sentence",
        "aborted",
        "interrupted by the user",
    )
    assert a.compactor.context.log.replies == [reply]  # of the one call, which has ended


def test_a_tool_that_fails_is_a_result_and_not_the_end():
    def broken() -> str:
        raise RuntimeError("boom")

    asked = assistant("", tool_call("broken"), tool_call("brocken"))
    a = agent(scripted((asked, assistant("done"))), tools=[tool(broken)])
    assert run(a.turn("go")).text == "done"
    first, second = [m for m in a.session.messages if m.role == "tool"]
    assert "boom" in first.text
    assert first.is_error
    assert "Did you mean 'broken'" in second.text


def test_a_call_that_is_not_approved_does_not_run():
    ran = []

    def act() -> str:
        ran.append(1)
        return "acted"

    a = agent(
        scripted((assistant("", tool_call("act")), assistant("done"))),
        tools=[tool(act)],
        approve=lambda _: False,
    )
    run(a.turn("go"))
    assert not ran
    assert "did not allow" in a.session.messages[2].text


def test_an_empty_prompt_is_refused():
    with pytest.raises(BadArguments):
        run(agent(scripted()).turn("  "))
