"""A text in pieces, redacted as a whole: what may yet become a secret is held back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.redaction import key_blocks
from ctxkit.redaction.environment import secrets
from ctxkit.redaction.secret_spans import MARK, find_spans
from ctxkit.redaction.visible_text import VisibleText

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEFORE = 400
"""Characters already given out that are looked at again: the name that tells what comes next."""
_LONGEST = 4_096
"""Characters of a word without an end that are held back at most."""
_BLOCK = 16_384
"""Characters of a block of a private key that are held back while its end is waited for."""
_QUOTED = re.compile(
    r"(?i)(?:pass|pwd|secret|token|key|auth|credential)[\w-]{0,30}\W{0,8}[\"'`][^\"'`\n]{0,300}\Z"
)
"""A telling name and a quote that is open: what stands in it may hold spaces."""
_WORDS = re.compile(
    r"(?i)(?:mnemonic|(?:seed|recovery)[ _]phrase)[\\\"'`:= \t]{1,12}(?:[a-z]{3,8}"
    r" ){0,24}[a-z]{0,8}\Z"
)
"""The words of a wallet, as far as they have come."""
_WORD = re.compile(r"[\w+/=.~%-]*")


class Stream:
    """Redacts pieces: `feed` gives out what is settled, `flush` the rest at the end of the text.

    The pieces given out are together what `redact` makes of the whole, except within words longer
    than 4,096 characters and blocks longer than 16,384. The last word is always held back, so a
    piece is shown one word late.

    Args:
        known: secrets of the environment; None: asked for now.
    """

    def __init__(self, known: Sequence[str] | None = None) -> None:
        self._known = secrets() if known is None else known
        self._broken = [v for v in self._known if any(map(str.isspace, v))]
        self._text = ""
        self._given = 0
        """How many characters of the text are given out."""
        self._inside = False
        """A secret reached the end of what was given out by force: the rest of the word is its."""

    def feed(self, piece: str) -> str:
        """Take a piece; return what may be shown by now."""
        self._text += piece
        return self._upto(self._settled())

    def flush(self) -> str:
        """Return what was held back: the text is over."""
        return self._upto(len(self._text))

    def _settled(self) -> int:
        """Return up to where nothing that comes can change what is a secret."""
        start = _last_word(self._text)
        if len(self._text) - start > _LONGEST:
            return len(self._text)
        view = VisibleText(self._text)
        text, near = view.text, max(len(view.text) - 400, 0)
        ends = [hit.start() for form in (_QUOTED, _WORDS) if (hit := form.search(text, near))]
        block = key_blocks.find_open_block(text)
        ends += [block] if block is not None and len(text) - block <= _BLOCK else []
        ends += [len(text) - n for v in self._broken if (n := _started(text, v))]
        return max(min([start, *map(view.origin, ends)]), self._given)

    def _upto(self, end: int) -> str:
        out, at = [], self._given
        if self._inside and at < len(self._text):
            word = _WORD.match(self._text, at)
            at = min(word.end(), end) if word else at
            self._inside = at == len(self._text)
        if end <= at:
            self._given = max(at, self._given)
            return ""
        forced = end - at >= _LONGEST
        for start, stop in find_spans(self._text, self._known):
            if stop <= at or start >= end:
                continue
            out += [self._text[at : max(start, at)], MARK]
            at = stop
            self._inside = forced and stop == len(self._text)
        out.append(self._text[at:end])
        self._given = max(at, end)
        self._cut()
        return "".join(out)

    def _cut(self) -> None:
        """Forget what is given out and tells nothing any more."""
        end = max(self._given - _BEFORE, 0)
        gone = _last_word(self._text[:end]) or (end if end > _LONGEST else 0)
        self._text, self._given = self._text[gone:], self._given - gone


def _last_word(text: str) -> int:
    """Return where the last word of a text begins, with the spaces after it on its line."""
    end = len(text.rstrip(" \t"))
    return max(text.rfind(c, 0, end) for c in " \t\n\r") + 1


def _started(text: str, value: str) -> int:
    """Return how many characters at the end of a text are the beginning of a value."""
    for n in range(min(len(value) - 1, len(text)), 0, -1):
        if text.endswith(value[:n]):
            return n
    return 0
