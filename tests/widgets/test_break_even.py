"""The break-even widget: its formula is the bill's own, turned by hand and read as text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest
from builders import assistant, result, session, tool_call, usage, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit._internal import format_usd
from ctxkit.errors import BadArguments

TIERED = "claude-sonnet-4-20250514"
"""A model whose prompts of more than 200,000 tokens cost twice as much."""
BILLING = ck.read(ck.samples.path())


@pytest.fixture(scope="module")
def widget():
    return ck.break_even(BILLING, 150)


def test_the_formula_is_the_difference_of_the_bills(widget):
    """After N calls the dearer next call is paid back by the cheaper ones that follow it."""
    removal = widget.removal
    once = removal.dollars(removal.without()) - removal.dollars(removal.before())
    later = removal.block.tokens * removal.price.cache_read
    assert once / later + 1 == pytest.approx(removal.pays_after, abs=1)
    assert removal.gain(int(removal.pays_after) - 1) < 0 < removal.gain(int(removal.pays_after) + 2)
    assert removal.gain(1) == pytest.approx(-once, rel=0.01)


def test_the_bar_and_the_table_have_the_same_tokens(widget):
    head, *rows = (
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", widget.to_html())
    )
    bars: dict[str, Counter] = defaultdict(Counter)
    pieces = r'<rect x="[^"]*" y="([^"]*)"[^>]*><title>[^<]* ([\d,]+) tokens ([^<]+)</title>'
    for bar, tokens, kind in re.findall(pieces, widget.to_html()):
        bars[bar][kind] += int(tokens.replace(",", ""))
    assert [row[0] for row in rows] == ["as it is", "without it"]
    for row, bar in zip(rows, bars.values(), strict=True):
        drawn = {kind: f"{tokens:,}" for kind, tokens in bar.items()}
        assert dict(zip(head[1:5], row[1:5], strict=True)) == {"taken out": "—"} | drawn
    before, after = (sum(bar.values()) for bar in bars.values())
    assert (before, before - after) == (widget.strip.tokens, widget.removal.block.tokens)


@pytest.mark.parametrize("tokens", [40_000, 240_000])
def test_the_next_call_costs_what_the_log_pays(tokens):
    """Writes that live an hour, and the tier of a long prompt, have the prices of the record's own bill."""
    log = [user("q")]
    for n in range(4):
        read = tokens + 900 * (n - 1) if n else 0
        spent = replace(usage(10, read=read), cache_write_1h_tokens=tokens + 900 * n - read)
        asked = assistant("", tool_call(), usage=spent, model=TIERED)
        log += [asked, result("word " * 700, asked)]
    recorded = session(*log)
    removal, spent = ck.break_even(recorded, 3).removal, recorded.call(3).message.usage
    assert spent.cache_write_1h_tokens == removal.before().written
    assert removal.dollars(removal.before()) == pytest.approx(
        ck.prices.price(TIERED).prompt_usd(spent)
    )
    assert removal.price.input == pytest.approx(6e-6 if tokens > 200_000 else 3e-6)
    assert removal.write_price == 2 * removal.price.input


def test_it_is_turned_by_hand(widget):
    begun = widget.to_text()
    widget.taken.value = len(widget.results) - 1
    assert widget.removal.pays_after < 10
    assert widget.to_text() != begun
    widget.cold.value = True
    assert widget.removal.pays_after == 0
    assert "Pays at once" in widget.answer
    assert widget.removal.before().read == widget.removal.without().read == 0
    widget.cold.value = False
    widget.calls.value = 300
    assert "After 300 calls" in widget.picture.value


def test_without_it_the_prompt_is_shorter_and_what_stands_behind_is_written(widget):
    widget.taken.value = 3
    removal = widget.removal
    shorter = removal.without()
    assert shorter.tokens == removal.strip.tokens - removal.block.tokens
    assert shorter.read == removal.block.start
    assert (
        sum(b.tokens for b in shorter.blocks)
        == sum(b.tokens for b in removal.strip.blocks) - removal.block.tokens
    )


def test_front_ends_without_widgets_get_text_and_html(widget):
    bundle = widget._repr_mimebundle_()
    assert "N > (w - r) S / (r x)" in bundle["text/plain"]
    assert "<svg" in bundle["text/html"]


def test_the_answer_stands_in_front_and_the_formula_is_folded(widget):
    html = widget.to_html()
    assert f"<strong>Pays after {widget.removal.pays_after:,.0f} calls.</strong>" in html
    assert html.index("Pays after") < html.index("<svg") < html.index("<details>")
    assert "N &gt; (w - r)" in html[html.index("<details>") :]
    for name in (
        "read",
        "written",
        "taken out",
        "while the cache lives",
        "after a pause, with the cache expired",
    ):  # legends of both pictures
        assert re.search(rf"</svg> {name}</span>", html), name
    figure = widget._gain_axes().plotly()
    assert figure["layout"]["yaxis"]["tickprefix"] == "$"
    assert {line["x"][0] for line in figure["data"]} == {0}
    shown = format_usd(abs(widget.removal.gain(widget.calls.value)))
    assert shown in widget.outcome  # as precise as the dollars of the table


def test_what_cannot_be_weighed_is_said():
    with pytest.raises(BadArguments, match="no result"):
        ck.break_even(ck.samples.path("chat"), 5)
    with pytest.raises(BadArguments, match="read from the cache"):
        ck.break_even(session(user("q"), assistant("a")))
