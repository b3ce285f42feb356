"""The context report as a value: a frame, lines of text, a page of HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.display.markup import NO_MATH, escape, line
from ctxkit.frames.frame_columns import FLOAT, INT, TEXT, FrameColumn, build
from ctxkit.messages import Source

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("call", INT, "", "number of the call; missing for the prompt that comes next"),
    FrameColumn(
        "part", TEXT, "", "what it is: system prompt, tool schemas, user, tool results, ..."
    ),
    FrameColumn("name", TEXT, "", "the section or the tool, where a part has several"),
    FrameColumn("tokens", INT, "tokens", "as shown to the model"),
    FrameColumn("raw_tokens", INT, "tokens", "the same before anything was shortened"),
    FrameColumn(
        "chars", INT, "characters", "as shown to the model; missing where the log holds no content"
    ),
    FrameColumn("messages_n", INT, "messages", "messages that it is spread over"),
    FrameColumn("share", FLOAT, "share", "of the whole prompt"),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
_CELL, _NUMBER = "text-align:left;padding:1px 10px 1px 0", "text-align:right;padding:1px 10px 1px 0"
_HEADS = ("part", "tokens", "share", "", "messages", "unshortened")
_BAR = "display:inline-block;height:9px;background:#3a93cc;vertical-align:middle"


class WindowPart(msgspec.Struct, frozen=True):
    """A part of the window."""

    group: str
    name: str
    tokens: int
    raw_tokens: int
    """The same before anything was shortened."""
    chars: int | None
    messages_n: int
    source: Source


class Contributor(msgspec.Struct, frozen=True):
    """One of the largest messages in the window."""

    position: int | None
    """Place in `session.path`; None for what a compaction put in."""
    id: str
    role: str
    tool: str | None
    tokens: int
    raw_tokens: int
    chars: int
    preview: str
    """One line, bounded, not escaped."""
    name: str = ""
    """What it is, in a line: `Read src/a.py 1-900`; not escaped."""
    changed_by: str | None = None
    """The part of the rules, or the compaction, that changed it or put it there."""


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """What fills the window at one call."""

    session: str
    call: int | None
    """None: the prompt that comes next."""
    turn: int | None
    agent: str
    model: str | None
    limit: int
    limit_source: Source
    """`recorded`, `derived` from the table of prices, or `estimated` for an unknown model."""
    prompt_tokens: int
    prompt_source: Source
    residue: int
    """Tokens of the recorded prompt that no log shows; 0 without recorded usage."""
    excess: int
    """Tokens by which the counts exceed the recorded prompt; the parts are scaled down by them."""
    messages_n: int
    counter: str
    """Name of the counter that shared recorded sizes among messages, or counted them."""
    count_error: float | None
    """How far its plain count is off the recorded growth, as a share; None without usage."""
    parts: tuple[WindowPart, ...]
    contributors: tuple[Contributor, ...]
    notes: tuple[str, ...] = ()
    """What the session's log cannot say or says wrongly."""
    title: str = ""
    """What the session is called; not escaped."""

    @property
    def full(self) -> float:
        """How full the window is, as a share of the limit."""
        return self.prompt_tokens / self.limit

    def groups(self) -> dict[str, int]:
        """Return tokens by group, in the order of the report."""
        out: dict[str, int] = {}
        for part in self.parts:
            out[part.group] = out.get(part.group, 0) + part.tokens
        return out

    def frame(self) -> pd.DataFrame:
        """Return the parts as a DataFrame, one row a part."""
        whole = self.prompt_tokens
        rows = [
            {
                **msgspec.structs.asdict(p),
                "session": self.session,
                "call": self.call,
                "part": p.group,
                "name": p.name or None,
                "share": p.tokens / whole if whole else None,
            }
            for p in self.parts
        ]
        return build(COLUMNS, {c.name: [row[c.name] for row in rows] for c in COLUMNS})

    def to_text(self, *, parts: int = 40, contributors: int = 10) -> str:
        """Return the report as lines of text."""
        out = [
            self._title(),
            self._fullness(),
            self._honesty(),
            *(f"Note: {line(n, 400)}" for n in self.notes),
            "",
        ]
        out += [f"{'tokens':>10}  {'share':>6}  part"]
        for group, tokens in self.groups().items():
            out.append(f"{tokens:>10,}  {self._share(tokens):>6}  {group}")
            named = [p for p in self.parts if p.group == group and p.name]
            out += [
                f"{p.tokens:>10,}  {'':>6}    {line(p.name, 60)}{_shortened(p)}"
                for p in named[:parts]
            ]
        out += ["", "largest messages"]
        out += [
            f"{c.tokens:>10,}  {_place(c):>6}  {line(c.name, 80)}"
            for c in self.contributors[:contributors]
        ]
        return "\n".join(out)

    def to_html(self) -> str:
        """Return the report as HTML for light and dark, which runs nothing; logs are escaped."""
        cut = any(p.raw_tokens != p.tokens for p in self.parts)
        heads = _HEADS if cut else _HEADS[:-1]
        rows = "".join(
            _row(cells[: len(heads)])
            for group, tokens in self.groups().items()
            for cells in self._group_rows(group, tokens)
        )
        largest = "".join(
            f'<tr><td style="{_NUMBER}">{c.tokens:,}</td><td style="{_NUMBER}">{_place(c)}</td>'
            f'<td style="{_CELL}" title="{escape(c.preview, 200)}">{escape(c.name, 120)}</td></tr>'
            for c in self.contributors
        )
        width = min(self.full, 1.0) * 100
        return (
            f'<div class="ctxkit-report {NO_MATH}"'
            ' style="color:var(--jp-content-font-color1,inherit)">'
            f'<strong title="id {escape(self.session, 120)}">{escape(self._title(), 300)}</strong>'
            f"<br>{escape(self._fullness())}"
            '<div aria-hidden="true" style="max-width:420px;border:1px solid'
            ' #777777;height:11px;margin:4px 0">'
            f'<span style="{_BAR};display:block;height:11px;width:{width:.1f}%"></span></div>'
            f"<small>{escape(self._honesty(), 400)}</small>"
            f"{''.join(f'<br><small>Note: {escape(n, 400)}</small>' for n in self.notes)}"
            f"{_table('What fills the window', heads, rows)}"
            f"{_table('The largest messages', ('tokens', 'position', 'what'), largest)}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self.to_html()}

    def __repr__(self) -> str:
        return self.to_text()

    def _title(self) -> str:
        at = f"at call {self.call}, turn {self.turn}"
        where = "before the next call" if self.call is None else at
        model = f", {line(self.model, 60)}" if self.model else ""
        return f"Context of {line(self.title or self.session, 60)} {where}{model}"

    def _fullness(self) -> str:
        known = f"{self.prompt_tokens:,} tokens ({self.prompt_source})"
        return (
            f"{known} of {self.limit:,} ({self.limit_source}): {self.full:.0%} full,"
            f" {self.messages_n} messages"
        )

    def _honesty(self) -> str:
        if not self.parts:
            return (
                "Nothing is known of what filled the window: the log holds neither content nor the"
                " size of a prompt."
            )
        if self.prompt_source == "estimated":
            return f"No usage was recorded: all sizes are counts by {self.counter}."
        if self.excess:
            more = f"{self.excess:,} tokens more are shown than were recorded"
            return f"By {self.counter} {more}: the parts are scaled down."
        error = self.count_error
        off = "" if error is None else f"; the plain count is off by {error:+.0%}"
        return (
            f"Sizes are scaled to recorded usage, shared by {self.counter}{off}. {self.residue:,}"
            " tokens are in no log."
        )

    def _share(self, tokens: int) -> str:
        return f"{tokens / self.prompt_tokens:.1%}" if self.prompt_tokens else ""

    def _group_rows(self, group: str, tokens: int) -> list[tuple[str, ...]]:
        named = [p for p in self.parts if p.group == group]
        raw, n = sum(p.raw_tokens for p in named), sum(p.messages_n for p in named)
        wide = 160 * tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        bar = f'<span aria-hidden="true" style="{_BAR};width:{wide:.0f}px"></span>'
        rows = [_cells(f"<strong>{group}</strong>", tokens, n, raw, (self._share(tokens), bar))]
        for p in named[:40]:
            if p.name:
                name = f"&emsp;{escape(p.name, 80)}"
                rows.append(_cells(name, p.tokens, p.messages_n, p.raw_tokens))
        return rows


def _cells(
    what: str, tokens: int, messages_n: int, raw: int, drawn: tuple[str, str] = ("", "")
) -> tuple[str, ...]:
    """Return the cells of a row; `drawn`: the share, and its bar."""
    unshortened = f"{raw:,}" if raw != tokens else ""
    return what, f"{tokens:,}", *drawn, f"{messages_n or ''}", unshortened


def _row(cells: tuple[str, ...]) -> str:
    styles = (_CELL, _NUMBER, _NUMBER, _CELL, _NUMBER, _NUMBER)
    told = (f'<td style="{s}">{c}</td>' for s, c in zip(styles, cells, strict=False))
    return f"<tr>{''.join(told)}</tr>"


def _table(caption: str, heads: tuple[str, ...], rows: str) -> str:
    head = "".join(f'<th scope="col" style="{_CELL}">{h}</th>' for h in heads)
    return (
        '<table style="border-collapse:collapse;margin:8px 0;color:inherit">'
        f'<caption style="text-align:left;font-weight:bold">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _shortened(part: WindowPart) -> str:
    return f" (before shortening {part.raw_tokens:,})" if part.raw_tokens != part.tokens else ""


def _place(contributor: Contributor) -> str:
    return "new" if contributor.position is None else f"#{contributor.position}"
