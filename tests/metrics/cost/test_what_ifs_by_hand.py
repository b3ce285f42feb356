"""What a bill would have been: dollars worked out from prices, and the display that shows them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from builders import assistant, session, summarised, user

import ctxkit as ck
from ctxkit.session import Usage
from ctxkit.tokens.provider_rules import get_comparison_models

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
    summaries = spent.accounts.priced_summaries_usd
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
