"""Tables for people: sortable HTML in a notebook, 80 columns in a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import combining, east_asian_width

from ctxkit._internal.formatting import NO_MATHJAX, escape_html, sanitize_line

if TYPE_CHECKING:
    from collections.abc import Sequence

TERMINAL_COLUMNS = 80
"""Columns of a terminal that a table keeps to."""
TEXT_COLOR_CSS = "color:var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
"""Takes the theme's colour of text."""
MUTED_COLOR_CSS = "color:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#777777))"
_TONES = {
    "": "",
    "grey": f";{MUTED_COLOR_CSS}",
    "bad": ";color:#d55e00;font-weight:600",
    "good": ";font-weight:600",
}
_NUMBER = "text-align:right;padding:2px 8px;font-variant-numeric:tabular-nums;white-space:nowrap"
_TEXT = "text-align:left;padding:2px 8px;white-space:nowrap"
_WORDS = _TEXT.replace("nowrap", "normal")
"""Of the last column: where the page is narrow its words stand below each other."""
_NARROW = (
    "<style>@media(max-width:800px){.ctxkit-spare{display:none}"
    ".ctxkit-table :is(td,th){padding:2px 4px!important;max-width:15em!important}}</style>"
)
"""On a narrow page a table does without the columns that a terminal does without, too."""
_SOFT = ";max-width:24em;overflow:hidden;text-overflow:ellipsis"
_HEAD = (
    "background:none;border:0;padding:0;margin:0;font:inherit;font-weight:600;color:inherit;"
    "text-align:inherit;cursor:pointer"
)
_SORT = (
    "const h=this.parentNode,i=h.cellIndex,b=h.closest('table').tBodies[0],"
    "d=h.getAttribute('aria-sort')==='descending'?1:-1;"
    "for(const o of h.parentNode.cells)o.removeAttribute('aria-sort');"
    "h.setAttribute('aria-sort',d>0?'ascending':'descending');"
    "const v=r=>parseFloat(r.cells[i].dataset.value);"
    "b.append(...[...b.rows].sort((r,s)=>(isNaN(v(r))-isNaN(v(s)))||d*(v(r)-v(s))||0))"
)
"""A click on a head sorts the rows by its figures, the largest first; the next turns them round."""
_LEAST = 8
"""Columns that a text keeps at least."""


class Column(NamedTuple):
    """A column: its name, what it means, and how it behaves where room is short."""

    name: str
    hover: str = ""
    number: bool = True
    group: str = ""
    """Heads in a row with the same group stand under its name."""
    spare: bool = False
    """True where a terminal of 80 columns can do without."""
    firm: bool = False
    """True for a text that others make room for."""


class Cell(NamedTuple):
    """A cell: its text, what it is sorted by (missing: last), what it says when pointed at."""

    text: str
    value: float | None = None
    hover: str = ""
    tone: str = ""
    """`grey`, `bad` or `good`; always besides words that say the same."""
    html: str = ""
    """Safe HTML that stands in a page in place of the text (a drawing)."""


@dataclass(frozen=True, repr=False)
class Table:
    """A table. Its texts may come from a log: they are escaped and bounded where they are shown."""

    heads: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    caption: str = ""
    legend: str = ""
    """A line below."""
    wide: int = field(default=120, kw_only=True)
    """Characters of a cell in a page."""

    def to_html(self, *, high: int | None = None, sorts: bool = True) -> str:
        """Return the table as HTML; empty without rows.

        Args:
            high: pixels after which it scrolls by itself.
            sorts: whether a click on a head sorts.
        """
        if not self.rows:
            return ""
        told = (
            f'<caption style="text-align:left">{escape_html(self.caption, 2000)}</caption>'
            if self.caption
            else ""
        )
        heads = "".join(_head(h, sorts=sorts) for h in self.heads)
        body = "".join(
            f"<tr>{''.join(self._cells(i, row))}</tr>" for i, row in enumerate(self.rows)
        )
        box = f"overflow:auto;max-height:{high}px" if high else "overflow-x:auto"
        legend = (
            f'<div style="{MUTED_COLOR_CSS};font-size:90%">{escape_html(self.legend, 2000)}</div>'
            if self.legend
            else ""
        )
        return (
            f'{_NARROW}<div class="ctxkit-table {NO_MATHJAX}" style="{TEXT_COLOR_CSS};{box}" '
            'tabindex="0"><table'
            f' style="border-collapse:collapse;margin:4px 0">{told}'
            f"<thead>{self._groups()}<tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{legend}"
        )

    def to_text(self, columns: int = TERMINAL_COLUMNS) -> str:
        """Return the table as lines of at most `columns` columns; empty without rows."""
        kept = self._kept(columns)
        rows = [
            [h.name for h in (self.heads[i] for i in kept)],
            *([sanitize_line(row[i].text, 200) for i in kept] for row in self.rows),
        ]
        if len(rows) == 1:
            return ""
        widths = [max(map(display_width, c)) for c in zip(*rows, strict=True)]
        soft = [not (self.heads[i].number or self.heads[i].firm) for i in kept]
        widths = _fitted(
            _fitted(widths, soft, columns), [not self.heads[i].number for i in kept], columns
        )
        numbers = [self.heads[i].number for i in kept]
        return "\n".join(
            "  ".join(
                pad_to_width(c, w, right=n) for c, w, n in zip(row, widths, numbers, strict=True)
            ).rstrip()
            for row in rows
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self.to_html()}

    def __repr__(self) -> str:
        return self.to_text()

    def plain(self) -> list[tuple[str, ...]]:
        """Return the rows as texts."""
        return [tuple(cell.text for cell in row) for row in self.rows]

    def _kept(self, columns: int) -> list[int]:
        """Return the columns that fit, spare ones left out from the right."""
        kept = list(range(len(self.heads)))
        for i in reversed(range(len(self.heads))):
            if self._least(kept) <= columns:
                break
            if self.heads[i].spare:
                kept.remove(i)
        return kept

    def _least(self, kept: Sequence[int]) -> int:
        """Return how narrow these columns can be made."""
        total, firm = 0, any(self.heads[i].firm for i in kept)
        for i in kept:
            head = self.heads[i]
            most = max(
                (display_width(sanitize_line(row[i].text, 200)) for row in self.rows), default=0
            )
            hard = head.number or head.firm
            total += max(
                display_width(head.name), most if hard else min(most, (2 if firm else 3) * _LEAST)
            )
        return total + 2 * (len(kept) - 1)

    def _groups(self) -> str:
        if not any(h.group for h in self.heads):
            return ""
        spans: list[tuple[str, int]] = []
        for head in self.heads:
            if spans and spans[-1][0] == head.group:
                spans[-1] = (head.group, spans[-1][1] + 1)
            else:
                spans.append((head.group, 1))
        rule = "border-bottom:1px solid rgba(128,128,128,.5)"
        cells = (
            f'<th scope="colgroup" colspan="{n}"'
            f' style="text-align:center;{rule if g else ""}">{escape_html(g, 40)}</th>'
            for g, n in spans
        )
        return f"<tr>{''.join(cells)}</tr>"

    def _cells(self, i: int, row: tuple[Cell, ...]) -> list[str]:
        out = []
        for k, (head, cell) in enumerate(zip(self.heads, row, strict=True)):
            last = k == len(row) - 1
            text = _WORDS if last else _TEXT + ("" if head.firm else _SOFT)
            style = (_NUMBER if head.number else text) + _TONES[cell.tone]
            value = -i if k == 0 and cell.value is None else cell.value
            sort = "" if value is None else f' data-value="{value:.9g}"'
            hover = f' title="{escape_html(cell.hover, 400)}"' if cell.hover else ""
            tag = 'th scope="row"' if k == 0 else "td"
            inner = cell.html or escape_html(sanitize_line(cell.text, self.wide))
            weight = ";font-weight:normal" if k == 0 and cell.tone in ("", "grey") else ""
            kind = _kind(head)
            out.append(f'<{tag}{kind} style="{style}{weight}"{sort}{hover}>{inner}</{tag[:2]}>')
        return out


def _head(head: Column, *, sorts: bool) -> str:
    style = _NUMBER if head.number else _TEXT
    told = escape_html(head.hover or "Sort", 400)
    name = escape_html(head.name, 40)
    inner = (
        f'<button type="button" style="{_HEAD}" onclick="{_SORT}">{name}</button>'
        if sorts
        else name
    )
    return f'<th scope="col"{_kind(head)} style="{style}" title="{told}">{inner}</th>'


def _kind(head: Column) -> str:
    return ' class="ctxkit-spare"' if head.spare and not head.group else ""


def display_width(text: str) -> int:
    """Return the columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def pad_to_width(text: str, columns: int, *, right: bool = False) -> str:
    """Return a text of exactly so many columns, cut with an ellipsis where it is longer."""
    if display_width(text) > columns:
        out = ""
        for c in text:
            if display_width(out + c) > columns - 1:
                break
            out += c
        text = out + "…"
    gap = " " * (columns - display_width(text))
    return gap + text if right else text + gap


def _fitted(widths: list[int], soft: list[bool], columns: int) -> list[int]:
    """Return widths that fit together: the widest text is made narrower first."""
    out = list(widths)
    soft = [s and w > _LEAST for s, w in zip(soft, out, strict=True)]
    while sum(out) + 2 * (len(out) - 1) > columns:
        i = max((i for i in range(len(out)) if soft[i]), key=out.__getitem__, default=None)
        if i is None or out[i] <= _LEAST:
            break
        out[i] -= 1
    return out
