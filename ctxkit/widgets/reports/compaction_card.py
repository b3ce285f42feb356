"""A card of one compaction, to be shared: what it removed, what was needed later, and its cost.

Of a log, a card shows only exact values that the compaction removed, each redacted; it does not
have the session's title, folder or texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_percent,
    format_usd,
    has_value,
    pluralize,
    sanitize_line,
    wrap_lines,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.redaction import redact
from ctxkit._internal.safe_files import expand_home
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.frames import frame
from ctxkit.metrics.loss_tables import losses
from ctxkit.plots.chart import write_page
from ctxkit.widgets.reports.html_page import (
    PageSection,
    render_name_value_pairs,
    render_page,
    render_sentence_list,
    render_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from ctxkit.session.session import Session


__all__ = ["CompactionCard", "RemovedItemNeededLater", "make_card", "write_card"]
__dir__ = make_dunder_dir(__all__)

MAX_NEEDED = 12
"""Values on a card, at most: those that were needed soonest."""
MAX_CHARS = 80
"""Characters of a value on a card."""
MAX_BYTES = 150_000
"""Bytes of a card, at most."""
REDACTED_VALUE = "(redacted)"
_HOME = re.compile(r"(?i)(?:/home|/users|[a-z]:[\\/]users)[\\/][^\\/\s]+")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_LONG_ID = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
"""Pattern of ids that may be keys, so that cards omit them."""
_LINE, _WIDTH = 22, 640
_STYLE = (
    ".ctxkit-card{--page:#ffffff;--ink:#1f2328}"
    "@media(prefers-color-scheme:dark){.ctxkit-card{--page:#0d1117;--ink:#e6edf3}}"
    ".ctxkit-card rect{fill:var(--jp-layout-color0,var(--page));stroke:#888888}"
    ".ctxkit-card text{fill:var(--jp-content-font-color1,var(--ink))}"
)
"""Colours of the picture: those of a notebook's theme, else of the reader's light or dark page."""


class RemovedItemNeededLater(NamedTuple):
    """A value that a compaction took and that was used later."""

    family: str
    """Such as path, number or id."""
    text: str
    """Redacted."""
    calls: int
    """Calls from the compaction to its use."""
    fate: str
    """`lost`, or `recoverable` where the prompt names a file that has it."""


class CompactionCard(NamedTuple):
    """The figures of one compaction: removed values, those needed later, and its price."""

    number: int
    """Of the compaction in its session, from 1."""
    tokens_before: int | None
    tokens_after: int | None
    cost_usd: float | None
    """Dollars of the compaction's own call; None: unknown."""
    removed_by_family: dict[str, int]
    """Values that it took, by kind, the most first."""
    needed_n: int
    """Of them, those that were used later."""
    needed: tuple[RemovedItemNeededLater, ...]
    """At most `MAX_NEEDED` of these, the soonest first."""

    @property
    def removed_n(self) -> int:
        """Values that it took."""
        return sum(self.removed_by_family.values())

    @property
    def title(self) -> str:
        """The number of removed values that were needed later, as a title."""
        if not self.removed_n:
            return "No exact value is known to have gone with this compaction"
        return f"A compaction took {self.removed_n:,} values, {self.needed_n:,} were needed later"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Name and value of each figure; what is not known is a dash."""
        soonest = pluralize(self.needed[0].calls, "call") if self.needed else "—"
        share = format_percent(self.needed_n / self.removed_n) if self.removed_n else "—"
        return (
            ("tokens before", _count(self.tokens_before)),
            ("tokens after", _count(self.tokens_after)),
            ("needed later", share),
            ("the soonest after", soonest),
            ("price", "—" if self.cost_usd is None else format_usd(self.cost_usd)),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The meaning of the figures, as sentences."""
        return (
            "Counted are paths, ids, numbers and the like that the prompt no longer showed.",
            "The summary may still say them in other words.",
            "Made by ctxkit from a log alone. Secrets, addresses and long ids are hidden.",
        )

    def to_html(self) -> str:
        """Return one page that opens offline."""
        needed = [(i.text, i.family, f"{i.calls:,}", i.fate) for i in self.needed]
        removed = [(family, f"{n:,}") for family, n in self.removed_by_family.items()]
        heads = ("value", "kind", "needed after (calls)", "fate")
        return render_page(
            self.title,
            render_name_value_pairs(self.facts),
            [
                PageSection(
                    self._needed_head.rstrip(":"),
                    render_table(heads, needed, numbers=frozenset({2})),
                ),
                PageSection(
                    "What went", render_table(("kind", "values"), removed, numbers=frozenset({1}))
                ),
                PageSection("What this means", render_sentence_list(self.notes)),
            ],
            plotly=False,
        )

    def to_svg(self) -> str:
        """Return one picture."""
        lines = [*wrap_lines(self.title, 64), ""]
        lines += [f"{name}: {value}" for name, value in self.facts]
        lines += ["", *([self._needed_head] * bool(self.needed))]
        lines += [f"{i.calls:>6,}  {sanitize_line(i.text, 60)}" for i in self.needed]
        lines += ["", *(line for note in self.notes for line in wrap_lines(note, 76))]
        height = (len(lines) + 2) * _LINE
        texts = "".join(
            f'<text x="20" y="{(i + 1.6) * _LINE:.0f}" xml:space="preserve">{escape_html(t)}</text>'
            for i, t in enumerate(lines)
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" class="ctxkit-card"'
            f' viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape_html(self.title)}">'
            f'<style>{_STYLE}</style><rect width="{_WIDTH}" height="{height}" rx="10"/>'
            f'<g font-family="ui-monospace,monospace" font-size="13">{texts}</g></svg>\n'
        )

    @property
    def _needed_head(self) -> str:
        some = f", the soonest {len(self.needed)} of {self.needed_n:,}"
        return f"Needed later, after how many calls{some * (len(self.needed) < self.needed_n)}:"

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"{name}: {value}" for name, value in self.facts)])

    def _repr_html_(self) -> str:
        return self.to_svg()


@accepts_session
def make_card(session: Session, *, compaction: int = -1) -> CompactionCard:
    """Make a card of a compaction: what it removed, what was needed later, how soon, and its cost.

    Args:
        session: a recorded session or a replay with a compaction.
        compaction: number of the compaction, from 0; negative: from the end.

    Returns:
        A card. It shows as a picture; `to_html` and `to_svg` are files to post.

    Raises:
        BadArguments: the session has no such compaction.

    Example:
        >>> import ctxkit as ck
        >>> card = make_card(ck.samples.path("billing"), compaction=0)
        >>> card.tokens_before, card.needed_n <= card.removed_n
        (40471, True)
    """
    compactions = frame(session, per="compaction")
    count = len(compactions)
    if not count:
        raise BadArguments("The session has no compaction, and a card is about one.")
    if not -count <= compaction < count:
        n = pluralize(count, "compaction")
        raise BadArguments(f"The session has {n}, so there is no card of number {compaction}.")
    row = compactions.iloc[compaction].to_dict()
    table = losses(session)
    # a compaction that only the sizes of prompts show has no number, and what it took is unknown
    is_numbered = has_value(row["compaction"])
    removed = table[table["compaction"] == row["compaction"]] if is_numbered else table[:0]
    needed = removed[removed["calls_until_needed"].notna()].sort_values(
        "calls_until_needed", kind="stable"
    )
    texts = {m.id: m.text for m in session.messages if m.id}
    counts = removed["family"].value_counts()
    return CompactionCard(
        number=compaction % count + 1,
        tokens_before=_known(row, "tokens_before"),
        tokens_after=_known(row, "tokens_after"),
        cost_usd=float(row["cost_usd"]) if has_value(row["cost_usd"]) else None,
        removed_by_family={str(family): int(n) for family, n in counts.items()},
        needed_n=len(needed),
        needed=tuple(
            RemovedItemNeededLater(
                str(r["family"]),
                redact_value_for_sharing(str(r["item"]), texts.get(r["message"], "")),
                int(r["calls_until_needed"]),
                str(r["fate"]),
            )
            for r in needed.head(MAX_NEEDED).to_dict("records")
        ),
    )


def write_card(session: Session, path: str | Path, *, compaction: int = -1) -> Path:
    """Write a card of a compaction to a file that ends in `.html` or `.svg`, and return its path.

    Args:
        session: see `make_card`.
        path: the file; one that is there is replaced.
        compaction: see `make_card`.

    Returns:
        The path, with `~` expanded.

    Raises:
        BadArguments: the path ends otherwise, the file cannot be written, or see `make_card`.
    """
    target = expand_home(path)
    kind = target.suffix.lower()
    if kind not in {".html", ".htm", ".svg"}:
        raise BadArguments(
            f"A card is a page or a picture: end the path in .html or .svg, not {target.name!r}."
        )
    card = make_card(session, compaction=compaction)
    return write_page(target, card.to_svg() if kind == ".svg" else card.to_html())


def redact_value_for_sharing(value: str, message_text: str) -> str:
    """Return a value of a message as it may be posted.

    A value is hidden where it is part of a secret by itself or within its message, and where it is
    an address or a long id; the names of home folders are left out.

    Args:
        value: the content that the compaction removed.
        message_text: the text of the message that stated it.
    """
    is_hidden = redact(value) != value or (
        value in message_text and value not in redact(message_text)
    )
    if is_hidden or _LONG_ID.search(value.rpartition("/")[2]) or _ADDRESS.search(value):
        return REDACTED_VALUE
    return sanitize_line(_HOME.sub("~", value), MAX_CHARS)


def _known(row: Mapping[Any, Any], name: str) -> int | None:
    return int(row[name]) if has_value(row[name]) else None


def _count(tokens: int | None) -> str:
    return "—" if tokens is None else f"{tokens:,}"
