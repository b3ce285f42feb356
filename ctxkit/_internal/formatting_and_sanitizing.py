"""Formatting of numbers for people, and sanitizing of log text for terminals and HTML."""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit._internal.redaction import find_secret_spans, mask_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MISSING = "–"
"""Text of a missing value."""


def has_value(value: Any) -> bool:
    """Return whether a cell of a frame holds a value."""
    if value is None:
        return False
    try:
        return bool(value == value)  # noqa: PLR0124  NaN and NaT differ from themselves
    except TypeError:  # the truth of pandas' NA is undefined
        return False


def format_count(value: Any) -> str:
    """Format a count: `12,345`."""
    return f"{int(value):,}" if has_value(value) else MISSING


def format_tokens(value: Any) -> str:
    """Format a number of tokens: `840`, `39.3k`, `4.1M`."""
    if not has_value(value):
        return MISSING
    n = int(value)
    if abs(n) >= 999_950:
        return f"{n / 1e6:.1f}M"
    return f"{n / 1e3:.1f}k" if abs(n) >= 10_000 else f"{n:,}"


def format_message_number(position: int | None) -> str:
    """Return the number of a message in all views: its position in `session.path`, else `new`."""
    return "new" if position is None else f"#{position}"


def format_usd(value: Any) -> str:
    """Format dollars: `$3.24`, `-$0.05`; below a cent with two significant digits: `$0.0034`."""
    if not has_value(value):
        return MISSING
    sign, size = "-" if value < 0 else "", abs(float(value))
    if size == 0 or size >= 0.00995:
        return f"{sign}${size:,.2f}"
    return f"{sign}${size:.{4 if size >= 0.00095 else 6}f}"


def format_percent(value: Any, digits: int = 0) -> str:
    """Format a share: `71 %`; with one digit after the point: `71.3 %`.

    Args:
        value: share, 1 for all; a dash where it is None or NaN.
        digits: digits after the point.
    """
    return f"{100 * value:.{digits}f} %" if has_value(value) else MISSING


def wrap_lines(text: str, columns: int) -> list[str]:
    """Wrap text to lines of at most `columns` characters; a number stays with its percent sign.

    Args:
        text: the text; runs of white space become one space.
        columns: maximal characters of a line; a longer word is broken.
    """
    no_break = text.replace(" %", "\N{NO-BREAK SPACE}%")
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in wrap(no_break, columns)]


def format_change(value: Any, digits: int = 0) -> str:
    """Format a relative change: `+12 %`, `±0 %`; with one digit after the point: `-2.4 %`.

    Args:
        value: the change as a share of the old value: 0.12 is `+12 %`. None or NaN give a dash.
        digits: digits after the point.
    """
    if not has_value(value):
        return MISSING
    percent = round(100 * float(value), digits)
    return f"{percent:+,.{digits}f} %" if percent else "±0 %"


def format_share(part: Any, whole: Any) -> str:
    """Format a part as a percentage of the whole; a dash where one of them is missing or the whole
    is 0.

    Args:
        part: a number, or None or NaN where it is unknown.
        whole: the number that is 100 %.
    """
    is_known = has_value(part) and has_value(whole) and whole
    return format_percent(part / whole) if is_known else MISSING


def format_duration(seconds: Any) -> str:
    """Format a duration: `40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    if not has_value(seconds):
        return MISSING
    s = float(seconds)
    for limit, unit, name in ((90.0, 1.0, "s"), (5400.0, 60.0, "min")):
        if s < limit:
            return f"{s / unit:.0f} {name}"
    return f"{s / 3600:.1f} h" if s < 172_800 else f"{s / 86_400:.1f} days"


def pluralize(n: int, word: str, words: str = "") -> str:
    """Format a number of things: `1 call`, `2 calls`.

    Args:
        n: the number; thousands are separated.
        word: the singular.
        words: the plural; empty: `word` with an s.
    """
    return f"{n:,} {word if n == 1 else words or f'{word}s'}"


def text_or_empty(value: Any) -> str:
    """Return a text of a frame, empty where it is missing."""
    return str(value) if has_value(value) else ""


NO_MATHJAX = "mathjax_ignore tex2jax_ignore"
"""HTML classes in which a notebook's MathJax does not read dollar signs as formulas."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")


# All text of logs, models and tools is displayed through the functions below. Secrets are
# masked before anything is removed or truncated, since a part of a secret is not recognised.


def sanitize_text(text: str, limit: int | None = None) -> str:
    """Return text without secrets, terminal escapes, control and bidi characters.

    Args:
        text: untrusted text.
        limit: maximum characters; a longer text ends in an ellipsis. None: no limit.
    """
    return sanitize_redacted_text(_mask_secrets(_bound(text, limit)), limit)


def sanitize_redacted_text(text: str, limit: int | None = None) -> str:
    """Sanitize a text that has no secrets, as `sanitize_text` does.

    Args:
        text: untrusted text, already redacted.
        limit: maximum characters; a longer text ends in an ellipsis. None: no limit.
    """
    text = _bound(text, limit)
    text = _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _ANSI.sub("", text)))
    if limit is not None and len(text) > limit:
        return text[: max(limit - 1, 0)] + "…"
    return text


def sanitize_line(text: str, limit: int = 80) -> str:
    """Return untrusted text on one line, sanitized; white space becomes single blanks.

    Args:
        text: untrusted text.
        limit: maximum characters; a longer line ends in an ellipsis.
    """
    return sanitize_redacted_text(" ".join(_mask_secrets(text[: 8 * limit + 4096]).split()), limit)


def quote_line(text: str, limit: int = 80) -> str:
    """Return untrusted text for a sentence: in quotes, on one line, sanitized and bounded."""
    return repr(sanitize_line(text, limit))


FAILURE_CHARS = 300
"""Characters of an error text that are stored and displayed."""


_ERROR_PREFIX = re.compile(r"litellm\.(\w{1,60}): (?:\1: )?(?:\w{1,60}Exception - )?")


def shorten_litellm_error(text: str) -> str:
    """Return the text of a model's error with LiteLLM's classes as one word."""
    return _ERROR_PREFIX.sub(r"\1: ", text, count=1)


def format_error_line(error: object) -> str:
    """Return an error's text for storage and display: one redacted line, bounded."""
    return sanitize_line(str(error)[:20_000], FAILURE_CHARS)


def _bound(text: str, limit: int | None) -> str:
    return text if limit is None else text[: 4 * limit + 4096]  # never scan megabytes for a line


def _mask_secrets(text: str) -> str:
    return redact_text(text, get_environment_secrets())


def redact_text(text: str, environment_secrets: Sequence[str]) -> str:
    """Return what `redact` does; results are cached, but those of the longest texts.

    Args:
        text: the text.
        environment_secrets: result of `get_environment_secrets()`, computed once for many
            texts.
    """
    if len(text) <= _MAX_NAME_CHARS:
        return _mask_name(text, tuple(environment_secrets))
    if len(text) <= _MAX_PREVIEW_CHARS:
        return _mask_preview(text, tuple(environment_secrets))
    return mask_spans(text, find_secret_spans(text, environment_secrets))


_MAX_NAME_CHARS = 400
"""Characters of a name or title, which is displayed repeatedly."""
_MAX_PREVIEW_CHARS = 5_000
"""Characters of which a message's preview is made, in the report of each call that sends it."""


@lru_cache(4096)
def _mask_name(text: str, secrets: tuple[str, ...]) -> str:
    return mask_spans(text, find_secret_spans(text, secrets))


@lru_cache(512)
def _mask_preview(text: str, secrets: tuple[str, ...]) -> str:
    return mask_spans(text, find_secret_spans(text, secrets))


def escape_html(text: str, limit: int | None = None) -> str:
    """Return text safe inside HTML content and quoted attributes, sanitized as by `sanitize_text`.

    Args:
        text: untrusted text.
        limit: maximum characters before escaping; None: no limit.
    """
    return html.escape(sanitize_text(text, limit), quote=True)


def render_notes_html(notes: Iterable[str]) -> str:
    """Return the notes of a session as HTML; empty without any."""
    return "".join(f"<div><small>Note: {escape_html(note, 400)}</small></div>" for note in notes)


@dataclass(frozen=True)
class TextAndHtml:
    """A text for terminals, and its HTML for notebooks, already escaped."""

    text: str = ""
    html: str = "<span></span>"

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


_BLANK_CHARS = frozenset(
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
"""Printable characters without a visible form: fillers, joiners, variation selectors."""
_RESERVED_CHARS = frozenset("⟨⇥")
"""Characters that `escape_invisible_characters` writes; in the text they are escaped, so that the
result is unambiguous."""
_ESCAPED_CHARS = _BLANK_CHARS | _RESERVED_CHARS
_MAX_MARKS = 4
"""Combining marks on one letter that stay; more of them would cover other text."""


def escape_invisible_characters(text: str) -> str:
    """Return text in which every character is visible, in a reversible way.

    A character without a visible form (control, bidirectional, zero-width and unassigned ones,
    spaces other than the plain one, line ends) becomes ``⟨U+001B⟩``; a tab has ``⇥`` before it.
    """
    if text.isascii() and text.isprintable():
        return text
    out, marks = [], 0
    for c in text:
        marks = marks + 1 if unicodedata.category(c)[0] == "M" else 0
        is_plain = c.isprintable() and c not in _ESCAPED_CHARS
        is_visible = is_plain and marks <= _MAX_MARKS
        out.append("⇥\t" if c == "\t" else c if is_visible else f"⟨U+{ord(c):04X}⟩")
    return "".join(out)
