"""What a bill would have been: dollars worked out from prices, and the display that shows them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from builders import assistant, session, summarised, user

import ctxkit as ck
from ctxkit.session import Usage
from ctxkit.tokens import get_comparison_models

MODEL = "claude-sonnet-4-5"


def make_compacted(words: int):
    """Return a session of two calls; a summary of so many words stands for what came before the second."""
    bill = Usage(input_tokens=2 * words, cache_read_tokens=0, output_tokens=5)
    old = [user("word " * words), assistant("ok", usage=bill, model=MODEL)]
    later = assistant(
        "ok", usage=Usage(input_tokens=500, cache_read_tokens=0, output_tokens=5), model=MODEL
    )
    return session(*old, summarised(old, "short " * 100), user("on"), later, model=MODEL)


def test_cheaper_summaries_cost_as_much_less_as_their_model_reads_for_less():
    spent = ck.spend(make_compacted(20_000))
    (found,) = [w for w in spent.what_ifs if w.name == "cheaper summaries"]
    summaries = spent.bill.priced_summaries_usd
    cheapest = min(ck.prices.price(name).input for name in get_comparison_models())
    assert summaries + found.usd == pytest.approx(
        summaries * cheapest / ck.prices.price(MODEL).input
    )
    assert -summaries < found.usd < 0


def test_half_a_cent_is_the_least_that_is_said():
    for words, is_said in ((20_000, True), (200, False)):
        found = ck.spend(make_compacted(words)).what_ifs
        assert any(w.name == "cheaper summaries" for w in found) is is_said
        assert all(abs(w.usd) >= 0.005 for w in found)


class _Lists(HTMLParser):
    """Counts the items of lists, and those outside of one."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.inside, self.outside = 0, 0, 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.depth += tag == "ul"
        self.inside += tag == "li" and self.depth > 0
        self.outside += tag == "li" and self.depth == 0

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "ul"


def test_every_sentence_of_the_display_is_an_item_of_a_list():
    spent = ck.spend(make_compacted(20_000))
    page = _Lists()
    page.feed(spent._repr_html_())
    assert page.inside == len(spent.sentences) + len(spent.what_ifs)
    assert (page.outside, page.depth) == (0, 0)
    assert len(spent.what_ifs) > 0
    assert re.search(
        r"<summary>what would have changed the cost</summary><ul><li>", spent._repr_html_()
    )


def call(prompt: int, read: int, time: float):
    usage = Usage(cache_read_tokens=read, cache_write_tokens=prompt - read, output_tokens=1_000)
    return assistant("ok", usage=usage, model=MODEL, time=time)


def talk(*calls):
    log = [m for c in calls for m in (user(time=c.time - 1), c)]
    return session(*log, model=MODEL, format="claude-code")


FIRST = call(100_000, 0, 1), call(110_000, 0, 1_001)
"""The second call comes after sixteen minutes, when the cache has gone."""
AGAIN_USD = 100_000 * (3.75 - 0.30) / 1e6
"""Dollars of writing the first prompt again, above those of reading it."""


@pytest.mark.parametrize(
    ("last", "written", "pauses"),
    [
        (call(120_000, 110_000, 1_011), 100_000 + 10_000 + 10_000, "1 of 1 pause"),
        (call(120_000, 0, 9_011), 100_000 + 10_000 + 120_000, "1 of 2 pauses"),  # over an hour
    ],
)
def test_an_hour_saves_shorter_pauses_and_makes_all_writing_dearer(last, written, pauses):
    found = {w.name: w for w in ck.spend(talk(*FIRST, last)).what_ifs}["cache for an hour"]
    dearer = written * (6.00 - 3.75) / 1e6
    assert found.usd == pytest.approx(dearer - AGAIN_USD)
    assert pauses in found.sentence
    direction = "less in all" if dearer < AGAIN_USD else "more in all"
    assert found.sentence.endswith(f"{direction}.")


def test_without_a_pause_or_with_writes_for_an_hour_no_hour_is_offered():
    warm = talk(FIRST[0], call(110_000, 100_000, 11))
    assert "cache for an hour" not in {w.name for w in ck.spend(warm).what_ifs}
    usage = Usage(cache_read_tokens=0, cache_write_1h_tokens=110_000, output_tokens=5)
    paid = talk(FIRST[0], assistant("ok", usage=usage, model=MODEL, time=5_000))
    assert "cache for an hour" not in {w.name for w in ck.spend(paid).what_ifs}


def test_another_model_counts_the_same_text_in_its_own_tokens():
    spent = ck.spend(talk(FIRST[0]))
    found = {w.name: w for w in spent.what_ifs}["another model"]
    prices = {name: ck.prices.price(name) for name in get_comparison_models()}
    scales = {name: 1.3 if name.startswith("claude") else 1.0 for name in prices}
    usd = {
        name: prices[name].cost_usd(
            Usage(cache_write_tokens=round(100_000 * n), output_tokens=round(1_000 * n))
        )
        for name, n in scales.items()
    }
    assert found.usd == pytest.approx(min(usd.values()) - 0.39)
    haiku = next(name for name in usd if "haiku" in name)
    assert f"${usd[haiku]:.2f} at those of {haiku}" in found.sentence
    assert "with +30 % tokens" in found.sentence
    places = [found.sentence.index(name) for name in sorted(usd, key=usd.__getitem__)]
    assert places == sorted(places)


@pytest.mark.parametrize("model", get_comparison_models())
def test_a_model_is_not_compared_with_itself(model):
    usage = Usage(input_tokens=100_000, cache_read_tokens=0, output_tokens=1_000)
    spent = ck.spend(session(user(), assistant("ok", usage=usage, model=model), model=model))
    (found,) = (w for w in spent.what_ifs if w.name == "another model")
    named = {name for name in get_comparison_models() if f"at those of {name} (" in found.sentence}
    assert named == {*get_comparison_models()} - {model}


def test_a_session_without_a_models_name_is_compared_with_none():
    usage = Usage(input_tokens=100_000, cache_read_tokens=0, output_tokens=1_000)
    spent = ck.spend(session(user(), assistant("ok", usage=usage)))
    assert "another model" not in {w.name for w in spent.what_ifs}


def test_summaries_at_the_end_of_the_prompt_read_it_from_the_cache():
    s = make_compacted(20_000)
    found = {w.name: w for w in ck.spend(s).what_ifs}["append-only summaries"]
    billed, reused = (
        ck.metrics.session_bill.bill_session(s, reuse=reuse).summaries_usd
        for reuse in (False, True)
    )
    assert found.usd == pytest.approx(reused - billed)
    assert found.usd < 0
    # 40,000 tokens at 0.30 dollars a million instead of what was replaced, at 3
    output = reused - 40_000 * 0.30 / 1e6
    assert 0 < output < 0.02


@pytest.mark.parametrize(
    ("keeps_request", "prompt", "read", "saved"),
    [
        (False, 50_000, 0, 40_000),
        (True, 50_000, 15_000, 25_000),  # what was read of it is not saved again
        (False, 30_000, 0, 30_000),  # no more than the whole prompt
        (True, 50_000, 0, 40_000),  # the request was missed, too; it is not the stable part
        (False, 50_000, 39_999, None),
        (True, 50_000, 45_000, None),
    ],
)
def test_a_stable_part_before_the_summary_would_be_read_from_the_cache(
    keeps_request, prompt, read, saved
):
    """A request of 10,000 tokens, behind 40,000 of the system prompt and the tools."""
    request, answer = user("word " * 10_000, time=0), call(50_000, 0, 1)
    targets = [answer] if keeps_request else [request, answer]
    compaction = summarised(targets, "short " * 100)
    log = [request, answer, compaction, user(time=2), call(prompt, read, 3)]
    spent = ck.spend(session(*log, model=MODEL, format="claude-code"))
    found = [w for w in spent.what_ifs if w.name == "stable part first"]
    assert len(found) == (saved is not None)
    for what_if in found:
        assert what_if.usd == pytest.approx(-saved * (3.75 - 0.30) / 1e6, rel=1e-3)
        assert "at 1 compaction" in what_if.sentence
        assert what_if.sentence.endswith(f"it would have cost ${-what_if.usd:.2f} less.")


@pytest.mark.parametrize(
    ("window", "usd", "cost_and_summaries"),
    [
        # the first call stays; the two later ones cost 0.0154 and 0.0713, the summary 0.0919
        (60_000, 0.07125 + 0.0154 + 0.0713 + 0.0919, "$0.25 (+10 %), with 1 paid summary"),
        # 45,000 tokens are written, 45,000 are read and 3,000 are replied, as in the record
        (200_000, 0.16875 + 0.0135 + 0.045, "$0.23 (±0 %), with 0 paid summaries"),
    ],
)
def test_a_smaller_window_is_priced_by_a_replay_under_claude_codes_rules(
    window, usd, cost_and_summaries
):
    log, prompt = [], 0
    for n in range(3):
        log += [user("word " * 15_000, time=10 * n), call(prompt + 15_000, prompt, 10 * n + 1)]
        prompt += 15_000
    talked = session(*log, model=MODEL, format="claude-code")
    spent = ck.spend(talked)
    found = spent.in_window(window)
    replayed = ck.spend(ck.replay(talked, ck.presets.claude_code(context_window=window))).total_usd
    assert found.name == f"window of {window:,}"
    assert spent.total_usd == pytest.approx(0.22725)
    assert found.usd == pytest.approx(replayed - 0.22725)
    assert replayed == pytest.approx(usd, abs=1e-4)
    assert found.sentence == (
        f"In a window of {window:,} tokens, compacted as Claude Code does, it would have cost"
        f" {cost_and_summaries}. A replay: the same calls."
    )
    nothing = ck.spend(session(user(), assistant())).in_window(window)
    assert (nothing.usd, "(no cost is known)" in nothing.sentence) == (0.0, True)


def test_each_class_of_tokens_is_counted_in_the_other_models_tokens():
    """By hand: Claude Haiku 5.5 counts 30 % more tokens than the session's model."""
    used = Usage(
        input_tokens=500_000, cache_read_tokens=400_000, cache_write_tokens=100_000,
        output_tokens=10_000,
    )  # fmt: skip
    spent = ck.spend(session(user(), assistant(usage=used, model=MODEL), model=MODEL))
    (found,) = (w for w in spent.what_ifs if w.name == "another model")
    haiku = next(name for name in get_comparison_models() if "haiku" in name)
    p = ck.prices.price(haiku).at(1_300_000)
    usd = 650_000 * p.input + 520_000 * p.read + 130_000 * p.write() + 13_000 * p.output
    assert f"cost ${usd:.2f} at those of {haiku} ({100 * (usd / spent.total_usd - 1):.0f} %" in found.sentence  # fmt: skip
