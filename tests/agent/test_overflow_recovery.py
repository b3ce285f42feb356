"""Refused prompts are trimmed by the document's stages; a reply cut by its length is continued with its question."""

from __future__ import annotations

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from builders import assistant, result, session, tool_call, user
from stand_in_models import COUNT, Says, agent, run, said

from ctxkit import presets
from ctxkit.agent import Limits, ProviderModel
from ctxkit.errors import ModelError
from ctxkit.presets import preset
from ctxkit.session import is_overflow
from ctxkit.session.overflow_errors import SHAPE_TEXTS, is_malformed_prompt

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM leaves connections to be collected
REFUSALS = {
    "413": (413, "Request Entity Too Large"),
    **{f"{row.provider}: {row.pattern[:20]}": (400, row.sample) for row in SHAPE_TEXTS},
}


def read_much():
    """A read of a file that is written later, and another one."""
    read, write = (
        tool_call("read_file", path="a.py"),
        tool_call("write_file", path="a.py", content="n"),
    )
    other = tool_call("read_file", path="b.py")
    return session(user("go"), assistant("", read), result("r" * 9_000, read), assistant("", other),
                   result("s" * 9_000, other), assistant("", write), result("Wrote it.", write), assistant("ok"))  # fmt: skip


def tool_lengths(body):
    return [len(m["content"]) for m in body["messages"] if m["role"] == "tool"]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_refused_prompt_is_sent_again_by_stages(refusal, times):
    status, words = REFUSALS[refusal]
    plays = [*[Play(status=status, said=words)] * times, Play("It is so.")]
    with wire("chat", *plays) as up:
        model = ProviderModel(FORMATS["chat"][0], context_window=200_000,
                         options={"api_base": up.url, "api_key": "none"})  # fmt: skip
        rules = presets.fuseraft(mode="window")
        outcome = run(agent(at=read_much(), model=model, rules=rules.but(counter=COUNT)).turn("on"))
    assert (outcome.ended, outcome.text.strip()) == ("answered", "It is so.")
    stages = [tool_lengths(body) for body in up.asked]
    assert stages[0] == [9_000, 9_000, 9]
    if status != 413:  # 413 compacts first, where there is something to drop
        assert stages[1:] == [[565, 4065, 9], [565, 565, 9], []][:times]


@pytest.mark.parametrize("row", SHAPE_TEXTS, ids=lambda row: row.pattern[:20])
def test_no_rules_have_to_ask_for_the_stages(row):
    """F108: Rules without a policy, a trigger or a pruning: all three stages are tried."""
    one = agent(*[ModelError(row.sample)] * 3, said("It is so."), at=read_much())
    assert run(one.turn("on")).text == "It is so."
    lengths = [[len(m.text) for m in r.messages if m.role == "tool"] for r in one.model.asked]
    assert lengths == [[9_000, 9_000, 9], [565, 4065, 9], [565, 565, 9], []]


@pytest.mark.parametrize("row", SHAPE_TEXTS, ids=lambda row: row.pattern[:20])
def test_a_malformed_prompt_is_no_overflow(row):
    assert is_malformed_prompt(row.sample)
    assert not is_overflow(row.sample)


@pytest.mark.parametrize(
    "text", ["max_tokens must be positive", "Invalid API key", "tool_choice is not supported"]
)
def test_other_errors_are_not_trimmed_away(text):
    assert not is_malformed_prompt(text)


def test_it_ends_by_its_own_limit_and_not_after_text():
    words = SHAPE_TEXTS[1].sample
    one = agent(at=read_much(), model=Says(*[ModelError(words)] * 9), limits=Limits(attempts=9))
    outcome = run(one.turn("on"))
    assert (outcome.ended, len(one.model.asked)) == ("error", 4)

    class Breaks(Says):
        async def __call__(self, request, emit):
            from ctxkit.agent import Delta

            self.asked.append(request)
            emit(Delta("text", "half a"))
            raise ModelError(words)

    one = agent(at=read_much(), model=Breaks())
    assert run(one.turn("on")).ended == "error"
    assert len(one.model.asked) == 1


def free_rules():
    """Rules of every preset that compact without a model."""
    from agent.test_failed_summaries import settings_of

    for name in presets.names():
        for settings in settings_of(name):
            rules = preset(name, **settings)
            if rules.policy is not None and settings.get("mode") in (
                "window",
                "intent",
                "lossless",
            ):
                yield pytest.param(rules, id=f"{name}-{settings['mode']}")


@pytest.mark.parametrize("rules", list(free_rules()))
def test_a_mode_without_a_model_asks_none_on_overflow(rules):
    turns = [
        m for n in range(4) for m in (user(f"question {n} " + "x" * 400), assistant(f"reply {n}"))
    ]
    writer = Says()
    too_long = ModelError(
        "This model's maximum context length is 400 tokens", overflow=True, window=400
    )
    model = Says(too_long, said("It is so."))
    one = agent(
        at=session(*turns), model=model, rules=rules.but(counter=COUNT), summary_model=writer
    )
    assert run(one.turn("and now?")).ended == "answered"
    assert writer.asked == []
    assert len(model.asked[1].messages) < len(model.asked[0].messages)
    assert model.asked[1].messages[-1].text == "and now?"


@pytest.mark.parametrize("keep", [1, 2])
def test_a_reply_cut_by_length_is_compacted_once_and_keeps_its_question(keep):
    rules = presets.pulse_coder(keep_last_turns=keep).but(counter=COUNT)
    replies = [
        said("one " + "x" * 900),
        said("two " + "x" * 900),
        said("half of th", stop="length"),
        said("e third"),
    ]
    writer = Says(*[said("Notes.")] * 9)
    heard = []
    one = agent(model=Says(*replies), rules=rules, summary_model=writer, heard=heard)
    for text in ("first", "second", "third"):
        outcome = run(one.turn(text))
    assert outcome.ended == "answered"
    [cut] = [i for i, e in enumerate(heard) if e.kind == "reply_cut_short"]
    assert heard[cut].payload == {"continues": True}
    assert "compaction_end" in {e.kind for e in heard[cut:]}
    assert len(writer.asked) == 1
    assert [e.trigger for e in one.session.edits] == ["cut_short"]
    sent = [m.text for m in one.model.asked[-1].messages]
    assert "third" in sent
    assert "half of th" in sent
    assert ("second" in sent) == (keep == 2)
    assert sent.index("third") < sent.index("half of th") < len(sent) - 1


def test_each_stage_is_measured_before_it_is_sent():
    """F105: A stage that is over the limit of bytes is passed over, the next one is sent."""
    one = agent(said("It is so."), at=read_much(), limits=Limits(payload_bytes=4_000))
    assert run(one.turn("on")).ended == "answered"
    [request] = one.model.asked
    assert [len(m.text) for m in request.messages if m.role == "tool"] == [565, 565, 9]


def test_a_larger_model_goes_on_where_a_smaller_one_overflowed():
    """D36: The window that the smaller model named holds the larger one in nothing."""
    full = ModelError("prompt is too long: 9000 tokens > 400 maximum", overflow=True, window=400)
    small = agent(at=read_much(), model=Says(*[full] * 9))
    assert run(small.turn("on")).ended == "error"
    larger = Says(said("It is so."))
    larger.name, larger.context_window = "test/larger", 100_000
    goes_on = agent(at=small.session, model=larger)
    assert run(goes_on.turn("again")).text == "It is so."
    assert goes_on.gauge()[1] == 100_000
