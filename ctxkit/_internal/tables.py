"""Tables for display: sortable HTML in notebooks, 80 columns in terminals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import combining, east_asian_width

from ctxkit._internal.chart_style import ALERT_TEXT_CSS
from ctxkit._internal.formatting_and_sanitizing import NO_MATHJAX, escape_html, sanitize_line

if TYPE_CHECKING:
    from collections.abc import Sequence

TERMINAL_COLUMNS = 80
"""Width of a table in a terminal, in columns."""
TEXT_COLOR_CSS = "color:var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
"""The text colour of the notebook's theme."""
MUTED_COLOR_CSS = (
    "color:var(--jp-content-font-color2,var(--vscode-descriptionForeground,"
    "color-mix(in srgb,currentColor 72%,transparent)))"
)
"""The theme's colour of secondary text; on other pages the text colour, softened, as no one grey
has a contrast of 4.5:1 on white and of 7:1 on black.
"""
_PAGE_COLOR = (
    "var(--jp-layout-color0,var(--vscode-editor-background,var(--paper,"
    "var(--md-default-bg-color,Canvas))))"
)
"""The colour of the page: of a notebook's theme, an exported page or this site, else the browser's.
"""
SCROLL_BOX_CSS = (
    "overflow-x:auto;background:"
    f"linear-gradient(to right,{_PAGE_COLOR} 40%,transparent) 0 0/36px 100% no-repeat local,"
    f"linear-gradient(to left,{_PAGE_COLOR} 40%,transparent) 100% 0/36px 100% no-repeat local,"
    "linear-gradient(to right,rgba(128,128,128,.55),transparent) 0 0/12px 100% no-repeat scroll,"
    "linear-gradient(to left,rgba(128,128,128,.55),transparent) 100% 0/12px 100% no-repeat scroll"
)
"""A box whose content scrolls sideways: a shadow stands at each edge beyond which there is more.

The shadows stay at the edges of the box; the two covers move with the content and hide a shadow
where the content ends.
"""
_TONE_CSS = {
    "": "",
    "grey": f";{MUTED_COLOR_CSS}",
    "bad": f";{ALERT_TEXT_CSS};font-weight:600",
    "good": ";font-weight:600",
}
_NUMBER_CSS = (
    "text-align:right;padding:2px 8px;font-variant-numeric:tabular-nums;white-space:nowrap"
)
_TEXT_CSS = "text-align:left;padding:2px 8px;white-space:nowrap"
_LAST_COLUMN_CSS = _TEXT_CSS.replace("nowrap", "normal")
"""Style of the last column, whose text wraps on a narrow page."""
_LONG_TEXT = 24
"""Characters of a text that wraps to lines of 12em at least."""
_NARROW_PAGE_STYLE = (
    "<style>@media(max-width:800px){.ctxkit-spare{display:none}}@media(max-width:1000px){"
    ".ctxkit-table :is(td,th){padding:2px 4px!important}"
    ".ctxkit-table :is(td,th):not(:last-child){max-width:15em!important}}</style>"
)
"""Moves columns together on a narrow page, and hides the optional ones on a narrower one."""
_SHRINKABLE_CSS = ";max-width:24em;overflow:hidden;text-overflow:ellipsis"
_HEAD_BUTTON_CSS = (
    "background:none;border:0;padding:0;margin:0;font:inherit;font-weight:600;color:inherit;"
    "text-align:inherit;cursor:pointer"
)
_SORT_SCRIPT = (
    "const h=this.parentNode,i=h.cellIndex,b=h.closest('table').tBodies[0],"
    "d=h.getAttribute('aria-sort')==='descending'?1:-1;"
    "for(const o of h.parentNode.cells)o.removeAttribute('aria-sort');"
    "h.setAttribute('aria-sort',d>0?'ascending':'descending');"
    "const v=r=>parseFloat(r.cells[i].dataset.value);"
    "b.append(...[...b.rows].sort((r,s)=>(isNaN(v(r))-isNaN(v(s)))||d*(v(r)-v(s))||0))"
)
"""A click on a head sorts the rows by its values, the largest first; the next one reverses them."""
_MIN_TEXT_COLUMNS = 8
"""Minimal width of a text column, in terminal columns."""


class Column(NamedTuple):
    """A column: its name, its meaning, and how it shrinks."""

    name: str
    hover: str = ""
    """Tooltip of the head."""
    number: bool = True
    group: str = ""
    """Name above adjacent columns of the same group."""
    spare: bool = False
    """True if the column may be left out of a table that is too wide."""
    firm: bool = False
    """True for a text that is shortened only after the others."""


class Cell(NamedTuple):
    """A cell: its text, its sort value (None: last), and its tooltip."""

    text: str
    value: float | None = None
    hover: str = ""
    tone: str = ""
    """`grey`, `bad` or `good`; the text says the same, too."""
    html: str = ""
    """Escaped HTML that a page shows instead of the text (a drawing)."""


@dataclass(frozen=True, repr=False)
class Table:
    """A table; its texts may come from a log and are escaped and bounded for display."""

    heads: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    caption: str = ""
    legend: str = ""
    """A line below the table."""
    wide: int = field(default=120, kw_only=True)
    """Maximal characters of a cell in HTML."""

    def to_html(self, *, max_height_px: int | None = None, is_sortable: bool = True) -> str:
        """Return the table as HTML; empty without rows.

        Args:
            max_height_px: height in pixels above which it scrolls; None: it does not scroll.
            is_sortable: whether a click on a head sorts the rows.
        """
        if not self.rows:
            return ""
        caption = (
            f'<caption style="text-align:left">{escape_html(self.caption, 2000)}</caption>'
            if self.caption
            else ""
        )
        heads = "".join(_head_html(h, sorts=is_sortable) for h in self.heads)
        body = "".join(
            f"<tr>{''.join(self._row_cells(i, row))}</tr>" for i, row in enumerate(self.rows)
        )
        box = SCROLL_BOX_CSS + (
            f";overflow-y:auto;max-height:{max_height_px}px" if max_height_px else ""
        )
        legend = (
            f'<div style="{MUTED_COLOR_CSS};font-size:90%">{escape_html(self.legend, 2000)}</div>'
            if self.legend
            else ""
        )
        return (
            f'{_NARROW_PAGE_STYLE}<div class="ctxkit-table {NO_MATHJAX}" '
            f'style="{TEXT_COLOR_CSS};{box}" '
            'tabindex="0"><table'
            f' style="border-collapse:collapse;margin:4px 0">{caption}'
            f"<thead>{self._group_row()}<tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{legend}"
        )

    def to_text(self, columns: int = TERMINAL_COLUMNS) -> str:
        """Return the table as lines of at most `columns` terminal columns; empty without rows."""
        indices = self._fitting_columns(columns)
        heads = [self.heads[i] for i in indices]
        rows = [
            [head.name for head in heads],
            *([sanitize_line(row[i].text, 200) for i in indices] for row in self.rows),
        ]
        if len(rows) == 1:
            return ""
        widths = [max(map(display_width, c)) for c in zip(*rows, strict=True)]
        # first shrink texts that are not firm, then all texts
        shrinkable = [not (head.number or head.firm) for head in heads]
        widths = _fit_widths(widths, shrinkable, columns)
        widths = _fit_widths(widths, [not head.number for head in heads], columns)
        numbers = [head.number for head in heads]
        return "\n".join(
            "  ".join(
                cut_and_pad_to_width(text, width, is_right_aligned=number)
                for text, width, number in zip(row, widths, numbers, strict=True)
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

    def _fitting_columns(self, columns: int) -> list[int]:
        """Return the indices of the columns that fit, optional ones left out from the right."""
        indices = list(range(len(self.heads)))
        for i in reversed(range(len(self.heads))):
            if self._min_width(indices) <= columns:
                break
            if self.heads[i].spare:
                indices.remove(i)
        return indices

    def _min_width(self, indices: Sequence[int]) -> int:
        """Return the smallest width of a table of these columns."""
        total, has_firm = 0, any(self.heads[i].firm for i in indices)
        min_text = (2 if has_firm else 3) * _MIN_TEXT_COLUMNS
        for i in indices:
            head = self.heads[i]
            texts = (sanitize_line(row[i].text, 200) for row in self.rows)
            width = max(map(display_width, texts), default=0)
            if not (head.number or head.firm):
                width = min(width, min_text)
            total += max(display_width(head.name), width)
        return total + 2 * (len(indices) - 1)

    def _group_row(self) -> str:
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

    def _row_cells(self, i: int, row: tuple[Cell, ...]) -> list[str]:
        out = []
        for k, (head, cell) in enumerate(zip(self.heads, row, strict=True)):
            last = k == len(row) - 1
            text = _LAST_COLUMN_CSS if last else _TEXT_CSS + ("" if head.firm else _SHRINKABLE_CSS)
            if last and len(cell.text) > _LONG_TEXT:
                text += ";min-width:12em"
            style = (_NUMBER_CSS if head.number else text) + _TONE_CSS[cell.tone]
            value = -i if k == 0 and cell.value is None else cell.value
            sort = "" if value is None else f' data-value="{value:.9g}"'
            hover = f' title="{escape_html(cell.hover, 400)}"' if cell.hover else ""
            tag = 'th scope="row"' if k == 0 else "td"
            inner = cell.html or escape_html(sanitize_line(cell.text, self.wide))
            weight = ";font-weight:normal" if k == 0 and cell.tone in ("", "grey") else ""
            kind = _class_attribute(head)
            out.append(f'<{tag}{kind} style="{style}{weight}"{sort}{hover}>{inner}</{tag[:2]}>')
        return out


def _head_html(head: Column, *, sorts: bool) -> str:
    style = _NUMBER_CSS if head.number else _TEXT_CSS
    tooltip = escape_html(head.hover or "Sort", 400)
    name = escape_html(head.name, 40)
    inner = (
        f'<button type="button" style="{_HEAD_BUTTON_CSS}" onclick="{_SORT_SCRIPT}">{name}</button>'
        if sorts
        else name
    )
    return f'<th scope="col"{_class_attribute(head)} style="{style}" title="{tooltip}">{inner}</th>'


def _class_attribute(head: Column) -> str:
    return ' class="ctxkit-spare"' if head.spare and not head.group else ""


def display_width(text: str) -> int:
    """Return the terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut_and_pad_to_width(text: str, columns: int, *, is_right_aligned: bool = False) -> str:
    """Pad a text to a width, or shorten it with an ellipsis.

    Args:
        text: one line.
        columns: width in terminal columns; a wide character takes two.
        is_right_aligned: pad on the left.
    """
    if display_width(text) > columns:
        out = ""
        for c in text:
            if display_width(out + c) > columns - 1:
                break
            out += c
        text = out + "…"
    gap = " " * (columns - display_width(text))
    return gap + text if is_right_aligned else text + gap


def _fit_widths(widths: list[int], shrinkable: list[bool], columns: int) -> list[int]:
    """Return widths that fit into `columns` if possible; the widest one shrinks first."""
    out = list(widths)
    can_shrink = [s and w > _MIN_TEXT_COLUMNS for s, w in zip(shrinkable, out, strict=True)]
    while sum(out) + 2 * (len(out) - 1) > columns:
        i = max((i for i in range(len(out)) if can_shrink[i]), key=out.__getitem__, default=None)
        if i is None or out[i] <= _MIN_TEXT_COLUMNS:
            break
        out[i] -= 1
    return out
