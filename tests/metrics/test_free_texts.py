"""What a summary holds of the record is worked out by rules: a model is billed for its own words alone."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.policies import HybridSummary, NarrativeSummary
from ctxkit.policies.evidence_summaries import HybridSummariser

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
        NarrativeSummary(keep_replies=4, mode="hybrid", summariser=lambda passage: "short"),
    ],
)
def test_evidence_before_the_text_of_a_plain_function_is_free(policy):
    rules = ck.policies.Rules(policy, ck.policies.triggers.Above(24_000))
    again = ck.replay(ck.read(ck.samples.path("billing")), rules)
    assert again.edits
    assert ck.score(again, loss=False)["summaries_usd"] == 0.0
