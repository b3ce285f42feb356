"""Text of logs made safe to show: escaped, bounded, without terminal escapes or bidi controls."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_MATH = "mathjax_ignore tex2jax_ignore"
"""Classes of HTML in which a notebook's MathJax takes no dollars for a formula."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def plain(text: str, limit: int | None = None) -> str:
    """Return text without terminal escapes, control and bidi characters, cut to `limit` characters
    with an ellipsis.
    """
    if limit is not None and len(text) > 4 * limit + 4096:
        text = text[: 4 * limit + 4096]  # never scan megabytes to show a line
    text = _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _ANSI.sub("", text)))
    if limit is not None and len(text) > limit:
        return text[: max(limit - 1, 0)] + "…"
    return text


def line(text: str, limit: int = 80) -> str:
    """Return text as one line of at most `limit` characters."""
    return plain(" ".join(text[: 8 * limit + 4096].split()), limit)


def escape(text: str, limit: int | None = None) -> str:
    """Return text safe inside HTML content and quoted attributes, at most `limit` characters before
    escaping.
    """
    return html.escape(plain(text, limit), quote=True)


def noted(notes: Iterable[str]) -> str:
    """Return what a session's log cannot say or says wrongly, as HTML; empty where it says all."""
    return "".join(f"<div><small>Note: {escape(note, 400)}</small></div>" for note in notes)


@dataclass(frozen=True)
class TextAndHtml:
    """A text and its twin in HTML, which is safe already."""

    text: str = ""
    html: str = "<span></span>"

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html
