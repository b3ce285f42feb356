"""One prompt as a strip of blocks: what was read from the cache, written to it, sent afresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.display import amounts
from ctxkit.errors import BadArguments
from ctxkit.plots._cache import cache_data
from ctxkit.plots.block_rows import BlockRows, Row, Span
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted
from ctxkit.plots.palette import COLOURS
from ctxkit.prices import price
from ctxkit.readers.given import of_session
from ctxkit.subjects import answered, what

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session import Session

KINDS = (("read", COLOURS[2]), ("written", COLOURS[1]), ("fresh", COLOURS[4]))
"""How tokens of a prompt are billed, in the order in which they stand in it."""
_OUTSIDE = "in no message: system prompt, schemas of tools"


class PromptBlock(NamedTuple):
    """A message of a prompt, and where its tokens begin."""

    name: str
    start: int
    tokens: int
    result: bool
    """True for the result of a tool."""


class Strip(NamedTuple):
    """One prompt."""

    call: int
    blocks: tuple[PromptBlock, ...]
    read: int
    written: int
    fresh: int

    @property
    def tokens(self) -> int:
        """Tokens of the prompt, as billed."""
        return self.read + self.written + self.fresh

    def spans(self) -> tuple[Span, ...]:
        """Return the blocks, parted where the kind of billing changes."""
        ends = (self.read, self.read + self.written, self.tokens)
        return tuple(span for block in self.blocks for span in _parted(block, ends))


def _parted(block: PromptBlock, ends: tuple[int, int, int]) -> Iterable[Span]:
    at, stop = block.start, block.start + block.tokens
    for kind, end in enumerate(ends):
        part = min(stop, end) - at
        if part > 0:
            yield Span(at, part, kind, block.name)
            at += part


@of_session
def strip_data(session: Session, call: int = -1) -> Strip:
    """Return the blocks of one prompt, and how many of its tokens were read, written and fresh.

    Raises:
        BadArguments: there is no such call, or nothing says what of it was cached.
    """
    at = session.call(call).index
    billed = next((c for c in cache_data(session) if c.call == at), None)
    if billed is None:
        raise BadArguments(f"Nothing says what call {at} read from the cache.")
    total = billed.read + billed.written + billed.fresh
    items = session.sent(at)
    found = answered(i.message for i in items)
    names = [_OUTSIDE if m.kind == "fixed" else what(m, call) for m, call in found]
    sizes = [i.tokens for i in items]
    outside = max(total - sum(sizes), 0)
    blocks, start = [], 0
    rows = [(_OUTSIDE, outside, False)] if outside else []
    rows += [
        (name, n, i.message.role == "tool") for name, n, i in zip(names, sizes, items, strict=True)
    ]
    for name, tokens, result in rows:
        kept = min(tokens, total - start)
        if kept > 0:
            blocks.append(PromptBlock(name, start, kept, result))
            start += kept
    return Strip(at, tuple(blocks), billed.read, billed.written, billed.fresh)


@of_session
@noted
def strip(session: Session, call: int = -1) -> Chart:
    """Chart one prompt as a strip: a block a message, coloured by how its tokens were billed.

    Args:
        session: a session whose record tells cached from uncached input, or a replay of one.
        call: number of the call, negatives from the end.

    Raises:
        BadArguments: there is no such call, or nothing says what of it was cached.
    """
    data = strip_data(session, call)
    source = "as the record's cache would have it (derived)" if session.origin else "as recorded"
    return Chart(
        title=f"Prompt of call {data.call}",
        caption=f"{data.tokens:,} tokens in {len(data.blocks):,} blocks, {source}. "
        "Sizes of blocks are derived.",
        drawing=BlockRows(kinds=KINDS, rows=(Row("", data.spans()),)),
        head=("billed as", "tokens", "of the prompt", "dollars"),
        rows=_billed(data, session.call(data.call).message.model or session.model),
    )


def _billed(data: Strip, model: str | None) -> tuple[tuple[str, ...], ...]:
    p = price(model) if model else None
    paid = (p.read, p.write(), p.input) if p else (None, None, None)
    rows = zip(KINDS, (data.read, data.written, data.fresh), paid, strict=True)
    return tuple(
        (
            name,
            f"{n:,}",
            amounts.share(n, data.tokens),
            amounts.dollars(None if each is None else n * each),
        )
        for (name, _), n, each in rows
    )
