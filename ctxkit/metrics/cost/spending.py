"""`ctxkit.spend`: the bill of a session in sentences, tables and what-ifs."""

from __future__ import annotations

from functools import cached_property
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import (
    MISSING,
    NO_MATHJAX,
    escape_html,
    format_change,
    format_percent,
    format_usd,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.palette import COLOURS
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.engine.cache_model.call_features import HOUR, PAUSE_CAUSES
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.cost import bill_splits
from ctxkit.metrics.cost.bill_splits import (
    RepeatedResult,
    UnusedTool,
    find_repeated_results,
    find_unused_tools,
)
from ctxkit.metrics.cost.ledger import build_recorded_ledger
from ctxkit.metrics.cost.session_bill import (
    PromptCosts,
    SessionBill,
    attribute_prompt_costs,
    bill_session,
)
from ctxkit.session.messages import Usage
from ctxkit.session.titles import get_first_prompts_by_turn, get_title
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.metrics.cost.bill_splits import BillPart, ResentTokens
    from ctxkit.metrics.cost.session_bill import CallCharge
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price


SPLITS = {
    "turn": "by what was asked",
    "tool": "by tool",
    "file": "by file",
    "server": "by MCP server",
    "cache": "by what the cache did",
    "agent": "by agent",
    "subagent": "by subagent's session",
    "model": "by model",
    "section": "by section of the system message",
}
"""How a bill can be split, and the head of each table."""
_ROWS, _FEW = 60, 6
_SHOWN = ("cache", "tool", "turn", "file")
"""Tables of the plain display."""
_CENT = 0.005
_CAUSES = {
    PAUSE_CAUSES: ("pause", "pauses"),
    ("compaction",): ("compaction", "compactions"),
    ("resumed",): ("break of the session", "breaks of the session"),
    ("tools_loaded",): ("search for further tools", "searches for further tools"),
    ("unexplained",): ("miss without a cause", "misses without a cause"),
}
_BAR = "display:inline-block;height:9px;background:#3a93cc"


class Spend:
    """What a session cost and what for. Every split adds up to `total_usd`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.accounts: SessionBill = bill_session(session)

    @cached_property
    def children(self) -> list[tuple[Session, float]]:
        """Each subagent's own session with its dollars, those below them included."""
        return [(c, Spend(c).total_usd or 0.0) for c in self.session.children]

    @cached_property
    def total_usd(self) -> float | None:
        """All dollars, subagents and summaries included; None where nothing has a price."""
        own = self.accounts.total_usd
        below = sum(usd for _, usd in self.children)
        return None if own is None and not below else (own or 0.0) + below

    @cached_property
    def portions(self) -> PromptCosts:
        """What each message cost in prompts."""
        return attribute_prompt_costs(self.session, self.accounts.charges)

    @cached_property
    def resent(self) -> list[bill_splits.ResentTokens]:
        """What had to be sent again because the cache did not hold it."""
        return bill_splits.find_resent(self.session, self.accounts)

    @cached_property
    def fetched(self) -> list[RepeatedResult]:
        """What the same tool call fetched more than once, the dearest first."""
        return find_repeated_results(self.session, self.portions)

    @cached_property
    def unused(self) -> list[UnusedTool]:
        """Tools that were offered and never called."""
        return find_unused_tools(self.session, self.portions, self.accounts)

    @cached_property
    def what_ifs(self) -> list[WhatIf]:
        """What the bill would have been if, the most saved first; what needs no replay."""
        return estimate_what_ifs(self.session, self.accounts, self.portions, self.resent)

    def in_window(self, tokens: int) -> WhatIf:
        """Return what it would have cost in a window of so many tokens, by a replay."""
        return what_if_smaller_window(self.session, self.accounts, tokens)

    def by(self, way: str) -> list[BillPart]:
        """Return the bill split one way, the largest part first.

        Args:
            way: turn, tool, file, server, cache, agent, subagent, model or section.

        Raises:
            BadArguments: there is no such way.
        """
        if way not in SPLITS:
            raise BadArguments(
                f"by() takes one of {', '.join(SPLITS)}, not "
                f"{way!r}.{did_you_mean(str(way), SPLITS)}"
            )
        rows = self._own(way)
        below = sum(usd for _, usd in self.children)
        if below and way != "subagent":
            rows = [
                *rows,
                bill_splits.BillPart(
                    "subagents", below, len(self.children), "in sessions of their own"
                ),
            ]
        return sorted(rows, key=lambda r: -r.usd)

    def _own(self, way: str) -> list[BillPart]:
        s, found = self.session, self.accounts
        if way == "turn":
            return bill_splits.split_by_turn(s, found, get_first_prompts_by_turn(s))
        if way in ("tool", "server"):
            rows = bill_splits.split_by_tool(s, found, self.portions)
            return rows if way == "tool" else bill_splits.split_by_server(rows)
        if way == "file":
            return bill_splits.split_by_file(s, found, self.portions)
        if way == "cache":
            return bill_splits.split_by_cache(s, found, self.resent)
        if way == "section":
            return bill_splits.split_by_section(found, self.portions)
        if way == "subagent":
            return bill_splits.split_by_subagent(s, found, self.children)
        return (
            bill_splits.split_by_agent(s, found)
            if way == "agent"
            else bill_splits.split_by_model(s, found)
        )

    def frame(self, way: str = "turn") -> pd.DataFrame:
        """Return a split as a DataFrame: name, dollars, share of the bill, how many calls or
        results.
        """
        import pandas as pd

        rows, whole = self.by(way), self.total_usd
        shares = [r.usd / whole if whole else None for r in rows]
        columns = {
            way: [r.name for r in rows],
            "usd": [r.usd for r in rows],
            "share": shares,
            "n": [r.n for r in rows],
        }
        return pd.DataFrame(columns).astype(
            {way: "string", "usd": "Float64", "share": "Float64", "n": "Int64"}
        )

    @property
    def sentences(self) -> list[str]:
        """Where it went, the largest first, in sentences."""
        whole = self.total_usd
        if whole is None:
            return [f"No dollars are known: {self._why()}"]
        out = [self._first(whole), *self._again(whole)]
        repeats = sum(f.usd for f in self.fetched)
        if repeats >= _CENT:
            top, n = self.fetched[0], len(self.fetched)
            was = pluralize(n, "file or result was", "files and results were")
            out.append(
                f"{was} fetched more than once: the repeats cost {_share_of_bill(repeats, whole)}; "
                f"most of all {top.name} ({top.times} times, {format_usd(top.usd)})."
            )
        if self.unused:
            names = ", ".join(u.name for u in self.unused[:3])
            was = pluralize(len(self.unused), "tool was", "tools were")
            out.append(
                f"{was} never called ({names}): about"
                f" {_share_of_bill(sum(u.usd for u in self.unused), whole)}."
            )
        for n, *words in (
            (self.accounts.unpriced_n, "call"),
            (self.accounts.unpriced_summaries_n, "summary", "summaries"),
        ):
            if n:
                are = "is" if n == 1 else "are"
                out.append(f"{pluralize(n, *words)} without a price {are} in no sum.")
        return out

    def _why(self) -> str:
        if not self.session.calls:
            return "the session has no calls."
        return "the log has no usage." if not self.accounts.charges else "its model has no price."

    def _first(self, whole: float) -> str:
        tools, cache = self.by("tool"), {p.name: p.usd for p in self.by("cache")}
        top = " and ".join(f"{p.name} ({format_percent(p.usd / whole)})" for p in tools[:2])
        output = cache.get("output", 0.0)
        said = f"{format_usd(whole)} in {pluralize(len(self.accounts.charges), 'call')}"
        said += f" and {pluralize(len(self.children), 'subagent')}" if self.children else ""
        source = f" ({self.accounts.source})" if self.accounts.source else ""
        return f"{said}{source}: {format_percent(output / whole)} for output; most for {top}."

    def _again(self, whole: float) -> list[str]:
        out = []
        for kinds, (one, more) in _CAUSES.items():
            found = [r for r in self.resent if r.miss.kind in kinds]
            usd, above = sum(r.sent_usd for r in found), sum(r.usd for r in found)
            if usd >= _CENT:
                long = bill_splits.describe_pauses(found) if kinds is PAUSE_CAUSES else ""
                told = (
                    f"{_share_of_bill(usd, whole)} went to sending again what the cache had "
                    "held, after "
                    f"{pluralize(len(found), one, more)}{long}: {format_usd(above)} above "
                    "reading it."
                )
                out.append((usd, told))
        return [told for _, told in sorted(out, key=lambda o: -o[0])]

    def table(self, way: str, rows: int = _ROWS) -> Table:
        """Return a split as a table of its largest parts, the rest in one row."""
        parts, whole = self.by(way), self.total_usd
        rest = parts[rows:]
        if rest:
            more = bill_splits.BillPart(
                f"{len(rest):,} more", sum(r.usd for r in rest), sum(r.n for r in rest)
            )
            parts = [*parts[:rows], more]
        heads = (
            Column(SPLITS[way], "what it was paid for", number=False),
            Column("share", "of the whole bill"),
            Column("dollars"),
            Column("", "the share as a bar", number=False, spare=True),
            Column("times", "calls, or results that were sent", spare=True),
        )
        made = tuple(_split_row(p, whole) for p in parts)
        return Table(heads, made)

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        out = [sanitize_line(get_title(self.session), TERMINAL_COLUMNS)]
        for told in self.sentences:
            out += wrap(sanitize_line(told, 400), TERMINAL_COLUMNS)
        if self.total_usd is not None:
            for way in _SHOWN:
                out += ["", self.table(way, _FEW).to_text()]
            out += ["", "if:"] + [
                row
                for w in self.what_ifs[:_FEW]
                for row in wrap(sanitize_line(w.sentence, 400), TERMINAL_COLUMNS)
            ]
        return "\n".join(out)

    def _repr_html_(self) -> str:
        told = "".join(f"<li>{escape_html(s, 600)}</li>" for s in self.sentences)
        title = escape_html(get_title(self.session, 160))
        head = f'<strong style="font-size:120%">{title}</strong><ul>{told}</ul>'
        if self.total_usd is None:
            return f'<div class="ctxkit-spend {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">{head}</div>'
        tables = "".join(
            f"<details{' open' if way in ('cache', 'tool') else ''}>"
            f"<summary>{SPLITS[way]}</summary>"
            f"{self.table(way).to_html(high=340, sorts=False)}</details>"
            for way in SPLITS
            if way != "subagent" or self.children
        )
        ifs = "".join(f"<li>{escape_html(w.sentence, 600)}</li>" for w in self.what_ifs)
        ifs = f"<details open><summary>if</summary><ul>{ifs}</ul></details>" if ifs else ""
        drawn = _treemap_svg(self.by("tool"), self.total_usd)
        return (
            f'<div class="ctxkit-spend {NO_MATHJAX}" '
            f'style="{TEXT_COLOR_CSS}">{head}{drawn}{tables}{ifs}</div>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        return self.to_text()


@accepts_session
def spend(session: Session) -> Spend:
    """Return what a session cost and where it went.

    A call's dollars are shared out among what its prompt held, the read part at the price of a read
    and the new at that of a write, so each split adds up to the bill: what the log prices, else
    usage times the table of prices; a replay is billed as `compare` bills it.

    Args:
        session: any session, the path of a log, or a list of messages.

    Raises:
        BadArguments: it is no session.
    """
    return Spend(session)


def _split_row(p: BillPart, whole: float | None) -> tuple[Cell, ...]:
    share = p.usd / whole if whole else 0.0
    bar = f'<span aria-hidden="true" style="{_BAR};width:{140 * max(share, 0):.0f}px"></span>'
    return (
        Cell(p.name, None, p.hover or p.name),
        Cell(format_percent(share) if whole else MISSING, share),
        Cell(format_usd(p.usd), p.usd),
        Cell("", None, "", "", bar),
        Cell(f"{p.n:,}" if p.n else "", float(p.n)),
    )


def _share_of_bill(usd: float, whole: float) -> str:
    return f"{format_percent(usd / whole)} of the money ({format_usd(usd)})"


def _treemap_svg(parts: list[BillPart], whole: float) -> str:
    """Return a map of the bill: an area for each part, as large as its share."""
    cells = [p for p in parts if p.usd > 0.004 * whole][:24]
    boxes = _tile_rectangles([p.usd for p in cells], 0.0, 0.0, 720.0, 150.0)
    drawn = []
    for i, (p, (x, y, w, h)) in enumerate(zip(cells, boxes, strict=True)):
        ink = COLOURS[i % len(COLOURS)]
        told = escape_html(f"{p.name}: {format_usd(p.usd)}, {format_percent(p.usd / whole)}", 200)
        room = int((w - 8) / 7)
        name = sanitize_line(p.name, room) if room >= 4 and h >= 16 else ""
        drawn.append(
            f'<g><title>{told}</title><rect x="{x:.1f}" y="{y:.1f}" width="{max(w - 1, 0):.1f}" '
            f'height="{max(h - 1, 0):.1f}" fill="{ink}"/><text x="{x + 4:.1f}" y="{y + 13:.1f}" '
            f'style="fill:#ffffff;font:11px system-ui,sans-serif">{escape_html(name)}</text></g>'
        )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 150" role="img" aria-label="The'
        f' bill by tool" style="width:100%;max-width:720px;height:auto">{"".join(drawn)}</svg>'
    )


def _tile_rectangles(
    sizes: list[float], x: float, y: float, w: float, h: float
) -> list[tuple[float, float, float, float]]:
    """Return a rectangle for each size, largest first: half of what is left at a time, along the
    longer side.
    """
    if not sizes:
        return []
    if len(sizes) == 1:
        return [(x, y, w, h)]
    whole, first, n = sum(sizes), sizes[0], 1
    while n < len(sizes) - 1 and first + sizes[n] / 2 < whole / 2:
        first, n = first + sizes[n], n + 1
    share = first / whole if whole else 0.5
    if w >= h:
        cut = w * share
        return [
            *_tile_rectangles(sizes[:n], x, y, cut, h),
            *_tile_rectangles(sizes[n:], x + cut, y, w - cut, h),
        ]
    cut = h * share
    return [
        *_tile_rectangles(sizes[:n], x, y, w, cut),
        *_tile_rectangles(sizes[n:], x, y + cut, w, h - cut),
    ]


CHEAPER_MODELS = ("claude-sonnet-4-5", "claude-haiku-4-5", "gpt-5-mini", "gemini-2.5-flash")
"""Models that a session is priced for beside its own, where the table has them."""
_SMALL = 0.005
"""Dollars below which a sentence says nothing."""


class WhatIf(NamedTuple):
    """One change, and the bill that it would have made."""

    name: str
    usd: float
    """Dollars more (or, negative, less)."""
    sentence: str


def estimate_what_ifs(
    session: Session, found: SessionBill, parts: PromptCosts, resent: Sequence[ResentTokens]
) -> list[WhatIf]:
    """Return what can be said without a replay; the same calls are taken for granted."""
    made = (
        _what_if_hour_cache(session, found, resent),
        _what_if_other_models(session, found),
        _what_if_stable_prefix(resent, parts),
        _what_if_append_only(session),
        _what_if_cheaper_summaries(session, found),
    )
    return sorted((w for w in made if w is not None and abs(w.usd) >= _SMALL), key=lambda w: w.usd)


def _what_if_hour_cache(
    session: Session, found: SessionBill, resent: Sequence[ResentTokens]
) -> WhatIf | None:
    """A cache that lives an hour: pauses shorter than that are hits, every write is dearer."""
    known = price(session.model or _first_model(session))
    if known is None or known.cache_write is None or known.cache_write_1h is None:
        return None
    paused = [r for r in resent if r.miss.paused]
    short = [r for r in paused if r.miss.gap is not None and r.miss.gap < HOUR]
    usages = {c.index: c.message.usage for c in session.calls}
    if not short or any(u is not None and u.cache_write_1h_tokens for u in usages.values()):
        return None
    saved, again = sum(r.usd for r in short), {r.miss.call: r.miss.lost for r in short}
    writes = sum(max(c.write - again.get(c.call, 0), 0) for c in found.charges)
    dearer = writes * (known.cache_write_1h - known.cache_write)
    told = (
        f"With a cache that lives an hour, {len(short)} of {pluralize(len(paused), 'pause')} would"
        f" have cost {format_usd(saved)} less and all writing {format_usd(dearer)} more:"
        f" {_more_or_less(dearer - saved)} in all."
    )
    return WhatIf("cache for an hour", dearer - saved, told)


def _what_if_other_models(session: Session, found: SessionBill) -> WhatIf | None:
    """The same tokens at other models' prices; their own counts would differ, and so
    would the run.
    """
    own, told = _first_model(session), []
    for name in CHEAPER_MODELS:
        other = price(name)
        if other is not None and own is not None and name not in own:
            told.append(
                (sum(_price_charge(other, c) for c in found.charges if c.usd is not None), name)
            )
    if not told or not found.calls_usd:
        return None
    each = [
        f"{format_usd(usd)} at those of {name} ({format_change(usd / found.calls_usd - 1)})"
        for usd, name in sorted(told)
    ]
    said = (
        f"By other models' prices the same calls would have cost {', '.join(each)}; another model"
        " takes other calls."
    )
    return WhatIf("another model", min(told)[0] - found.calls_usd, said)


def _price_charge(other: Price, c: CallCharge) -> float:
    usage = Usage(
        input_tokens=c.fresh,
        cache_read_tokens=c.read,
        cache_write_tokens=c.write,
        output_tokens=c.output,
    )
    return other.cost_usd(usage) or 0.0


def _what_if_stable_prefix(resent: Sequence[ResentTokens], parts: PromptCosts) -> WhatIf | None:
    """What never changes put before the summary: a compaction leaves it in the cache."""
    cuts = [r for r in resent if r.miss.kind == "compaction" and r.miss.lost]
    kept = sum(
        r.usd * min(max(parts.fixed_tokens - r.miss.kept, 0), r.miss.lost) / r.miss.lost
        for r in cuts
    )
    if not cuts:
        return None
    told = (
        "Had the system prompt and the tools stayed in the cache at"
        f" {pluralize(len(cuts), 'compaction')} (the stable part before the summary), it would have"
        f" cost {format_usd(kept)} less."
    )
    return WhatIf("stable part first", -kept, told)


def _what_if_append_only(session: Session) -> WhatIf | None:
    """A summary asked for at the end of the cached prompt, and not by a call of its own."""
    if session.origin is not None or not session.edits:
        return None
    own, reused = (
        build_recorded_ledger(session).summaries_usd,
        build_recorded_ledger(session, reuse=True).summaries_usd,
    )
    if own is None or reused is None:
        return None
    told = (
        "Had each summary been asked for at the end of the cached prompt, the summaries would have"
        f" cost {format_usd(reused)} and not {format_usd(own)}."
    )
    return WhatIf("append-only summaries", reused - own, told)


def _what_if_cheaper_summaries(session: Session, found: SessionBill) -> WhatIf | None:
    own, usd = price(_first_model(session)), found.summaries_usd
    small = next(((n, p) for n in reversed(CHEAPER_MODELS) if (p := price(n)) is not None), None)
    if own is None or small is None or not usd or small[1].input >= own.input:
        return None
    name, other = small
    less = usd * (other.input / own.input - 1)
    told = (
        f"Summaries by {name} would have cost about {format_usd(usd + less)} and not "
        f"{format_usd(usd)}, "
        "by its price of input; what they would have left out is another question."
    )
    return WhatIf("cheaper summaries", less, told)


def _first_model(session: Session) -> str | None:
    return session.model or next((c.message.model for c in session.calls if c.message.model), None)


def _more_or_less(usd: float) -> str:
    return f"{format_usd(-usd)} less" if usd < 0 else f"{format_usd(usd)} more"


def what_if_smaller_window(session: Session, found: SessionBill, window: int) -> WhatIf:
    """Return what the session would have cost in a smaller window, by a replay.

    Claude Code's rules stand for a compaction near its end.
    """
    from ctxkit.engine.replay import replay
    from ctxkit.metrics.cost.session_bill import bill_session
    from ctxkit.presets import claude_code

    base = session.origin or session
    made = bill_session(replay(base, claude_code(context_window=window)))
    usd, now = made.total_usd or 0.0, found.total_usd or 0.0
    told = (
        f"In a window of {window:,} tokens, compacted as Claude Code does, it would have cost"
        f" {format_usd(usd)} ({format_change(usd / now - 1) if now else 'no cost is known'}), with"
        f" {pluralize(len(made.summaries), 'paid summary', 'paid summaries')}. A replay: the same"
        " calls."
    )
    return WhatIf(f"window of {window:,}", usd - now, told)
