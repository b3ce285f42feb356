"""Where a text holds secrets: spans of it, and the text with a mark in their places."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ctxkit.redaction import addresses, key_blocks, named_secrets, shapes, webhooks
from ctxkit.redaction.environment import MIN_CHARS_IN_WORDS
from ctxkit.redaction.visible_text import VisibleText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.redaction.visible_text import Span

MARK = "[redacted]"
RULES = (
    *key_blocks.RULES,
    *shapes.RULES,
    *webhooks.RULES,
    *named_secrets.RULES,
    *addresses.RULES,
)
"""Every rule by which a secret is known that does not stand in the environment."""


_CASED = [(r.hint, r.find) for r in RULES if not r.is_caseless]
_CASELESS = [(r.hint, r.find) for r in RULES if r.is_caseless]


def find_spans(shown: str, known: Sequence[str]) -> list[Span]:
    """Return the spans of secrets in order, none over another; `known` are the environment's."""
    view = VisibleText(shown)
    spans = list(_find_known(view, known))
    for text, rules in ((view.text, _CASED), (view.low, _CASELESS)):
        for hint, find in rules:
            if hint in text:
                spans.extend(find(view))
    if view.is_changed:
        spans = [view.original_span(span) for span in spans]
        spans.extend(_find_in_strings(shown, view.strings, known))
    return _merged(sorted(spans))


def _find_in_strings(shown: str, strings: Sequence[Span], known: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of secrets in the strings of escape sequences, such as addresses of links."""
    starts: list[int] = []
    pieces: list[str] = []
    size = 0
    for start, end in strings:
        starts.append(size)
        pieces.append(shown[start:end])
        size += end - start + 1
    for a, b in find_spans("\n".join(pieces), known) if pieces else ():
        i = bisect_right(starts, a) - 1
        start, end = strings[i]
        yield start + a - starts[i], min(start + b - starts[i], end)


def _find_known(view: VisibleText, known: Sequence[str]) -> Iterator[Span]:
    text = view.text
    for value in known:
        at = text.find(value)
        while at >= 0:
            end = at + len(value)
            if len(value) >= MIN_CHARS_IN_WORDS or (view.is_edge(at) and view.is_edge(end)):
                yield at, end
            at = text.find(value, end)


def _merged(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for start, end in spans:
        if out and start < out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def mask_spans(text: str, spans: Sequence[Span]) -> str:
    """Return the text with a mark in the place of each span."""
    if not spans:
        return text
    out, at = [], 0
    for start, end in spans:
        out += [text[at:start], MARK]
        at = end
    return "".join([*out, text[at:]])
