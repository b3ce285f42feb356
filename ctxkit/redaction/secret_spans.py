"""Where a text holds secrets: spans of it, and the text with a mark in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.redaction import addresses, key_blocks, named_secrets, shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MARK = "[redacted]"

Span = tuple[int, int]
"""Start and end of a secret, in characters."""


def found(text: str, known: Sequence[str]) -> list[Span]:
    """Return the spans of secrets in order, none over another; `known` are the environment's."""
    low = named_secrets.lowered(text)
    spans = [*_known(text, known), *key_blocks.spans(text), *shapes.spans(text)]
    spans += [*named_secrets.spans(text, low), *addresses.spans(text, low)]
    return _joined(sorted(spans))


def _known(text: str, known: Sequence[str]) -> Iterator[Span]:
    for value in known:
        at = text.find(value)
        while at >= 0:
            yield at, at + len(value)
            at = text.find(value, at + len(value))


def _joined(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for start, end in spans:
        if out and start < out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def marked(text: str, spans: Sequence[Span]) -> str:
    """Return the text with a mark in the place of each span."""
    if not spans:
        return text
    out, at = [], 0
    for start, end in spans:
        out += [text[at:start], MARK]
        at = end
    return "".join([*out, text[at:]])
