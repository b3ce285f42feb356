"""What a model is sent for a summary, what a summary costs, and how long failed ones are not repeated."""

from __future__ import annotations

import asyncio

import pytest
from builders import assistant, call, result, session, system, user
from histories import shown
from msgspec.structs import replace
from stand_in_models import Says, run, said

from ctxkit.agent import ModelSummariser
from ctxkit.agent.model_summaries_and_backoff import (
    HEAD_CHARS,
    SUMMARY_PROMPT,
    TAIL_CHARS,
    PromptWithCachedPrefix,
    SummaryBackoff,
    UnsuccessfulCompaction,
    find_results_to_summarise,
    make_summary_bill_fields,
    make_unsuccessful_compaction_message,
    sum_usage,
    summarise_result,
)
from ctxkit.errors import ModelError
from ctxkit.policies import Chain, ResultExcerpts, SummariserInput
from ctxkit.session import Attachment, Edit, Usage

CLAUDE = "anthropic/claude-sonnet-4-5"
"""Dollars for a million tokens: 3 uncached, 0.30 read, 3.75 written, 15 of replies."""


def summarise(model, passage, **more):
    """Write a summary as a policy does, from a thread beside the event loop."""

    async def ask():
        summariser = ModelSummariser(model, asyncio.get_running_loop(), **more)
        return summariser, await asyncio.to_thread(summariser, passage)

    return run(ask())


def make_passage(**more):
    h = shown(user("Look."), assistant("It is."), user("And?"), assistant("So."))
    return SummariserInput(h, 2, **more)


def test_a_summary_is_asked_for_in_a_prompt_of_its_own():
    model = Says(said("  The notes. ", usage=None))
    summariser, text = summarise(model, make_passage(limit=300, instructions="Be brief."))
    (request,) = model.asked
    assert text == "  The notes. "
    assert (request.tools, request.max_output_tokens) == ((), 300)
    assert [(m.role, m.id, m.text) for m in request.messages] == [
        ("system", "ask", f"{SUMMARY_PROMPT}\n\nBe brief.\n\nWrite at most 300 tokens."),
        ("user", "passage", "<conversation>\n[User]: Look.\n\n[Assistant]: It is.\n</conversation>"),
    ]  # fmt: skip
    assert (summariser.ways, summariser.request_count) == (["text"], 1)
    assert summariser.take_usage() is None


def test_without_a_limit_none_is_named():
    model = Says(said("The notes."))
    summariser, _ = summarise(model, make_passage())
    (request,) = model.asked
    assert request.max_output_tokens is None
    assert request.messages[0].text == SUMMARY_PROMPT
    assert summariser.take_usage() == Usage(input_tokens=10, output_tokens=1)
    assert summariser.take_usage() is None  # it is taken once


@pytest.mark.parametrize(
    ("passage", "clause"),
    [
        (make_passage(), ", up to and without the message that begins with 'And?': from there on"),
        (SummariserInput(shown(user("Look."), call("see")), 1), "that begins with 'see': from"),
        (SummariserInput(shown(user("Look."), user("x" * 200)), 1), f"with '{'x' * 159}…': from"),
        (SummariserInput(shown(user("Look."), assistant("It is.")), 2), "of everything above."),
    ],
)  # fmt: skip
def test_a_summary_behind_the_cached_conversation(passage, clause):
    model = Says(said("The notes."))
    model.name = CLAUDE
    prompt = (system(), user("Look."))
    cached = PromptWithCachedPrefix(prompt, (), cached_tokens=10, tokens=10, window=90_000)
    summariser, text = summarise(model, passage, cached_prefix=lambda: cached)
    (request,) = model.asked
    assert summariser.ways == ["prefix"]
    assert text == "The notes."
    assert request.messages[:-1] == prompt
    assert request.messages[-1].role == "user"
    asked = request.messages[-1].text
    assert asked.startswith(
        f"Stop here: this is no part of the work. Call no tool. {SUMMARY_PROMPT}"
    )
    assert clause in asked


def test_only_a_passage_from_the_start_is_asked_for_behind_the_cached_conversation():
    model = Says(said("The notes."))
    model.name = CLAUDE
    cached = PromptWithCachedPrefix((user("Look."),), (), 10, 10, 90_000)
    h = shown(user("Look."), assistant("It is."), user("And?"))
    summariser, _ = summarise(model, SummariserInput(h, 2, start=1), cached_prefix=lambda: cached)
    assert summariser.ways == ["text"]


def test_a_summary_over_a_limit_of_the_turn_is_not_requested():
    model, asked = Says(), []
    with pytest.raises(ModelError, match=r"^The summary was not requested: it would exceed all\.$"):
        summarise(model, make_passage(), exceeded_limit=lambda n: asked.append(n) or "all")
    characters = len(SUMMARY_PROMPT) + len("[User]: Look.\n\n[Assistant]: It is.")
    assert asked == [characters // 4]
    assert model.asked == []


@pytest.mark.parametrize(
    ("text_tokens", "limit", "window", "is_cheaper"),
    [
        # 9,000 × 0.30 + (1,000 + 500) × 3.75 = 8,325, as much as 2,220 tokens at 3.75
        (2_221, 1_000, 11_500, True),
        (2_219, 1_000, 11_500, False),
        # 10,000 + 500 + the summary must fit: 1,000 tokens of a limit, 4,096 without one
        (2_221, 1_000, 11_499, False),
        (2_221, None, 14_596, True),
        (2_221, None, 14_595, False),
    ],
)
def test_what_asking_behind_the_cached_conversation_costs(text_tokens, limit, window, is_cheaper):
    prompt = PromptWithCachedPrefix((), (), cached_tokens=9_000, tokens=10_000, window=window)
    assert prompt.is_cheaper(CLAUDE, text_tokens, 500, limit) is is_cheaper
    assert not prompt.is_cheaper("own/model", text_tokens, 500, limit)


def test_usages_are_summed_by_class():
    first = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=3, cost_usd=0.5)
    second = Usage(input_tokens=10, cache_write_tokens=20, cache_write_1h_tokens=5,
                   output_tokens=30, reasoning_tokens=7, cost_usd=0.25)  # fmt: skip
    assert sum_usage([first, second]) == Usage(
        input_tokens=11, cache_read_tokens=2, cache_write_tokens=20, cache_write_1h_tokens=5,
        output_tokens=33, reasoning_tokens=7, cost_usd=0.75,
    )  # fmt: skip
    assert sum_usage([first, Usage(input_tokens=0)]).cost_usd is None  # one cost is unknown


@pytest.mark.parametrize(
    ("name", "notice", "usage", "tokens", "usd"),
    [
        (CLAUDE, "", Usage(input_tokens=100, cache_read_tokens=50, output_tokens=10), 160, 465e-6),
        (CLAUDE, "", Usage(input_tokens=100, output_tokens=10, cost_usd=0.0), 110, 0.0),
        (CLAUDE, "scripted", Usage(input_tokens=100, cost_usd=0.5), 100, 0.0),
        ("own/model", "", Usage(output_tokens=10), 10, None),
        (CLAUDE, "", None, None, None),
    ],
)
def test_the_bill_of_a_summary(name, notice, usage, tokens, usd):
    model = Says()
    model.name, model.notice = name, notice
    fields = make_summary_bill_fields(model, usage)
    assert (fields["summary_model"], fields["summary_tokens"]) == (name, tokens)
    assert fields["cost_usd"] == (usd if usd is None else pytest.approx(usd))
    assert make_summary_bill_fields(None, usage) == {}


def test_the_results_that_a_model_should_summarise():
    image = Attachment("image/png", "AA==")
    old = [result("a"), replace(result("b"), kind="tool_result_archived"), result("c"),
           result("d", pinned=True), result("e", pending=True),
           replace(result("f"), parts=(image,)), result("g")]  # fmt: skip
    messages = [user(), *old, assistant(), result("h"), result("i")]
    excerpts = ResultExcerpts(strategy="llm", keep_last=2)

    def find(pruning):
        return [m.text for m in find_results_to_summarise(pruning, messages)]

    assert find(excerpts) == ["a", "c", "g"]
    assert find(Chain((ResultExcerpts(strategy="heuristic"), excerpts))) == ["a", "c", "g"]
    assert find(ResultExcerpts(strategy="heuristic", keep_last=2)) == []
    assert find(ResultExcerpts(strategy="llm", keep_last=99)) == []
    assert find(None) == []


def test_what_a_model_is_sent_of_a_result():
    model = Says(said(" The words. ", usage=None), said("y" * 1_300), said(" "))
    text = "a" * HEAD_CHARS + "b" * 50_000 + "c" * TAIL_CHARS
    summaries = [
        run(summarise_result(model, replace(result(text), tool=t))) for t in ("see", None, "")
    ]
    assert (HEAD_CHARS, TAIL_CHARS) == (8_000, 4_000)
    (message,) = model.asked[0].messages
    assert (message.role, model.asked[0].tools) == ("user", ())
    assert "\n\nTool: see\n\n<output>\naaa" in message.text
    assert message.text.endswith("ccc\n</output>")
    assert (message.text.count("a" * 8_000), message.text.count("c" * 4_000)) == (1, 1)
    assert "bb" not in message.text
    assert "Tool: unknown" in model.asked[1].messages[0].text
    assert summaries[0] == ("The words.", None, "")
    assert summaries[1] == ("y" * 1_200, Usage(input_tokens=10, output_tokens=1), "")
    assert summaries[2] == ("", Usage(input_tokens=10, output_tokens=1), "The model returned nothing.")  # fmt: skip


ATTEMPT = UnsuccessfulCompaction("failed", "down", "threshold", tokens=900, messages=7)


def note(retry_after, settings=("rules", "m"), attempt=ATTEMPT):
    return make_unsuccessful_compaction_message(
        attempt, settings=settings, model=None, usage=None, retry_after=retry_after
    )


def test_the_message_of_an_attempt():
    model, usage = Says(), Usage(input_tokens=1)
    message = make_unsuccessful_compaction_message(
        ATTEMPT, settings=("rules", "m"), model=model, usage=usage, retry_after=4
    )
    assert (message.role, message.text, message.visible) == ("system", "down", False)
    assert (message.model, message.usage) == ("test/says", usage)
    assert message.details == {
        "outcome": "failed",
        "trigger": "threshold",
        "tokens": 900,
        "messages": 7,
        "rules": "rules",
        "writer": "m",
        "retry_after_calls": 4,
    }
    assert "retry_after_calls" not in note(0).details


def count_waits(*log, trigger=None):
    """Return the calls that ask for no summary behind a log, and the wait after the next failure."""
    backoff = SummaryBackoff(session(*log), ("rules", "m"), trigger=trigger)
    waits = 0
    while backoff.skip_call():
        waits += 1
    return waits, backoff.miss()


def test_the_wait_is_restored_from_the_log():
    tool_summary = note(4, attempt=ATTEMPT._replace(trigger="tool_summary"))
    edit = Edit(kind="removed", id="e", targets=())
    assert count_waits() == (0, 2)
    assert count_waits(note(2)) == (3, 4)  # the reply of the call that asked is none of the two
    assert count_waits(note(2), assistant(), note(4), assistant(), user()) == (4, 8)
    assert count_waits(note(2), *[assistant()] * 5) == (0, 4)
    assert count_waits(note(4), edit, assistant()) == (0, 2)  # a compaction came about
    assert count_waits(note(4), edit, note(2)) == (3, 4)
    # of other rules, of another model, or without a wait
    assert count_waits(note(4, ("other", "m")), note(4, ("rules", "n")), note(0)) == (0, 2)
    assert count_waits(tool_summary, trigger="tool_summary") == (5, 4)
    assert count_waits(note(4), trigger="tool_summary") == (0, 2)


def test_the_wait_doubles_up_to_64_calls():
    backoff = SummaryBackoff(session(), ("rules", "m"))
    assert [backoff.miss() for _ in range(8)] == [2, 4, 8, 16, 32, 64, 64, 64]
    backoff.reset()
    assert not backoff.skip_call()
    assert backoff.miss() == 2
    assert [backoff.skip_call() for _ in range(4)] == [True, True, False, False]
