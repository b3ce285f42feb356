"""What a watcher shows, as HTML: how full the context is, its growth, the last calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.display.markup import escape, line
from ctxkit.plots.chart import table
from ctxkit.plots.chart_words import size
from ctxkit.plots.palette import COLOURS
from ctxkit.widgets.dials import dense
from ctxkit.widgets.explorer_panels import SOFT, TEXT

if TYPE_CHECKING:
    from ctxkit.session import Session

CALLS = 6
"""Calls in the table."""
_FULL = 0.8
"""Above this share of the window the gauge changes colour; the figure beside it says the same."""
_HEAD = ("call", "turn", "prompt", "cached", "out", "then")


class Gauge(NamedTuple):
    """How a session stands."""

    name: str
    used: int | None
    limit: int | None
    calls: int
    compactions: int
    state: str
    """What is going on: `running`, `at rest`, or nothing where nobody runs it."""
    note: str

    @property
    def text(self) -> str:
        """`main · Context: 5,387/16,000 (34%) · 6 calls · Compactions: 0 · running`."""
        share = f" ({self.used / self.limit:.0%})" if self.used is not None and self.limit else ""
        used = "size unknown"
        if self.used is not None:
            used = f"{self.used:,}" + (f"/{self.limit:,}" if self.limit else "")
        parts = [line(self.name, 60), f"Context: {used}{share}", f"{self.calls:,} calls",
                 f"Compactions: {self.compactions}", self.state, line(self.note, 100)]  # fmt: skip
        return " · ".join(p for p in parts if p)

    def html(self) -> str:
        """The text, and a bar where the share is known."""
        label = escape(self.text, 300)
        told = f'<div style="color:{TEXT};line-height:1.6">{label}</div>'
        if self.used is None or not self.limit:
            return told
        share = min(self.used / self.limit, 1.0)
        colour = COLOURS[1] if share > _FULL else COLOURS[0]
        return (
            f'{told}<div role="meter" aria-label="{label}" aria-valuemin="0"'
            f' aria-valuemax="{self.limit}" aria-valuenow="{self.used}"'
            ' style="height:10px;border-radius:5px;overflow:hidden'
            ';background:rgba(119,119,119,.25)"><div'
            f' style="width:{share:.1%};height:10px;background:{colour}"></div></div>'
        )


def growth(session: Session, name: str) -> str:
    """Return the growth of the context as a static picture, cheap enough to be drawn again after
    each call.
    """
    from ctxkit.plots import growth as chart

    if not session.calls:
        return f'<div style="color:{SOFT}">No call yet.</div>'
    made = chart({name: session})
    return f'<div role="img" aria-label="{escape(made.caption, 300)}">{made.drawing.svg()}</div>'


def sentences(told: list[str]) -> str:
    """Return sentences as HTML; empty without any."""
    return "".join(
        f'<div style="color:{TEXT};line-height:1.6">{escape(s, 500)}</div>' for s in told
    )


def rows(session: Session) -> list[tuple[str, ...]]:
    """Return the last calls, the newest first: place, recorded sizes, what the reply asked for."""
    out = []
    for call in reversed(session.calls[-CALLS:]):
        m, u = call.message, call.message.usage
        asked = ", ".join(c.name for c in m.tool_calls) or (
            m.error or line(m.text, 60) or "nothing said"
        )
        sizes = (u.prompt_tokens, u.cache_read_tokens, u.output_tokens) if u else (None, None, None)
        out.append((str(call.index), str(call.turn), *map(size, sizes), line(asked, 70)))
    return out


def listing(session: Session) -> str:
    """Return the last calls as a table."""
    found = rows(session)
    return (
        dense(table(_HEAD, found, caption=f"The last {len(found)} calls, the newest first"))
        if found
        else ""
    )


def twin(session: Session) -> list[str]:
    """Return the last calls as lines of text."""
    return [
        "  ".join(f"{cell:>9}" for cell in row[:-1]) + f"  {row[-1]}"
        for row in [_HEAD, *rows(session)]
    ]
