"""Numbers as people write them, and log text made safe to show in terminals and HTML."""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


MISSING = "–"


def has_value(value: Any) -> bool:
    """Return whether a cell of a frame holds a value."""
    if value is None:
        return False
    try:
        return bool(value == value)  # noqa: PLR0124  NaN and NaT differ from themselves
    except TypeError:  # the truth of pandas' NA is undefined
        return False


def format_count(value: Any) -> str:
    """A count: `12,345`."""
    return f"{int(value):,}" if has_value(value) else MISSING


def format_tokens(value: Any) -> str:
    """A size in tokens, short: `840`, `39.3k`, `4.1M`."""
    if not has_value(value):
        return MISSING
    n = int(value)
    size = abs(n)
    return (
        f"{n / 1e6:.1f}M" if size >= 999_950 else f"{n / 1e3:.1f}k" if size >= 10_000 else f"{n:,}"
    )


def format_usd(value: Any) -> str:
    """An amount: `$3.24`, `-$0.05`; below a cent with two digits that count: `$0.0034`."""
    if not has_value(value):
        return MISSING
    sign, size = "-" if value < 0 else "", abs(float(value))
    if size == 0 or size >= 0.00995:
        return f"{sign}${size:,.2f}"
    return f"{sign}${size:.{4 if size >= 0.00095 else 6}f}"


def format_percent(value: Any) -> str:
    """A share: `71 %`."""
    return f"{100 * value:.0f} %" if has_value(value) else MISSING


def format_change(value: Any) -> str:
    """A share more or less: `+12 %`, `-3 %`, `±0 %`."""
    if not has_value(value):
        return MISSING
    whole = round(100 * float(value))
    return f"{whole:+,d} %" if whole else "±0 %"


def format_share(part: Any, whole: Any) -> str:
    """A part of a whole as a share."""
    return (
        format_percent(part / whole) if has_value(part) and has_value(whole) and whole else MISSING
    )


def format_duration(seconds: Any) -> str:
    """A time that passed: `40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    if not has_value(seconds):
        return MISSING
    s = float(seconds)
    for limit, unit, name in ((90.0, 1.0, "s"), (5400.0, 60.0, "min")):
        if s < limit:
            return f"{s / unit:.0f} {name}"
    return f"{s / 3600:.1f} h" if s < 172_800 else f"{s / 86_400:.1f} days"


def pluralize(n: int, word: str, words: str = "") -> str:
    """A number of things: `1 call`, `2 calls`; `words`: the plural, if not the word with an s."""
    return f"{n:,} {word if n == 1 else words or f'{word}s'}"


def text_or_empty(value: Any) -> str:
    """A text of a frame, empty where it is missing."""
    return str(value) if has_value(value) else ""


NO_MATHJAX = "mathjax_ignore tex2jax_ignore"
"""Classes of HTML in which a notebook's MathJax takes no dollars for a formula."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def sanitize_text(text: str, limit: int | None = None) -> str:
    """Return text without terminal escapes, control and bidi characters, cut to `limit` characters
    with an ellipsis.
    """
    if limit is not None and len(text) > 4 * limit + 4096:
        text = text[: 4 * limit + 4096]  # never scan megabytes to show a line
    text = _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _ANSI.sub("", text)))
    if limit is not None and len(text) > limit:
        return text[: max(limit - 1, 0)] + "…"
    return text


def sanitize_line(text: str, limit: int = 80) -> str:
    """Return text as one line of at most `limit` characters."""
    return sanitize_text(" ".join(text[: 8 * limit + 4096].split()), limit)


def escape_html(text: str, limit: int | None = None) -> str:
    """Return text safe inside HTML content and quoted attributes, at most `limit` characters before
    escaping.
    """
    return html.escape(sanitize_text(text, limit), quote=True)


def render_notes(notes: Iterable[str]) -> str:
    """Return what a session's log cannot say or says wrongly, as HTML; empty where it says all."""
    return "".join(f"<div><small>Note: {escape_html(note, 400)}</small></div>" for note in notes)


@dataclass(frozen=True)
class TextAndHtml:
    """A text and its twin in HTML, which is safe already."""

    text: str = ""
    html: str = "<span></span>"

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Characters that count as printable and leave no mark: fillers, joiners, variation selectors."""
_OWN = frozenset("⟨⇥")
"""What `make_visible` writes itself: in the text it is escaped, so that nothing can imitate it."""
_MARKS = 4
"""Combining marks on one letter that are shown as they are; more would cover what stands beside."""


def make_visible(text: str) -> str:
    """Return text in which every character can be seen, and from which the text can be read back.

    A character that has no picture of its own (control, bidirectional, zero-width and unassigned
    ones, spaces other than the plain one, line ends) stands as ``⟨U+001B⟩``; a tab has ``⇥`` before
    it.
    """
    if text.isascii() and text.isprintable():
        return text
    out, marks = [], 0
    for c in text:
        marks = marks + 1 if unicodedata.category(c)[0] == "M" else 0
        shown = c.isprintable() and c not in _BLANK and c not in _OWN and marks <= _MARKS
        out.append("⇥\t" if c == "\t" else c if shown else f"⟨U+{ord(c):04X}⟩")
    return "".join(out)
