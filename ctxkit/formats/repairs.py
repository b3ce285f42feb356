"""Repair what logs record wrongly: zero usage, cut-off streams, missing beginnings; add notes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit import tokens
from ctxkit.session.messages import MISSING_START_KIND, Edit, Message, SizeOnly, Usage
from ctxkit.tokens.context_windows import context_window_notes
from ctxkit.tokens.counters import estimate_message_tokens
from ctxkit.tokens.sizes import find_prompt_drops, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session.session import Session
    from ctxkit.tokens.sizes import MessageSizes


_STREAMED_FORMATS = frozenset({"claude-code"})
"""Formats that write the usage of a stream before its end."""


def repair_session(session: Session, blind: Sequence[str] = ()) -> Session:
    """Return a session, and its subagents, mended and with its notes.

    Args:
        session: as its reader made it.
        blind: what its format has no mark for (`compactions`, `tool errors`): none is not zero.
    """
    session = _drop_zero_usage(session)
    if session.format in _STREAMED_FORMATS:
        session = estimate_truncated_outputs(session)
    session = restore_lost_head(session)
    if blind or session.children:
        details = {**session.details, **({"cannot_tell": list(blind)} if blind else {})}
        children = tuple(repair_session(c, blind) for c in session.children)
        session = msgspec.structs.replace(session, children=children, details=details)
    notes = tuple(_notes(session))
    if not notes:
        return session
    told = msgspec.structs.replace(session, notes=(*session.notes, *notes))
    told.__dict__.update(session.__dict__)  # the same log: what is known of it stays known
    return told


def _drop_zero_usage(session: Session) -> Session:
    if not any(_has_zero(e.usage) for e in session.log if e.usage is not None):
        return session
    log = tuple(_clean_entry(e) for e in session.log)
    unpriced = sum(_is_free(a.usage) for a in session.log)
    details = {**session.details, "free_calls": unpriced} if unpriced else session.details
    return msgspec.structs.replace(session, log=log, details=details)


def _clean_entry(entry: Message | Edit) -> Message | Edit:
    usage = entry.usage
    if usage is None or not _has_zero(usage):
        return entry
    return msgspec.structs.replace(entry, usage=_clean_usage(usage))


def _has_zero(usage: Usage) -> bool:
    return usage.prompt_tokens == 0 or usage.cost_usd == 0


def _clean_usage(usage: Usage) -> Usage | None:
    """Return a usage without zeros that mean nothing: a prompt of no tokens, a price of nothing."""
    cost = usage.cost_usd or None
    if usage.prompt_tokens:
        return msgspec.structs.replace(usage, cost_usd=cost)
    output = usage.output_tokens or None
    if output is None and cost is None:
        return None
    return Usage(
        output_tokens=output,
        reasoning_tokens=usage.reasoning_tokens if output else None,
        cost_usd=cost,
    )


def _is_free(usage: Usage | None) -> bool:
    return usage is not None and usage.cost_usd == 0 and bool(usage.prompt_tokens)


def _notes(session: Session) -> Iterator[str]:
    """Yield what is to be said of a session, in plain sentences."""
    yield from _usage_notes(session)
    if session.details.get("headless"):
        head = [
            p
            for m in session.messages
            if m.kind == MISSING_START_KIND
            for p in m.parts
            if isinstance(p, SizeOnly)
        ]
        told = "how much of it the first prompt held cannot be told."
        if head:
            size = sum(p.tokens or 0 for p in head)
            told = f"about {size:,} tokens of the first prompt were of it (estimated)."
        yield f"The conversation before line 1 is not in this file: {told}"
    yield from context_window_notes(session)
    found = find_prompt_drops(session)
    if found:
        lost = sum(f.before - f.after for f in found)
        times = "once" if len(found) == 1 else f"{len(found)} times"
        yield (
            f"The prompt fell {times} without a mark in the log, by {lost:,} tokens in all: "
            "what went is not known."
        )
    blind = session.details.get("cannot_tell", ())
    if blind:
        names = " or ".join(blind)
        yield f"This format has no mark for {names}: where none is seen, their number is missing."


def _usage_notes(session: Session) -> Iterator[str]:
    replies = [c.message for c in session.calls if c.message.usage is not None]
    broken = [m for m in replies if m.details.get("output_source") == "estimated"]
    if broken:
        first = sum(m.details.get("recorded_output_tokens") or 0 for m in broken)
        now = sum((m.usage.output_tokens or 0) if m.usage else 0 for m in broken)
        yield (
            f"Output tokens of {len(broken)} of {len(replies)} calls are estimated from text and "
            f"growth ({now:,}): the log holds the first pieces of their streams ({first:,})."
        )
    free = session.details.get("free_calls")
    if free:
        yield (
            f"The log prices {free} calls at $0, as it does where it knows no price: "
            "their cost is missing."
        )


_MIN_REPLY_TOKENS = 16
"""Replies that count fewer tokens are too short to be judged."""
_OPEN_RATIO, _ENDED_RATIO = 0.75, 0.4
"""An output below this share of a quarter of the reply's characters is no whole one: whole ones lie
at 0.95 to 3.3 in real logs (median 1.2), fragments nearly all below 0.4. The smaller share holds
where the log says why the reply ended, as it then had the final count at hand."""
_MAX_SCALE = 2.0
"""What a prompt grew by beside a reply may be more than the log shows (reminders, for one): no more
than this many times the scaled count is taken for the reply."""


class _Growth(NamedTuple):
    """What a prompt grew by from one call to the next, and the counts of what it grew by."""

    tokens: int
    reply: int
    rest: int


def estimate_truncated_outputs(session: Session) -> Session:
    """Return a session whose fragmentary outputs are estimated; itself, where it has none.

    The estimate is the reply's share of what the next prompt grew by, else its count scaled as the
    session's other growth was; never below the plain count of what is visible. `details` of the
    reply then say `output_source: estimated` and hold the `recorded_output_tokens`.
    """
    counts = {
        id(m): estimate_message_tokens(m)
        for m in session.log
        if type(m) is Message and m.usage is not None
    }
    broken = {own for own, n in counts.items() if n >= _MIN_REPLY_TOKENS}
    found = [
        m
        for m in session.log
        if id(m) in broken and type(m) is Message and _is_fragment(m, counts[id(m)])
    ]
    if not found:
        return session
    growths = dict(_growths(session, counts))
    ratios = [g.tokens / (g.reply + g.rest) for g in growths.values() if g.reply + g.rest]
    scale = min(max(median(ratios), 1.0), _MAX_SCALE) if ratios else 1.0
    new = {
        id(m): _with_estimated_output(m, counts[id(m)], growths.get(id(m)), scale) for m in found
    }
    log = tuple(new.get(id(e), e) for e in session.log)
    return msgspec.structs.replace(session, log=log)


def _is_fragment(reply: Message, count: int) -> bool:
    output = None if reply.usage is None else reply.usage.output_tokens
    return output is not None and output < count * (_ENDED_RATIO if reply.stop else _OPEN_RATIO)


def _growths(session: Session, counts: dict[int, int]) -> Iterator[tuple[int, _Growth]]:
    """Yield by identity of a reply what the next prompt of the same agent and model grew by.

    Args:
        session: a session.
        counts: tokens of each reply with a usage, by its identity.
    """
    last: tuple[Message, int] | None = None
    rest = 0
    for entry in session.path:
        if type(entry) is Edit:
            last = None
        elif type(entry) is Message and entry.role == "assistant":
            prompt = entry.usage.prompt_tokens if entry.usage is not None else None
            if not prompt:
                last = None
                continue
            if (
                last is not None
                and prompt > last[1]
                and (last[0].agent, last[0].model) == (entry.agent, entry.model)
            ):
                yield id(last[0]), _Growth(prompt - last[1], counts[id(last[0])], rest)
            last, rest = (entry, prompt), 0
        elif type(entry) is Message and entry.visible and last is not None:
            rest += estimate_message_tokens(entry)


def _with_estimated_output(
    reply: Message, count: int, growth: _Growth | None, scale: float
) -> Message:
    """Return a reply with its output estimated, and the fragment in its details."""
    assert reply.usage is not None  # noqa: S101  for the type checker
    told = round(scale * count)
    if growth is not None and growth.reply:
        told = round(growth.tokens * growth.reply / (growth.reply + growth.rest))
    output = min(max(told, count), max(round(_MAX_SCALE * scale * count), count))
    details = {"output_source": "estimated", "recorded_output_tokens": reply.usage.output_tokens}
    usage = msgspec.structs.replace(reply.usage, output_tokens=output)
    return msgspec.structs.replace(reply, usage=usage, details={**reply.details, **details})


_MIN_LOST_TOKENS = 1024
"""Fewer tokens are within what sizes can tell."""
_PLACEHOLDER_TOKENS = 2000
"""Tokens of each of them, as messages have: what keeps the first ones keeps little."""
_MOST = 1000
"""There are no more of them: for more tokens each is larger."""
_MAX_FIXED_PROMPT = 64_000
"""More than system prompt, tools and project files have been seen to take (11,000 to 45,000)."""


def restore_lost_head(session: Session) -> Session:
    """Return a session with messages for what its file has lost; itself, where that is nothing.

    A prompt's fixed part cannot be larger than what no message shows of the smallest later prompt.
    What the first prompt held beyond that was conversation, which a compaction takes away: it
    becomes the first messages (role `summary`, kind `lost`, sizes and no text), and the session's
    first compaction takes them. Where no later prompt was smaller, and the first is larger than any
    fixed part that has been seen, the least that a cold cache was read for bounds it, as caches end
    at marks behind it; else nothing can be said.
    """
    if not session.details.get("headless") or not session.has_usage:
        return session
    size = _estimate_lost_tokens(session, measure_sizes(session, tokens.get_counter("chars/4")))
    return session if size < _MIN_LOST_TOKENS else _prepend_placeholders(session, size)


def _estimate_lost_tokens(session: Session, sized: MessageSizes) -> int:
    known = [(n, c) for c in session.calls if (n := sized.recorded[c.index])]
    if not known:
        return 0
    first, smallest = known[0], min(known, key=lambda pair: pair[0])
    begun, least = (
        max(sized.fixed_at[c.index] - sized.unsent_at[c.index], 0) for _, c in (first, smallest)
    )
    if smallest is first and begun > _MAX_FIXED_PROMPT:
        reads = [c.message.usage.cache_read_tokens or 0 for _, c in known if c.message.usage]
        least = min([begun, *(r for r in reads if r > _MIN_LOST_TOKENS)])
    return begun - least


def _prepend_placeholders(session: Session, size: int) -> Session:
    ids = {e.id for e in session.log} | {m.id for e in session.edits for m in e.inserted}
    taken = {i.partition("-")[0] for i in ids}
    stem = next(s for n in range(len(ids) + 1) if (s := f"lost{n or ''}") not in taken)
    piece = max(_PLACEHOLDER_TOKENS, -(-size // _MOST))
    sizes = [piece] * (size // piece) + [size % piece] * (size % piece > 0)
    head = tuple(
        Message(
            role="summary",
            id=f"{stem}-{i}",
            kind=MISSING_START_KIND,
            parts=(SizeOnly("conversation that is not in the file", tokens=n),),
        )
        for i, n in enumerate(sizes)
    )
    first = next((e for e in session.edits if e.kind == "summarised"), None)
    gone = tuple(m.id for m in head)
    log = tuple(
        msgspec.structs.replace(e, targets=(*gone, *e.targets)) if e is first else e
        for e in session.log
    )
    n, root = len(head), session.indices[0] if session.indices else 0
    parents = tuple(
        n - 1 if i == root else -1 if p < 0 else p + n for i, p in enumerate(session.parents)
    )
    return msgspec.structs.replace(
        session,
        log=(*head, *log),
        parents=(*range(-1, n - 1), *parents) if parents else (),
        leaf=session.leaf + n if session.leaf >= 0 else session.leaf,
    )
