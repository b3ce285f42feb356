"""`ctxkit.break_even`: cost and payback of removing a block from a cached prompt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from ctxkit._internal.chart_style import COLOURS
from ctxkit._internal.formatting_and_sanitizing import escape_html, format_usd, pluralize
from ctxkit.engine.cache_model.call_features import has_hour_writes
from ctxkit.errors import BadArguments
from ctxkit.metrics.compaction_formulas import mutation_gain, reads_until_mutation_pays
from ctxkit.plots.cache_and_prompt_strip_charts import (
    BILLING_KINDS,
    BlockRow,
    BlockRowsDrawing,
    BlockSpan,
    PromptBlock,
    PromptStrip,
)
from ctxkit.plots.chart import render_small_table
from ctxkit.plots.xy_figure import Trace, VerticalMark, XyDrawing
from ctxkit.tokens.prices import Price, price
from ctxkit.widgets.base_widget import SOFT_COLOUR, TEXT_COLOUR, StaticOutputsMixin

if TYPE_CHECKING:
    from ctxkit.session.session import Session

_MOST = 400
"""Maximum number of future calls."""
_TAKEN_OUT = len(BILLING_KINDS)
"""The kind of the block's tokens in the bar of the prompt as it is."""
_HEAD = ("next call", *(name for name, _ in BILLING_KINDS), "taken out", "dollars")


@dataclass(frozen=True)
class BlockRemoval:
    """A block taken out of a prompt, and the prices by which that is billed."""

    strip: PromptStrip
    block: PromptBlock
    price: Price
    """Prices of a prompt of this size."""
    hour: bool = False
    """True where what the call writes lives an hour, not five minutes."""
    cold: bool = False
    """True if the cache has expired: the whole prompt is written anyway."""

    @property
    def write_price(self) -> float:
        """Dollars of a token written to the cache."""
        return self.price.write(hour=self.hour)

    @property
    def behind(self) -> int:
        """Tokens behind the block that the cache holds."""
        end = self.block.start + self.block.tokens
        return max((self.strip.tokens if self.cold else self.strip.read) - end, 0)

    @property
    def shares(self) -> tuple[float, float]:
        """Prices of a write and a read, as shares of the input price."""
        p = self.price
        return self.write_price / p.input, p.read / p.input

    @property
    def pays_after(self) -> float:
        """Calls until it has paid for itself: ``N > (w - r) S / (r x)``; after a pause 0."""
        if self.cold:
            return 0.0
        write, read = self.shares
        return reads_until_mutation_pays(
            self.block.tokens, self.behind, write_share=write, read_share=read
        )

    def gain(self, calls: int) -> float:
        """Return the dollars gained over a number of coming calls; negative where it costs."""
        alive = 0.0 if self.cold else 1.0
        write, read = self.shares
        tokens = mutation_gain(
            self.block.tokens, self.behind, calls, alive=alive, write_share=write, read_share=read
        )
        return tokens * self.price.input

    def without(self) -> PromptStrip:
        """Return the prompt without the block: what comes after it is written again."""
        old, gone = self.strip, self.block
        blocks = tuple(
            b if b.start < gone.start else b._replace(start=b.start - gone.tokens)
            for b in old.blocks
            if b is not gone
        )
        total = old.tokens - gone.tokens
        # A prompt cache matches by prefix: the read part ends where the prompt first differs.
        read = 0 if self.cold else min(gone.start, old.read)
        fresh = min(old.fresh, total - read)
        return PromptStrip(old.call, blocks, read, total - read - fresh, fresh)

    def before(self) -> PromptStrip:
        """Return the prompt as it is billed with the block."""
        old = self.strip
        if not self.cold:
            return old
        return old._replace(read=0, written=old.read + old.written)

    def dollars(self, strip: PromptStrip) -> float:
        """Return the dollars of a prompt."""
        p = self.price
        return strip.read * p.read + strip.written * self.write_price + strip.fresh * p.input


def _is_in_block(block: PromptBlock, span: BlockSpan) -> bool:
    return block.start <= span.start < block.start + block.tokens


class ResultRemovalBreakEvenWidget(StaticOutputsMixin, w.VBox):  # type: ignore[misc]
    """The widget that `ctxkit.break_even` returns; `removal` is what its controls say.

    Front ends without widgets get text and HTML.
    """

    def __init__(self, session: Session, strip: PromptStrip) -> None:
        call = session.call(strip.call)
        model_price = price(call.message.model or session.model, at=call.message.time)
        results = [b for b in strip.blocks if b.result]
        if model_price is None or not results:
            what = "no price is known for its model" if model_price is None else "it has no result"
            raise BadArguments(f"Nothing can be weighed at call {strip.call}: {what}.")
        self.strip, self.results = strip, results
        self.price = model_price.at(strip.tokens)
        self.hour = has_hour_writes(session, call)
        # Begin with the largest result of the first half, behind which much is cached.
        half = [b for b in results if b.start < strip.tokens / 2] or results
        wide = {"style": {"description_width": "150px"}, "layout": w.Layout(width="auto")}
        first = results.index(max(half, key=lambda b: b.tokens))
        # Its own read-out would be a number that no other view has; the picture names the message.
        self.taken = w.IntSlider(
            first, 0, len(results) - 1, description="result taken out", readout=False, **wide
        )
        self.calls = w.IntSlider(100, 1, _MOST, description="calls to come", **wide)
        self.cold = w.Checkbox(
            value=False,
            description="after a pause: the cache has died",
            style={"description_width": "initial"},
            layout=w.Layout(width="auto"),
        )
        self.picture = w.HTML()
        super().__init__([self.taken, self.calls, self.cold, self.picture])
        for control in (self.taken, self.calls, self.cold):
            control.observe(self._draw_widget, "value")
        self._draw_widget()

    @property
    def removal(self) -> BlockRemoval:
        """The block that is removed now, with the prices."""
        return BlockRemoval(
            self.strip, self.results[self.taken.value], self.price, self.hour, self.cold.value
        )

    def _draw_widget(self, _: Any = None) -> None:
        self.picture.value = self.to_html()

    @property
    def answer(self) -> str:
        """After how many calls the removal is paid back, in a sentence."""
        removal = self.removal
        if removal.cold:
            return "Pays at once: the cache has died, so all is written anyway."
        if removal.pays_after == inf:
            return "Never pays."
        calls = round(removal.pays_after)
        return f"Pays after {pluralize(calls, 'call')}." if calls else "Pays with the next call."

    @property
    def outcome(self) -> str:
        """Dollars gained after the chosen number of calls, in a sentence."""
        n, gained = self.calls.value, self.removal.gain(self.calls.value)
        word = "gained" if gained >= 0 else "lost"
        return f"After {pluralize(n, 'call')}: {format_usd(abs(gained))} {word}."

    @property
    def formula(self) -> str:
        """The formula with its numbers; empty if the cache has expired."""
        removal = self.removal
        if removal.cold:
            return ""
        w_, r = (1e6 * removal.price.input * s for s in removal.shares)
        pays = "never" if removal.pays_after == inf else f"{removal.pays_after:,.0f} calls"
        return (
            f"N > (w - r) S / (r x) = ({w_:.2f} - {r:.2f}) x {removal.behind:,} / "
            f"({r:.2f} x {removal.block.tokens:,}) = {pays}; w and r are dollars of a million"
            " written and read tokens, S the tokens behind the result, x its own."
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the next call's bill with the block and without it."""
        removal, (before, after) = self.removal, self._bar_rows()
        out = []
        for bar, strip in ((before, removal.before()), (after, removal.without())):
            sizes = Counter[int]()
            for span in bar.spans:
                sizes[span.kind] += span.tokens
            taken_out_tokens = f"{sizes[_TAKEN_OUT]:,}" if bar is before else "—"
            kinds = (f"{sizes[kind]:,}" for kind in range(len(BILLING_KINDS)))
            out.append((bar.name, *kinds, taken_out_tokens, format_usd(removal.dollars(strip))))
        return out

    def _bar_rows(self) -> tuple[BlockRow, BlockRow]:
        """Return the prompt as it is, the block a kind of its own, and the one without it."""
        removal = self.removal
        was = (
            s._replace(kind=_TAKEN_OUT) if _is_in_block(removal.block, s) else s
            for s in removal.before().split_by_billing()
        )
        return (
            BlockRow("as it is", tuple(was)),
            BlockRow("without it", removal.without().split_by_billing()),
        )

    def to_text(self) -> str:
        """Return what is shown as text."""
        lines = ["  ".join(f"{c:>10}" for c in row) for row in (_HEAD, *self.rows())]
        sentences = (self.answer, self.outcome, self.formula)
        return "\n".join(
            [f"Taken out: {self.removal.block.name}", *filter(None, sentences), *lines]
        )

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        removal, rows = self.removal, self._bar_rows()
        kinds = (*BILLING_KINDS, ("taken out", COLOURS[0]))
        bill = render_small_table(_HEAD, self.rows())
        return (
            f'<div style="color:{TEXT_COLOUR}">'
            f'<div role="status" style="line-height:1.6"><strong>{escape_html(self.answer, 200)}'
            f"</strong> {escape_html(self.outcome, 200)}</div>"
            f"<div>Taken out: {escape_html(removal.block.name, 90)}"
            f" ({removal.block.tokens:,} tokens)</div>"
            f"{BlockRowsDrawing(kinds=kinds, rows=rows).svg()}{bill}"
            f'<div style="color:{SOFT_COLOUR}">Dollars gained, by calls to come:</div>'
            f"{self._gain_axes().svg()}{self._render_formula()}</div>"
        )

    def _render_formula(self) -> str:
        if not self.formula:
            return ""
        return (
            '<details><summary style="cursor:pointer">How that follows</summary>'
            f"<div>{escape_html(self.formula, 500)}</div></details>"
        )

    def _gain_axes(self) -> XyDrawing:
        removal = self.removal
        places = list(range(0, _MOST + 1, 4))
        traces = tuple(
            Trace(name=name, x=places, y=[one.gain(n) for n in places], look=look, marked=False)
            for name, look, one in (
                ("while the cache lives", 0, replace(removal, cold=False)),
                ("after a pause, with the cache expired", 1, replace(removal, cold=True)),
            )
        )
        mark = (VerticalMark(x=float(self.calls.value)),)
        return XyDrawing(
            x="calls to come", y="dollars gained", traces=traces, marks=mark, y_dollars=True
        )
