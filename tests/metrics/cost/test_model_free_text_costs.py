"""A text that no model writes costs nothing, in every view."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.engine import get_run_of_replay
from ctxkit.experiments import SessionAnalysisCache, score_run
from ctxkit.metrics import session_bill
from ctxkit.policies import FuseraftSummary, HybridSummariser, HybridSummary, Rules
from ctxkit.session import Text, Usage

SAMPLE = ck.samples.path("billing")


def costs(replay) -> list[float]:
    """What its summaries cost in score, session frame, compaction frame and spend."""
    (row,) = ck.frame(replay, per="session").itertuples()
    cuts, bill = ck.frame(replay, per="compaction"), ck.spend(replay)
    assert bill.cost_usd == pytest.approx(row.calls_usd + row.summaries_usd)
    return [
        ck.score(replay, loss=False)["summaries_usd"],
        row.summaries_usd,
        cuts["cost_usd"].sum(),
        bill.bill.summaries_usd,
    ]


def list_requests(passage) -> str:
    return " / ".join(m.text[:60] for m in passage.messages if m.role == "user")


def keep_the_last(history, budget):
    return history.summarise(len(history) - 20, "So far: little", "old")


def as_list(history, budget):
    first, *rest = history.messages
    text = ck.Message(role="summary", parts=(Text("So far: little"),))
    cut = history.safe(len(history) - 20)
    return [first, text, *history.messages[cut:]] if len(rest) > 40 else history


def fuseraft(mode: str):
    return ck.presets.fuseraft(mode=mode, trigger_turn_count=30)


ABOVE = ck.policies.triggers.Above(20_000)
FREE = {
    "intent": fuseraft("intent"),
    "lossless": fuseraft("lossless"),
    "function as summariser": Rules("summary:keep_tokens=5000", ABOVE, summariser=list_requests),
    "function as policy": Rules(keep_the_last, ABOVE),
    "function that returns messages": Rules(as_list, ABOVE),
}


@pytest.mark.parametrize("name", FREE)
def test_a_text_that_no_model_writes_is_free_everywhere(name):
    record = ck.read(SAMPLE)
    replay = ck.replay(record, FREE[name])
    assert any(m.role == "summary" for e in replay.edits for m in e.inserted)
    assert costs(replay) == [0.0] * 4
    run = get_run_of_replay(replay)
    assert score_run(SessionAnalysisCache(record), run, name)["summaries_usd"] == 0.0


@pytest.mark.parametrize(
    ("method", "is_free"), [("intent", True), ("lossless", True), ("llm", False)]
)
def test_a_log_that_names_a_method_without_a_model_bills_no_summary(method, is_free):
    old = [user("x" * 4_000), assistant("y" * 4_000, usage=usage(2_000))]
    log = session(
        *old,
        summarised(old, "s" * 400, method=method),
        user(),
        assistant(usage=usage()),
        model="gpt-5.5",
    )
    bill = session_bill.bill_session(log)
    assert (bill.summaries_usd == 0.0) is is_free
    assert len(bill.summaries) == (0 if is_free else 1)


@pytest.mark.parametrize("rules", [fuseraft("llm"), "claude_code", "pi"])
def test_what_stands_for_a_text_of_a_model_is_billed_everywhere(rules):
    own, *others = costs(ck.replay(SAMPLE, rules))
    assert own > 0
    assert others == pytest.approx([own] * 3)


def test_a_function_that_says_what_it_cost_is_billed_by_that():
    def paid(history, budget):
        usage = Usage(cost_usd=0.5)
        return history.summarise(len(history) - 20, "So far: little", "old", usage=usage)

    record = ck.read(SAMPLE)
    replay = ck.replay(record, Rules(paid, ABOVE))
    n = len(replay.edits)
    assert n
    assert costs(replay) == pytest.approx([0.5 * n] * 4)
    score = score_run(SessionAnalysisCache(record), get_run_of_replay(replay), "paid")
    assert score["summaries_usd"] == pytest.approx(0.5 * n)


# -- What a summary holds of the record is worked out by rules: a model is billed for its own words alone.


TEN_WORDS = "one two three four five six seven eight nine ten"


def replay_with(mode: str, **settings):
    rules = ck.presets.fuseraft(mode=mode, trigger_turn_count=30, summariser=Words(), **settings)
    return ck.replay(ck.read(ck.samples.path("billing")), rules)


class Words:
    """Stands for a model: it answers ten words, whatever it reads."""

    name = "words"
    needs_model = True

    def __call__(self, passage):
        return TEN_WORDS


@pytest.mark.parametrize("mode", ["llm", "hybrid"])
def test_only_the_words_of_the_model_are_billed_as_its_output(mode):
    again = replay_with(mode)
    written = [e.details["written_tokens"] for e in again.edits if e.kind == "summarised"]
    assert set(written) == {10}
    whole = [e.details["summary_tokens"] for e in again.edits if e.kind == "summarised"]
    assert min(whole) > 5 * max(written)


def test_the_evidence_of_hybrid_costs_nothing():
    again = replay_with("hybrid")
    p = ck.prices.price(again.model)
    edits = [e for e in again.edits if e.kind == "summarised"]
    input_usd = sum(p.input * e.details["source_tokens"] for e in edits)
    output_usd = sum(p.output * e.details["written_tokens"] for e in edits)
    assert ck.score(again, loss=False)["summaries_usd"] == pytest.approx(input_usd + output_usd)
    assert ck.frame(again, per="compaction")["cost_usd"].sum() == pytest.approx(
        input_usd + output_usd
    )


@pytest.mark.parametrize(
    "policy",
    [
        HybridSummary(
            keep_tokens=2_000, summariser=HybridSummariser(summariser=lambda passage: "short")
        ),
        FuseraftSummary(keep_replies=4, mode="hybrid", summariser=lambda passage: "short"),
    ],
)
def test_evidence_before_the_text_of_a_plain_function_is_free(policy):
    rules = ck.policies.Rules(policy, ck.policies.triggers.Above(24_000))
    again = ck.replay(ck.read(ck.samples.path("billing")), rules)
    assert again.edits
    assert ck.score(again, loss=False)["summaries_usd"] == 0.0
