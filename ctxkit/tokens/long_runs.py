"""Texts with enormous runs, on which tiktoken panics or dawdles: the same count by another way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tiktoken

LONG = 50_000
"""Texts shorter than this cannot hold a run that matters."""
_BLOCK = LONG // 2
_REPEATED = re.compile(r"(?s)(.)\1{24999,}")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_KEPT = 8_000
"""Characters of a run that are merged for real; the rest repeats, which is checked."""


def has_run(text: str) -> bool:
    """Return True where at least 50,000 characters in a row are white space, or one character.

    tiktoken's regex engine runs out of stack at a million of white space, and long runs of one
    character merge slowly. Every such run covers one of the blocks that are looked at whole.
    """
    for start in range(0, len(text) - _BLOCK + 1, _BLOCK):
        first, last = text[start], text[start + _BLOCK - 1]
        if first != last and not (first.isspace() and last.isspace()):
            continue
        block = text[start : start + _BLOCK]
        if block.isspace() or block == first * _BLOCK:
            return True
    return False


def without_surrogates(text: str) -> str:
    """Return what tiktoken makes of a text: lone halves of a pair become the replacement
    character.
    """
    return _HALF.sub("\ufffd", _PAIR.sub(_joined, text))


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def count_by_pieces(encoding: tiktoken.Encoding, text: str) -> int:
    """Return tiktoken's count of a text, split by `regex` with the encoding's own pattern and
    merged by tiktoken.
    """
    import regex  # type: ignore[import-untyped]  # comes with tiktoken

    core = encoding._core_bpe  # noqa: SLF001  no public way around the splitter
    known: dict[str, int] = {}
    total = 0
    for piece in regex.findall(encoding._pat_str, text):  # noqa: SLF001
        n = known.get(piece)
        if n is None:
            n = known[piece] = (
                _count_long(piece, core)
                if len(piece) >= LONG
                else len(core.encode_single_piece(piece.encode()))
            )
        total += n
    return total


def _count_long(piece: str, core: Any) -> int:
    """Count a piece with its longest run shortened by whole periods.

    Inside a run of one character the same token comes again and again. Its length is the period,
    found by merging a few thousand characters; that each period more is one token more is then
    checked, and else all is merged.
    """

    def count(text: str) -> int:
        return len(core.encode_single_piece(text.encode()))

    run = max(_REPEATED.finditer(piece), key=lambda m: m.end() - m.start(), default=None)
    if run is None or len(piece) - (run.end() - run.start()) > _BLOCK:
        return count(piece)
    sign, length = run[1], run.end() - run.start()
    tokens = core.encode_single_piece((sign * _KEPT).encode())
    middle = tokens[len(tokens) // 2]
    period, odd = divmod(len(core.decode_single_token_bytes(middle)), len(sign.encode()))
    if odd or tokens.count(middle) < len(tokens) - 16:
        return count(piece)
    kept = _KEPT + (length - _KEPT) % period
    head, tail = piece[: run.start()], piece[run.end() :]
    once, twice, more = (count(head + sign * (kept + i * period) + tail) for i in (0, 1, 7))
    if (twice - once, more - once) != (1, 7):
        return count(piece)
    return once + (length - kept) // period
