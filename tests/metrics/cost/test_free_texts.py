"""A text that no model writes costs nothing, in every view."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.policies import Rules
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
        bill.accounts.summaries_usd,
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
    replay = ck.replay(SAMPLE, FREE[name])
    assert any(m.role == "summary" for e in replay.edits for m in e.inserted)
    assert costs(replay) == [0.0] * 4


@pytest.mark.parametrize("rules", [fuseraft("llm"), "claude_code", "pi"])
def test_what_stands_for_a_text_of_a_model_is_billed_everywhere(rules):
    own, *others = costs(ck.replay(SAMPLE, rules))
    assert own > 0
    assert others == pytest.approx([own] * 3)


def test_a_function_that_says_what_it_cost_is_billed_by_that():
    def paid(history, budget):
        usage = Usage(cost_usd=0.5)
        return history.summarise(len(history) - 20, "So far: little", "old", usage=usage)

    replay = ck.replay(SAMPLE, Rules(paid, ABOVE))
    n = len(replay.edits)
    assert n
    assert costs(replay) == pytest.approx([0.5 * n] * 4)
