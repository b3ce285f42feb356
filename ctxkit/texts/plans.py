"""How a long text is laid before a summariser: groups that hold together, parts by share, chunks by
size (OpenClaw).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.subjects import answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.messages import Message

Rows = tuple[int, ...]
MARGIN = 1.2
"""What an estimate of tokens may be too low by (OpenClaw's safety factor)."""
OVERHEAD = 4096
"""Tokens left free in each request for instructions and the previous summary."""


def groups(messages: Sequence[Message]) -> list[Rows]:
    """Return rows that must stay together: a call with all up to its last result, everything else
    alone.

    A call that was aborted, failed, or never got its results binds nothing.
    """
    at = {id(c): i for i, (m, c) in enumerate(answered(messages)) if m.role == "tool"}
    out: list[Rows] = []
    row = 0
    while row < len(messages):
        end = max(row, _last(messages[row], at))
        out.append(tuple(range(row, end + 1)))
        row = end + 1
    return out


def _last(message: Message, at: dict[int, int]) -> int:
    """Return the row of the last result that a message's calls got, or -1."""
    if message.stop in ("aborted", "error"):
        return -1
    return max((at.get(id(c), -1) for c in message.tool_calls), default=-1)


def by_size(messages: Sequence[Message], sizes: Sequence[int], limit: int) -> list[Rows]:
    """Return chunks of whole groups of at most `limit` / 1.2 tokens; a larger group is a chunk of
    its own.
    """
    room = max(1, int(limit / MARGIN))
    return _pack(groups(messages), sizes, lambda total, _: total > room)


def by_share(messages: Sequence[Message], sizes: Sequence[int], parts: int = 2) -> list[Rows]:
    """Return at most `parts` chunks of whole groups with about the same number of tokens."""
    target = sum(sizes) / max(1, parts)
    return _pack(groups(messages), sizes, lambda total, done: done < parts - 1 and total > target)


def _pack(
    bundles: Iterable[Rows], sizes: Sequence[int], full: Callable[[int, int], bool]
) -> list[Rows]:
    out: list[Rows] = []
    now: Rows = ()
    for bundle in bundles:
        total = sum(sizes[r] for r in (*now, *bundle))
        if now and full(total, len(out)):
            out.append(now)
            now = ()
        now += bundle
    return [*out, now] if now else out


def within_share(
    messages: Sequence[Message], sizes: Sequence[int], budget: int
) -> tuple[Rows, Rows, int]:
    """Drop the older half by tokens until what is left fits the budget.

    Returns:
        the rows kept, the rows dropped, the number of halvings.
    """
    kept: Rows = tuple(range(len(messages)))
    dropped: Rows = ()
    times = 0
    while kept and sum(sizes[r] for r in kept) > budget:
        halves = by_share([messages[r] for r in kept], [sizes[r] for r in kept])
        if len(halves) < 2:
            break
        first = len(halves[0])
        dropped, kept, times = dropped + kept[:first], kept[first:], times + 1
    return kept, dropped, times


def ratio(messages: int, tokens: int, window: int) -> float:
    """Return which share of the window a chunk may have: 0.4, less (down to 0.15) where messages
    are large.
    """
    if not messages or not window:
        return 0.4
    mean = tokens / messages * MARGIN / window
    return 0.4 if mean <= 0.1 else max(0.15, 0.4 - min(mean * 2, 0.25))


def chunk_tokens(messages: int, tokens: int, window: int) -> int:
    """Return how many tokens of history one summary request may carry."""
    return max(1, int(window * ratio(messages, tokens, window)) - OVERHEAD)


def oversized(
    messages: Sequence[Message], sizes: Sequence[int], window: int
) -> tuple[Rows, tuple[str, ...]]:
    """Return the rows that fit a summary request, and a note for each message that is too large for
    one.

    A message of more than half the window (times 1.2) is left out together with what belongs to it.
    """
    large = {i for i, n in enumerate(sizes) if n * MARGIN > window / 2}
    notes = tuple(
        f"[Large {_name(messages[i])} (~{max(1, round(sizes[i] / 1000))}K tokens) omitted from"
        " summary]"
        for i in sorted(large)
    )
    tainted = {messages[i].call_id for i in large} | {
        c.id for i in large for c in messages[i].tool_calls
    }
    tainted |= {
        c.id for m in messages if any(c.id in tainted for c in m.tool_calls) for c in m.tool_calls
    }
    tainted.discard(None)
    kept = tuple(
        i
        for i, m in enumerate(messages)
        if i not in large
        and m.call_id not in tainted
        and not any(c.id in tainted for c in m.tool_calls)
    )
    return kept, notes


def _name(message: Message) -> str:
    return "toolResult" if message.role == "tool" else message.role


def stages(
    messages: Sequence[Message], sizes: Sequence[int], window: int, parts: int = 2
) -> list[list[Rows]]:
    """Return the requests of a summary in stages: for each part its chunks, in order.

    Fewer than four messages, or what fits one chunk, is one part.
    """
    limit = chunk_tokens(len(messages), sum(sizes), window)
    if len(messages) < 4 or sum(sizes) <= limit:
        return [by_size(messages, sizes, limit)]
    out = []
    for part in by_share(messages, sizes, parts):
        inner = by_size([messages[r] for r in part], [sizes[r] for r in part], limit)
        out.append([tuple(part[r] for r in chunk) for chunk in inner])
    return out
