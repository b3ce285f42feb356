"""`ctxkit.spend`: the cost of a session, or of several, in sentences, tables and what-ifs."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, overload

from ctxkit._internal.formatting_and_sanitizing import (
    MISSING,
    NO_MATHJAX,
    escape_html,
    format_percent,
    format_usd,
    pluralize,
    sanitize_line,
    wrap_lines,
)
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.engine.cache_model.call_features import PAUSE_CAUSES
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.metrics.cost import bill_splits
from ctxkit.metrics.cost.bill_splits import (
    BillPart,
    PromptCostsByMessage,
    RepeatedCall,
    UnusedTool,
    attribute_prompt_costs,
    find_repeated_calls,
    find_unused_tools,
    render_bill_treemap,
)
from ctxkit.metrics.cost.session_bill import bill_session
from ctxkit.metrics.cost.what_ifs import MIN_USD, WhatIf, estimate_what_ifs, what_if_smaller_window
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.session.titles import (
    get_first_prompts_by_turn,
    get_project_name,
    get_start_day,
    get_title,
    make_unique_titles,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    import pandas as pd

    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.metrics.cost.call_and_summary_charges import SessionBill
    from ctxkit.session.session import Session


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
"""The ways to split a bill, with the title of each table."""
_MAX_HTML_ROWS, _MAX_TEXT_ROWS = 60, 6
_WHAT_IFS_TITLE = "what would have changed the cost"
"""Title of the sentences about other models, pauses and summaries."""
_TEXT_SPLITS = ("cache", "tool", "turn", "file")
"""Tables of the plain-text display."""
_CAUSE_NAMES = {
    PAUSE_CAUSES: ("pause", "pauses"),
    ("compaction",): ("compaction", "compactions"),
    ("resumed",): ("break of the session", "breaks of the session"),
    ("tools_loaded",): ("search for further tools", "searches for further tools"),
    ("unexplained",): ("miss without a cause", "misses without a cause"),
}
_BAR_CSS = "display:inline-block;height:9px;background:#3a93cc"


class BillSplits:
    """A bill with several splits. Every split adds up to `total_usd`."""

    ways: ClassVar[Mapping[str, str]] = SPLITS
    """The ways to split it, with the title of each table."""

    @property
    def total_usd(self) -> float | None:
        """All dollars that have a price, subagents and summaries included; None without any."""
        raise NotImplementedError

    def by(self, way: str) -> list[BillPart]:
        """Split the bill one way: the parts, the largest first."""
        raise NotImplementedError

    def _check_way(self, way: str) -> None:
        if way not in self.ways:
            raise BadArguments(
                f"by() takes one of {', '.join(self.ways)}, not "
                f"{way!r}.{did_you_mean(str(way), self.ways)}"
            )

    def frame(self, way: str = "turn") -> pd.DataFrame:
        """Return a split as a DataFrame.

        Args:
            way: see `by`.

        Returns:
            One row per part, the largest first, with the columns name (under the name of the way),
            `usd`, `share` of the bill and `n`, the number of calls or results.

        Example:
            >>> import ctxkit as ck
            >>> list(ck.spend(ck.samples.path("billing")).frame("tool").columns)
            ['tool', 'usd', 'share', 'n']
        """
        import pandas as pd

        rows, total = self.by(way), self.total_usd
        shares = [r.usd / total if total else None for r in rows]
        columns = {
            way: [r.name for r in rows],
            "usd": [r.usd for r in rows],
            "share": shares,
            "n": [r.n for r in rows],
        }
        return pd.DataFrame(columns).astype(
            {way: "string", "usd": "Float64", "share": "Float64", "n": "Int64"}
        )

    def table(self, way: str, rows: int = _MAX_HTML_ROWS) -> Table:
        """Return a split as a table.

        Args:
            way: see `by`.
            rows: maximum number of parts with a row of their own; the rest is one row.
        """
        parts, total = self.by(way), self.total_usd
        rest = parts[rows:]
        if rest:
            rest_part = bill_splits.BillPart(
                f"{len(rest):,} more", sum(r.usd for r in rest), sum(r.n for r in rest)
            )
            parts = [*parts[:rows], rest_part]
        columns = (
            Column(self.ways[way], "what it was paid for", number=False),
            Column("share", "of the whole bill"),
            Column("dollars"),
            Column("", "the share as a bar", number=False, spare=True),
            Column("times", "calls, or results that were sent", spare=True),
        )
        cells = tuple(_split_row(p, total) for p in parts)
        return Table(columns, cells)


class Spend(BillSplits):
    """The cost of a session and its splits. Every split adds up to `total_usd`.

    Args:
        session: a recorded session, a replay or a live one; subagents are counted by their own
            logs.

    Example:
        >>> import ctxkit as ck
        >>> spend = Spend(ck.read(ck.samples.path("billing")))
        >>> f"${spend.total_usd:.2f}", spend.children
        ('$3.29', [])
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.bill: SessionBill = bill_session(session)

    @property
    def cost_usd(self) -> float | None:
        """Dollars of calls and summaries without subagents; None where a part has no price."""
        return self.bill.cost_usd

    @cached_property
    def children(self) -> list[tuple[Session, float]]:
        """The session of each subagent with its dollars, including its own subagents."""
        return [(c, Spend(c).total_usd or 0.0) for c in self.session.children]

    @cached_property
    def total_usd(self) -> float | None:
        """All dollars that have a price, subagents and summaries included; None without any."""
        session_usd = self.bill.priced_usd
        children_usd = sum(usd for _, usd in self.children)
        return (
            None
            if session_usd is None and not children_usd
            else (session_usd or 0.0) + children_usd
        )

    @cached_property
    def prompt_costs(self) -> PromptCostsByMessage:
        """The cost of each message in prompts."""
        return attribute_prompt_costs(self.session, self.bill.charges)

    @cached_property
    def resent_tokens(self) -> list[bill_splits.PricedCacheMiss]:
        """The tokens that were sent again because they were not in the cache."""
        return bill_splits.price_cache_misses(self.session, self.bill)

    @cached_property
    def repeated_results(self) -> list[RepeatedCall]:
        """Results that the same tool call fetched more than once, the most expensive first."""
        return find_repeated_calls(self.session, self.prompt_costs)

    @cached_property
    def unused_tools(self) -> list[UnusedTool]:
        """Tools that were offered and never called."""
        return find_unused_tools(self.session, self.prompt_costs, self.bill)

    @cached_property
    def what_ifs(self) -> list[WhatIf]:
        """Changes that need no replay, with the bills they would have caused, most saved first."""
        return estimate_what_ifs(self.session, self.bill, self.prompt_costs, self.resent_tokens)

    def in_window(self, tokens: int) -> WhatIf:
        """Return the cost in a window of another size, by a replay."""
        return what_if_smaller_window(self.session, self.bill, tokens)

    def by(self, way: str) -> list[BillPart]:
        """Split the bill one way.

        Args:
            way: turn, tool, file, server, cache, agent, subagent, model or section.

        Returns:
            The parts with name, dollars and number of calls or results, the largest first.

        Raises:
            BadArguments: there is no such way.

        Example:
            >>> import ctxkit as ck
            >>> parts = ck.spend(ck.samples.path("billing")).by("cache")
            >>> [part.name for part in parts[:2]]
            ['read from the cache', 'sent again after a pause']
        """
        self._check_way(way)
        rows = self._split_session_bill(way)
        children_usd = sum(usd for _, usd in self.children)
        if children_usd and way != "subagent":
            rows = [
                *rows,
                bill_splits.BillPart(
                    "subagents", children_usd, len(self.children), "in sessions of their own"
                ),
            ]
        return sorted(rows, key=lambda r: -r.usd)

    def _split_session_bill(self, way: str) -> list[BillPart]:
        session, bill = self.session, self.bill
        if bill.logged_usd is not None and way != "subagent":
            return [
                bill_splits.BillPart(bill_splits.LOG_TOTAL, bill.logged_usd, len(session.calls))
            ]
        if way == "turn":
            return bill_splits.split_by_turn(session, bill, get_first_prompts_by_turn(session))
        if way in ("tool", "server"):
            rows = bill_splits.split_by_tool(session, bill, self.prompt_costs)
            return rows if way == "tool" else bill_splits.split_by_server(rows)
        if way == "file":
            return bill_splits.split_by_file(session, bill, self.prompt_costs)
        if way == "cache":
            return bill_splits.split_by_cache(session, bill, self.resent_tokens)
        if way == "section":
            return bill_splits.split_by_section(bill, self.prompt_costs)
        if way == "subagent":
            return bill_splits.split_by_subagent(session, bill, self.children)
        return (
            bill_splits.split_by_agent(session, bill)
            if way == "agent"
            else bill_splits.split_by_model(session, bill)
        )

    @property
    def answer(self) -> str:
        """The cost in one sentence, with its largest avoidable part."""
        total = self.total_usd
        if total is None:
            return self.sentences[0]
        start = f"{format_usd(total)} for {self._describe_calls()}"
        repeats = pluralize(len(self.repeated_results), "result")
        causes = [
            *(
                (usd, f"sending again what the cache had held, after {n}")
                for usd, n in self._misses
            ),
            (sum(f.usd for f in self.repeated_results), f"{repeats} that had been fetched before"),
        ]
        usd, cause = max(causes, key=lambda c: c[0])
        if usd < MIN_USD:
            return f"{start}; nothing of it was sent or fetched twice."
        return f"{start}: {format_percent(usd / total)} of it ({format_usd(usd)}) for {cause}."

    @property
    def _misses(self) -> list[tuple[float, str]]:
        """The dollars of tokens that were sent again, and the number of misses, by cause."""
        return [
            (sum(r.sent_usd for r in resent), pluralize(len(resent), *words))
            for kinds, words in _CAUSE_NAMES.items()
            if (resent := [r for r in self.resent_tokens if r.miss.kind in kinds])
        ]

    @property
    def sentences(self) -> list[str]:
        """The causes of the cost in sentences, the largest first."""
        total = self.total_usd
        if total is None:
            return [f"No dollars are known: {self._explain_missing_cost()}"]
        out = [self._describe_total(total), *self._describe_resent(total)]
        repeats_usd = sum(f.usd for f in self.repeated_results)
        if repeats_usd >= MIN_USD:
            top, n = self.repeated_results[0], len(self.repeated_results)
            results_were = pluralize(n, "file or result was", "files and results were")
            out.append(
                f"{results_were} fetched more than once: the repeats cost"
                f" {_share_of_bill(repeats_usd, total)}; "
                f"most of all {top.name} ({top.times} times, {format_usd(top.usd)})."
            )
        if self.unused_tools:
            names = ", ".join(u.name for u in self.unused_tools[:3])
            results_were = pluralize(len(self.unused_tools), "tool was", "tools were")
            out.append(
                f"{results_were} never called ({names}): about"
                f" {_share_of_bill(sum(u.usd for u in self.unused_tools), total)}."
            )
        for n, *words in (
            (self.bill.unpriced_n, "call"),
            (self.bill.unpriced_summaries_n, "summary", "summaries"),
        ):
            if n:
                are = "is" if n == 1 else "are"
                out.append(f"{pluralize(n, *words)} without a price {are} in no sum.")
        return out

    def _explain_missing_cost(self) -> str:
        if not self.session.calls:
            return "the session has no calls."
        if self.bill.charges:
            return "its model has no price."
        return "the log has no usage: a report counts its texts."

    def _describe_total(self, total: float) -> str:
        tools, cache = self.by("tool"), {p.name: p.usd for p in self.by("cache")}
        top_tools = " and ".join(f"{p.name} ({format_percent(p.usd / total)})" for p in tools[:2])
        output = cache.get("output", 0.0)
        summary = f"{format_usd(total)} in {self._describe_calls()}"
        summary += f" and {pluralize(len(self.children), 'subagent')}" if self.children else ""
        source = f" ({self.bill.source})" if self.bill.source else ""
        return (
            f"{summary}{source}: {format_percent(output / total)} for output; most for {top_tools}."
        )

    def _describe_calls(self) -> str:
        """Return the number of calls; `4 of 5 calls` if some of them are not billed."""
        calls_n, billed_n = len(self.session.calls), len(self.bill.charges)
        if 0 < billed_n < calls_n and not self.children:
            return f"{billed_n:,} of {pluralize(calls_n, 'call')}"
        return pluralize(billed_n or calls_n, "call")

    def _describe_resent(self, total: float) -> list[str]:
        out = []
        for kinds, (one, more) in _CAUSE_NAMES.items():
            resent = [r for r in self.resent_tokens if r.miss.kind in kinds]
            usd, extra_usd = sum(r.sent_usd for r in resent), sum(r.usd for r in resent)
            if usd >= MIN_USD:
                pauses = bill_splits.format_pause_range(resent) if kinds is PAUSE_CAUSES else ""
                sentence = (
                    f"{_share_of_bill(usd, total)} went to sending again what the cache had "
                    "held, after "
                    f"{pluralize(len(resent), one, more)}{pauses}: {format_usd(extra_usd)} above "
                    "reading it."
                )
                out.append((usd, sentence))
        return [sentence for _, sentence in sorted(out, key=lambda o: -o[0])]

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        lines = wrap_lines(sanitize_line(self.answer, 400), TERMINAL_COLUMNS)
        if self.total_usd is None:
            return "\n".join(lines)
        lines += ["", sanitize_line(get_title(self.session), TERMINAL_COLUMNS)]
        for sentence in self.sentences:
            lines += wrap_lines(sanitize_line(sentence, 400), TERMINAL_COLUMNS)
        for way in _TEXT_SPLITS:
            lines += ["", self.table(way, _MAX_TEXT_ROWS).to_text()]
        what_ifs = self.what_ifs[:_MAX_TEXT_ROWS]
        lines += ["", f"{_WHAT_IFS_TITLE}:"] if what_ifs else []
        for w in what_ifs:
            lines += wrap_lines(sanitize_line(w.sentence, 400), TERMINAL_COLUMNS)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape_html(s, 600)}</li>" for s in self.sentences)
        title = escape_html(get_title(self.session, 160))
        answer = escape_html(self.answer, 600)
        head = f'<strong style="font-size:120%">{answer}</strong><div>{title}</div>'
        if self.total_usd is None:
            return f'<div class="ctxkit-spend {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">{head}</div>'
        head += f"<ul>{items}</ul>"
        tables = "".join(
            f"<details{' open' if way in ('cache', 'tool') else ''}>"
            f"<summary>{SPLITS[way]}</summary>"
            f"{self.table(way).to_html(max_height_px=340, is_sortable=False)}</details>"
            for way in SPLITS
            if way != "subagent" or self.children
        )
        ifs = "".join(f"<li>{escape_html(w.sentence, 600)}</li>" for w in self.what_ifs)
        if ifs:
            ifs = f"<details open><summary>{_WHAT_IFS_TITLE}</summary><ul>{ifs}</ul></details>"
        treemap = render_bill_treemap(self.by("tool"), self.total_usd)
        return (
            f'<div class="ctxkit-spend {NO_MATHJAX}" '
            f'style="{TEXT_COLOR_CSS}">{head}{treemap}{tables}{ifs}</div>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        return self.to_text()


def _split_row(part: BillPart, total: float | None) -> tuple[Cell, ...]:
    share = part.usd / total if total else 0.0
    bar = f'<span aria-hidden="true" style="{_BAR_CSS};width:{140 * max(share, 0):.0f}px"></span>'
    return (
        Cell(part.name, None, part.hover or part.name),
        Cell(format_percent(share) if total else MISSING, share),
        Cell(format_usd(part.usd), part.usd),
        Cell("", None, "", "", bar),
        Cell(f"{part.n:,}" if part.n else "", float(part.n)),
    )


def _share_of_bill(usd: float, total: float) -> str:
    return f"{format_percent(usd / total)} of the money ({format_usd(usd)})"


@register_view_values("spend")
def _read_figures(session: Session) -> dict[str, Any]:
    spent = Spend(session)
    bill = spent.bill
    figures: dict[str, Any] = {
        "cost_usd": spent.cost_usd,
        "calls_usd": bill.calls_usd,
        "summaries_usd": bill.summaries_usd,
        "cost_source": bill.source,
    }
    if all(child.cost_usd is not None for child in _iter_spends(spent)):
        figures["with_subagents_usd"] = spent.total_usd
    return figures


def _iter_spends(spent: Spend) -> Iterator[Spend]:
    yield spent
    for child, _ in spent.children:
        yield from _iter_spends(Spend(child))


_SESSION_WAYS: dict[str, Callable[[Session], str | None]] = {
    "day": get_start_day,
    "project": get_project_name,
    "format": lambda session: session.format,
}
"""Splits of several sessions by a property of the session."""
_MAX_ROWS = 10


class MultiSessionSpend(BillSplits):
    """The cost of several sessions and its splits. Every split adds up to `total_usd`."""

    ways: ClassVar[Mapping[str, str]] = {
        "session": "by session",
        "day": "by the day on which a session began",
        "project": "by project",
        "format": "by format",
        **SPLITS,
    }

    def __init__(self, sessions: Sequence[Session]) -> None:
        nested = {id(child) for s in sessions for child in _iter_descendants(s)}
        self.sessions = [s for s in sessions if id(s) not in nested]
        self.spends = [Spend(s) for s in self.sessions]

    @cached_property
    def total_usd(self) -> float | None:
        """All dollars that have a price, subagents and summaries included; None without any."""
        costs = [usd for s in self.spends if (usd := s.total_usd) is not None]
        return sum(costs) if costs else None

    @cached_property
    def cost_usd(self) -> float | None:
        """Dollars of calls and summaries without subagents; None where a part has no price."""
        costs = [s.cost_usd for s in self.spends]
        return None if None in costs else sum(usd for usd in costs if usd is not None)

    def by(self, way: str) -> list[BillPart]:
        """Split the bill one way.

        Args:
            way: session, day, project, format, or a way of a single session; by turn, the parts of
                different sessions are separate.

        Returns:
            The parts with name, dollars and number of calls or results, the largest first.

        Raises:
            BadArguments: there is no such way.
        """
        self._check_way(way)
        sums = defaultdict[str, float](float)
        counts = defaultdict[str, int](int)
        for name, part in self._iter_parts(way):
            sums[name] += part.usd
            counts[name] += part.n
        rows = [BillPart(name, usd, counts[name]) for name, usd in sums.items()]
        return sorted(rows, key=lambda r: -r.usd)

    def _iter_parts(self, way: str) -> Iterator[tuple[str, BillPart]]:
        titles = make_unique_titles(self.sessions)
        of_session = _SESSION_WAYS.get(way)
        for title, spent in zip(titles, self.spends, strict=True):
            whole = BillPart(title, spent.total_usd or 0.0, len(spent.session.calls))
            if way == "session":
                yield title, whole
            elif of_session is not None:
                yield sanitize_line(of_session(spent.session) or "unknown", 80), whole
            else:
                for part in spent.by(way) if spent.total_usd is not None else ():
                    yield f"{title}, {part.name}" if way == "turn" else part.name, part

    @property
    def sentences(self) -> list[str]:
        """The total and its limits, in sentences."""
        total, n = self.total_usd, pluralize(len(self.sessions), "session")
        if total is None:
            return [f"No dollars are known of {n}."]
        children_usd = sum(usd for s in self.spends for _, usd in s.children)
        out = [f"{format_usd(total)} in {n}, summaries and subagents included."]
        if children_usd:
            out.append(f"{format_usd(children_usd)} of it are those of subagents.")
        unknown = sum(s.total_usd is None for s in self.spends)
        partial = sum(s.cost_usd is None for s in self.spends) - unknown
        if unknown:
            out.append(f"{pluralize(unknown, 'session')} without a price add nothing to it.")
        if partial:
            out.append(
                f"{pluralize(partial, 'session')} with calls or summaries without a price count as"
                " far as there is one."
            )
        return out

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        lines = list(self.sentences)
        if self.total_usd is not None:
            for way in ("session", "cache", "tool"):
                lines += ["", self.table(way, _MAX_ROWS).to_text()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape_html(s, 600)}</li>" for s in self.sentences)
        tables = "".join(
            f"<details{' open' if way == 'session' else ''}><summary>{title}</summary>"
            f"{self.table(way).to_html(max_height_px=340, is_sortable=False)}</details>"
            for way, title in self.ways.items()
            if self.total_usd is not None
        )
        return (
            f'<div class="ctxkit-spend {NO_MATHJAX}" style="{TEXT_COLOR_CSS}"><ul>{items}</ul>'
            f"{tables}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        return self.to_text()


def _iter_descendants(session: Session) -> Iterable[Session]:
    for child in session.children:
        yield child
        yield from _iter_descendants(child)


@overload
def spend(sessions: Session | PathLike[str]) -> Spend: ...
@overload
def spend(sessions: SessionsLike) -> Spend | MultiSessionSpend: ...
def spend(sessions: SessionsLike) -> Spend | MultiSessionSpend:
    """Break down the cost of a session, or of several, by turn, tool, file, cache and more.

    The dollars of a call are attributed to the messages of its prompt, cached tokens at the price
    of a read and new ones at that of a write, so every split adds up to the bill. Dollars come from
    the log, else from usage times the price table; replays are billed as by `compare`.

    Args:
        sessions: a session, the path of a log, or a list of messages; or several sessions, or a
            folder. A session that is also a subagent of another session counts once.

    Returns:
        The breakdown. It displays as sentences and tables; `by` and `frame` return one split.

    Raises:
        BadArguments: the argument is no session.

    Example:
        >>> import ctxkit as ck
        >>> bill = ck.spend(ck.samples.path("billing"))
        >>> round(bill.total_usd, 2)
        3.29
        >>> abs(sum(part.usd for part in bill.by("tool")) - bill.total_usd) < 1e-6
        True
        >>> both = ck.spend([ck.samples.path("billing"), ck.samples.path("chat")])
        >>> [part.name for part in both.by("format")]
        ['native']
    """
    chosen = as_sessions(sessions)
    if len(chosen) == 1:
        return Spend(chosen[0])
    return MultiSessionSpend(chosen)
