"""`ctxkit.spend`: the bill of a session, said in sentences and split in ten ways."""

from __future__ import annotations

from functools import cached_property
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ctxkit.cache.causes import PAUSES
from ctxkit.display.amounts import MISSING, counted, dollars, percent
from ctxkit.display.markup import NO_MATH, escape, line
from ctxkit.display.sheets import COLUMNS, INK, Box, Heading, Tabular
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.metrics.accounts import Accounts, accounts
from ctxkit.plots.palette import COLOURS
from ctxkit.readers.given import of_session
from ctxkit.spending import ledgers
from ctxkit.spending.fetched import Fetched, Unused, fetched, unused
from ctxkit.spending.portions import Portions, portions
from ctxkit.spending.whatifs import WhatIf, smaller, what_ifs
from ctxkit.titles import questions, title_of

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session import Session
    from ctxkit.spending.ledgers import Portion

WAYS = {
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
    PAUSES: ("pause", "pauses"),
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
        self.accounts: Accounts = accounts(session)

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
    def portions(self) -> Portions:
        """What each message cost in prompts."""
        return portions(self.session, self.accounts.charges)

    @cached_property
    def resent(self) -> list[ledgers.Resent]:
        """What had to be sent again because the cache did not hold it."""
        return ledgers.resent_of(self.session, self.accounts)

    @cached_property
    def fetched(self) -> list[Fetched]:
        """What the same tool call fetched more than once, the dearest first."""
        return fetched(self.session, self.portions)

    @cached_property
    def unused(self) -> list[Unused]:
        """Tools that were offered and never called."""
        return unused(self.session, self.portions, self.accounts)

    @cached_property
    def what_ifs(self) -> list[WhatIf]:
        """What the bill would have been if, the most saved first; what needs no replay."""
        return what_ifs(self.session, self.accounts, self.portions, self.resent)

    def in_window(self, tokens: int) -> WhatIf:
        """Return what it would have cost in a window of so many tokens, by a replay."""
        return smaller(self.session, self.accounts, tokens)

    def by(self, way: str) -> list[Portion]:
        """Return the bill split one way, the largest part first.

        Args:
            way: turn, tool, file, server, cache, agent, subagent, model or section.

        Raises:
            BadArguments: there is no such way.
        """
        if way not in WAYS:
            raise BadArguments(
                f"by() takes one of {', '.join(WAYS)}, not {way!r}.{did_you_mean(str(way), WAYS)}"
            )
        rows = self._own(way)
        below = sum(usd for _, usd in self.children)
        if below and way != "subagent":
            rows = [
                *rows,
                ledgers.Portion("subagents", below, len(self.children), "in sessions of their own"),
            ]
        return sorted(rows, key=lambda r: -r.usd)

    def _own(self, way: str) -> list[Portion]:
        s, found = self.session, self.accounts
        if way == "turn":
            return ledgers.by_turn(s, found, questions(s))
        if way in ("tool", "server"):
            rows = ledgers.by_tool(s, found, self.portions)
            return rows if way == "tool" else ledgers.by_server(rows)
        if way == "file":
            return ledgers.by_file(s, found, self.portions)
        if way == "cache":
            return ledgers.by_cache(s, found, self.resent)
        if way == "section":
            return ledgers.by_section(found, self.portions)
        if way == "subagent":
            return ledgers.by_child(s, found, self.children)
        return ledgers.by_agent(s, found) if way == "agent" else ledgers.by_model(s, found)

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
            was = counted(n, "file or result was", "files and results were")
            out.append(
                f"{was} fetched more than once: the repeats cost {_of(repeats, whole)}; "
                f"most of all {top.name} ({top.times} times, {dollars(top.usd)})."
            )
        if self.unused:
            names = ", ".join(u.name for u in self.unused[:3])
            was = counted(len(self.unused), "tool was", "tools were")
            out.append(
                f"{was} never called ({names}): about"
                f" {_of(sum(u.usd for u in self.unused), whole)}."
            )
        for n, *words in (
            (self.accounts.unpriced_n, "call"),
            (self.accounts.unpriced_summaries_n, "summary", "summaries"),
        ):
            if n:
                are = "is" if n == 1 else "are"
                out.append(f"{counted(n, *words)} without a price {are} in no sum.")
        return out

    def _why(self) -> str:
        if not self.session.calls:
            return "the session has no calls."
        return "the log has no usage." if not self.accounts.charges else "its model has no price."

    def _first(self, whole: float) -> str:
        tools, cache = self.by("tool"), {p.name: p.usd for p in self.by("cache")}
        top = " and ".join(f"{p.name} ({percent(p.usd / whole)})" for p in tools[:2])
        output = cache.get("output", 0.0)
        said = f"{dollars(whole)} in {counted(len(self.accounts.charges), 'call')}"
        said += f" and {counted(len(self.children), 'subagent')}" if self.children else ""
        source = f" ({self.accounts.source})" if self.accounts.source else ""
        return f"{said}{source}: {percent(output / whole)} for output; most for {top}."

    def _again(self, whole: float) -> list[str]:
        out = []
        for kinds, (one, more) in _CAUSES.items():
            found = [r for r in self.resent if r.miss.kind in kinds]
            usd, above = sum(r.sent_usd for r in found), sum(r.usd for r in found)
            if usd >= _CENT:
                long = ledgers.pauses(found) if kinds is PAUSES else ""
                told = (
                    f"{_of(usd, whole)} went to sending again what the cache had held, after "
                    f"{counted(len(found), one, more)}{long}: {dollars(above)} above reading it."
                )
                out.append((usd, told))
        return [told for _, told in sorted(out, key=lambda o: -o[0])]

    def table(self, way: str, rows: int = _ROWS) -> Tabular:
        """Return a split as a table of its largest parts, the rest in one row."""
        parts, whole = self.by(way), self.total_usd
        rest = parts[rows:]
        if rest:
            more = ledgers.Portion(
                f"{len(rest):,} more", sum(r.usd for r in rest), sum(r.n for r in rest)
            )
            parts = [*parts[:rows], more]
        heads = (
            Heading(WAYS[way], "what it was paid for", number=False),
            Heading("share", "of the whole bill"),
            Heading("dollars"),
            Heading("", "the share as a bar", number=False, spare=True),
            Heading("times", "calls, or results that were sent", spare=True),
        )
        made = tuple(_row(p, whole) for p in parts)
        return Tabular(heads, made)

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        out = [line(title_of(self.session), COLUMNS)]
        for told in self.sentences:
            out += wrap(line(told, 400), COLUMNS)
        if self.total_usd is not None:
            for way in _SHOWN:
                out += ["", self.table(way, _FEW).to_text()]
            out += ["", "if:"] + [
                row for w in self.what_ifs[:_FEW] for row in wrap(line(w.sentence, 400), COLUMNS)
            ]
        return "\n".join(out)

    def _repr_html_(self) -> str:
        told = "".join(f"<li>{escape(s, 600)}</li>" for s in self.sentences)
        head = (
            "<strong"
            f' style="font-size:120%">{escape(title_of(self.session, 160))}</strong><ul>{told}</ul>'
        )
        if self.total_usd is None:
            return f'<div class="ctxkit-spend {NO_MATH}" style="{INK}">{head}</div>'
        tables = "".join(
            f"<details{' open' if way in ('cache', 'tool') else ''}><summary>{WAYS[way]}</summary>"
            f"{self.table(way).to_html(high=340, sorts=False)}</details>"
            for way in WAYS
            if way != "subagent" or self.children
        )
        ifs = "".join(f"<li>{escape(w.sentence, 600)}</li>" for w in self.what_ifs)
        ifs = f"<details open><summary>if</summary><ul>{ifs}</ul></details>" if ifs else ""
        drawn = _map(self.by("tool"), self.total_usd)
        return f'<div class="ctxkit-spend {NO_MATH}" style="{INK}">{head}{drawn}{tables}{ifs}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        return self.to_text()


@of_session
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


def _row(p: Portion, whole: float | None) -> tuple[Box, ...]:
    share = p.usd / whole if whole else 0.0
    bar = f'<span aria-hidden="true" style="{_BAR};width:{140 * max(share, 0):.0f}px"></span>'
    return (
        Box(p.name, None, p.hover or p.name),
        Box(percent(share) if whole else MISSING, share),
        Box(dollars(p.usd), p.usd),
        Box("", None, "", "", bar),
        Box(f"{p.n:,}" if p.n else "", float(p.n)),
    )


def _of(usd: float, whole: float) -> str:
    return f"{percent(usd / whole)} of the money ({dollars(usd)})"


def _map(parts: list[Portion], whole: float) -> str:
    """Return a map of the bill: an area for each part, as large as its share."""
    cells = [p for p in parts if p.usd > 0.004 * whole][:24]
    boxes = _tiled([p.usd for p in cells], 0.0, 0.0, 720.0, 150.0)
    drawn = []
    for i, (p, (x, y, w, h)) in enumerate(zip(cells, boxes, strict=True)):
        ink = COLOURS[i % len(COLOURS)]
        told = escape(f"{p.name}: {dollars(p.usd)}, {percent(p.usd / whole)}", 200)
        room = int((w - 8) / 7)
        name = line(p.name, room) if room >= 4 and h >= 16 else ""
        drawn.append(
            f'<g><title>{told}</title><rect x="{x:.1f}" y="{y:.1f}" width="{max(w - 1, 0):.1f}" '
            f'height="{max(h - 1, 0):.1f}" fill="{ink}"/><text x="{x + 4:.1f}" y="{y + 13:.1f}" '
            f'style="fill:#ffffff;font:11px system-ui,sans-serif">{escape(name)}</text></g>'
        )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 150" role="img" aria-label="The'
        f' bill by tool" style="width:100%;max-width:720px;height:auto">{"".join(drawn)}</svg>'
    )


def _tiled(
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
        return [*_tiled(sizes[:n], x, y, cut, h), *_tiled(sizes[n:], x + cut, y, w - cut, h)]
    cut = h * share
    return [*_tiled(sizes[:n], x, y, w, cut), *_tiled(sizes[n:], x, y + cut, w, h - cut)]
