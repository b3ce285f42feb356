"""Repairs of recording errors: zero usage, cut streams, missing starts, impossible sizes; notes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit import tokens
from ctxkit.session.messages import (
    ABANDONED,
    MISSING_START_KIND,
    Edit,
    Message,
    SizeOnly,
    Usage,
)
from ctxkit.tokens.context_windows import describe_windows_that_refute_table
from ctxkit.tokens.message_sizes_from_recorded_prompts import find_prompt_drops, measure_sizes
from ctxkit.tokens.message_token_counting import estimate_message_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes

_STREAMED_FORMATS = frozenset({"claude-code", "pi"})
"""Formats that record the usage of a streamed reply before its end, or of an interrupted one."""
_CUT_STOPS = frozenset({"aborted", "error", ABANDONED})
"""Stop reasons of interrupted replies, which programs leave out of the next prompt."""


def repair_session(session: Session, unrecorded: Sequence[str] = ()) -> Session:
    """Repair a session and its subagents, and add notes about its limits.

    Args:
        session: a session as its reader returned it.
        unrecorded: what its format cannot mark (`compactions`, `tool errors`), whose count is
            therefore unknown, not zero.
    """
    session = _drop_zero_usage(session)
    if "tool errors" in unrecorded:
        session = _mark_unknown_outcomes(session)
    if session.format in _STREAMED_FORMATS:
        session = _estimate_truncated_outputs(session)
    session = _add_placeholders_for_lost_start(session)
    if unrecorded or session.children:
        details = {**session.details, **({"cannot_tell": list(unrecorded)} if unrecorded else {})}
        children = tuple(repair_session(c, unrecorded) for c in session.children)
        session = msgspec.structs.replace(session, children=children, details=details)
    notes = tuple(_list_notes(session))
    if not notes:
        return session
    with_notes = msgspec.structs.replace(session, notes=(*session.notes, *notes))
    with_notes.__dict__.update(session.__dict__)  # same log: cached properties stay valid
    return with_notes


def _mark_unknown_outcomes(session: Session) -> Session:
    """Return a session whose results without a mark of failure may have failed or not."""
    log = tuple(
        msgspec.structs.replace(e, is_error=None)
        if isinstance(e, Message) and e.role == "tool" and e.is_error is False
        else e
        for e in session.log
    )
    return msgspec.structs.replace(session, log=log)


def _drop_zero_usage(session: Session) -> Session:
    if not any(_has_zero(e.usage) for e in session.log if e.usage is not None):
        return session
    log = tuple(_drop_zero_usage_of_entry(e) for e in session.log)
    unpriced = sum(_is_priced_zero(a.usage) for a in session.log)
    details = {**session.details, "free_calls": unpriced} if unpriced else session.details
    return msgspec.structs.replace(session, log=log, details=details)


def _drop_zero_usage_of_entry(entry: Message | Edit) -> Message | Edit:
    usage = entry.usage
    if usage is None or not _has_zero(usage):
        return entry
    return msgspec.structs.replace(entry, usage=_drop_zeros(usage))


def _has_zero(usage: Usage) -> bool:
    return usage.prompt_tokens == 0 or usage.cost_usd == 0


def _drop_zeros(usage: Usage) -> Usage | None:
    """Return a usage without meaningless zeros: a prompt of no tokens, a price of zero."""
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


def _is_priced_zero(usage: Usage | None) -> bool:
    return usage is not None and usage.cost_usd == 0 and bool(usage.prompt_tokens)


def _list_notes(session: Session) -> Iterator[str]:
    """Yield sentences about what the log of a session cannot tell."""
    yield from _list_usage_notes(session)
    if session.details.get("headless"):
        placeholders = [
            p
            for m in session.messages
            if m.kind == MISSING_START_KIND
            for p in m.parts
            if isinstance(p, SizeOnly)
        ]
        description = "how much of it the first prompt held cannot be told."
        if placeholders:
            size = sum(p.tokens or 0 for p in placeholders)
            description = f"about {size:,} tokens of the first prompt were of it (estimated)."
        yield f"The conversation before line 1 is not in this file: {description}"
    yield from describe_windows_that_refute_table(session)
    drops = find_prompt_drops(session)
    if drops:
        lost_tokens = sum(f.before - f.after for f in drops)
        times = "once" if len(drops) == 1 else f"{len(drops)} times"
        yield (
            f"The prompt fell {times} without a mark in the log, by {lost_tokens:,} tokens in "
            "all: what went is not known."
        )
    blind = session.details.get("cannot_tell", ())
    if blind:
        names = " or ".join(blind)
        yield f"This format has no mark for {names}: where none is seen, their number is missing."


def _list_usage_notes(session: Session) -> Iterator[str]:
    replies = [c.message for c in session.calls if c.message.usage is not None]
    estimated = [m for m in replies if m.details.get("output_source") == "estimated"]
    if estimated:
        recorded = sum(m.details.get("recorded_output_tokens") or 0 for m in estimated)
        total = sum((m.usage.output_tokens or 0) if m.usage else 0 for m in estimated)
        yield (
            f"Output tokens of {len(estimated)} of {len(replies)} calls are estimated from text "
            f"and growth (at least {total:,}): the log holds the first pieces of their streams "
            f"({recorded:,}). {ESTIMATE_ERROR}"
        )
    n_free = session.details.get("free_calls")
    if n_free:
        yield (
            f"The log prices {n_free} calls at $0, as it does where it knows no price: "
            "their cost is missing."
        )


# Estimation of truncated outputs.
#
# Some tools record the usage that was reported at the start of a stream, so that `output_tokens` is
# a fragment. A reply is taken for a fragment if its recorded output is well below the count of its
# visible text (chars/4). Its output is then estimated from prompt growth: the next prompt of the
# same agent and model grew by the reply plus the messages between, and the reply gets its share of
# that growth in proportion to the counts. Without a next prompt, the reply's own count is scaled
# by the median ratio of growth to counts over the session (1 to _MAX_SCALE).
# Invariants: an estimate is never above the growth, as a reply in the next prompt adds at least its
# own tokens to it; a whole output is unchanged. A stop reason says that the final count was known,
# so a recorded output with one stands where the growth has no room for the text: the program put
# text into the reply that the model did not write (such as the plan of Claude Code's ExitPlanMode).
# Estimates are lower bounds: thinking is in neither text nor growth. O(entries).
ESTIMATE_ERROR = (
    "The estimates are too low: in whole logs that were cut alike by 4 to 42 % of the output, as"
    " thinking is in neither."
)
"""The direction and the size of the error of estimated outputs, for a person to read."""
_MIN_REPLY_TOKENS = 16
"""Replies with a smaller count are too short to be judged."""
_MAX_FRAGMENT_RATIO, _MAX_ENDED_FRAGMENT_RATIO = 0.75, 0.4
"""A recorded output below this share of the reply's count (a quarter of its characters) is a
fragment: whole outputs have shares of 0.95 to 3.3 in real logs (median 1.2), fragments nearly all
below 0.4. The smaller share applies if the log has a stop reason, as the final count was then
available."""
_MIN_ROOM = 0.5
"""Share of the reply's count that the growth, less the other messages, must reach."""
_MAX_SCALE = 2.0
"""Upper bound of an estimate in scaled counts, since a prompt may also grow by content that is not
in the log (reminders, for one)."""


class _Growth(NamedTuple):
    """Growth of a prompt from one call to the next, and the token counts of what was added."""

    tokens: int
    """Growth in recorded prompt tokens."""
    reply: int
    """Count of the reply."""
    rest: int
    """Count of the other messages between the calls."""


def _estimate_truncated_outputs(session: Session) -> Session:
    """Return a session whose truncated outputs are estimated; the session itself if it has none.

    The `details` of an estimated reply have `output_source: estimated` and the
    `recorded_output_tokens`.
    """
    counts = {
        id(message): estimate_message_tokens(message)
        for message in session.log
        if message.usage is not None and type(message) is Message
    }
    fragments = [
        message
        for message in session.log
        if type(message) is Message
        and message.usage is not None
        and (count := counts[id(message)]) >= _MIN_REPLY_TOKENS
        and _is_fragment(message, count)
    ]
    if not fragments:
        return session
    growths = dict(_measure_growths(session, counts))
    ratios = [g.tokens / (g.reply + g.rest) for g in growths.values() if g.reply + g.rest]
    scale = min(max(median(ratios), 1.0), _MAX_SCALE) if ratios else 1.0
    estimated_by_id = {
        id(message): reply
        for message in fragments
        if (
            reply := _with_estimated_output(
                message, counts[id(message)], growths.get(id(message)), scale
            )
        )
        is not None
    }
    log = tuple(estimated_by_id.get(id(e), e) for e in session.log)
    return msgspec.structs.replace(session, log=log)


def _is_fragment(reply: Message, count: int) -> bool:
    output = None if reply.usage is None else reply.usage.output_tokens
    return output is not None and output < count * (
        _MAX_ENDED_FRAGMENT_RATIO if _has_ended(reply) else _MAX_FRAGMENT_RATIO
    )


def _has_ended(reply: Message) -> bool:
    return bool(reply.stop) and reply.stop not in _CUT_STOPS


def _measure_growths(session: Session, counts: dict[int, int]) -> Iterator[tuple[int, _Growth]]:
    """Yield (`id` of a reply, growth of the next prompt of the same agent and model).

    Args:
        session: a session.
        counts: token counts of the replies with a usage, by `id`.
    """
    previous: tuple[Message, int] | None = None
    other_tokens = 0
    for entry in session.path:
        if type(entry) is Edit:
            previous = None
        elif type(entry) is Message and entry.role == "assistant":
            prompt = entry.usage.prompt_tokens if entry.usage is not None else None
            if not prompt:
                previous = None
                continue
            if (
                previous is not None
                and prompt > previous[1]
                and previous[0].stop not in _CUT_STOPS
                and (previous[0].agent, previous[0].model) == (entry.agent, entry.model)
            ):
                yield (
                    id(previous[0]),
                    _Growth(prompt - previous[1], counts[id(previous[0])], other_tokens),
                )
            previous, other_tokens = (entry, prompt), 0
        elif type(entry) is Message and entry.visible and previous is not None:
            other_tokens += estimate_message_tokens(entry)


def _with_estimated_output(
    reply: Message, count: int, growth: _Growth | None, scale: float
) -> Message | None:
    """Return a reply with an estimated output, and the recorded one in its details.

    None where the recorded output stands: the growth allows no more, or refutes the text.
    """
    assert reply.usage is not None  # noqa: S101  for the type checker
    output = round(scale * count)
    if growth is not None:
        if _has_ended(reply) and growth.tokens - growth.rest < _MIN_ROOM * count:
            return None
        share = round(growth.tokens * growth.reply / (growth.reply + growth.rest))
        most = max(round(_MAX_SCALE * scale * count), count)
        output = min(max(share, count), most, growth.tokens)
    if output <= (reply.usage.output_tokens or 0):
        return None
    details = {"output_source": "estimated", "recorded_output_tokens": reply.usage.output_tokens}
    usage = msgspec.structs.replace(reply.usage, output_tokens=output)
    return msgspec.structs.replace(reply, usage=usage, details={**reply.details, **details})


# Restoration of a lost beginning.
#
# A log may begin in the middle of a conversation. The first prompt is then larger than its visible
# messages explain. Part of that is the fixed prompt (system prompt, tools, project files); the rest
# is conversation that is not in the file. The fixed part is bounded from above by the smallest
# unexplained part of any later prompt, because a compaction removes conversation only:
#   lost tokens = unexplained part of the first prompt - unexplained part of the smallest prompt
# The lost tokens become placeholder messages of known size and no text, and the session's first
# compaction removes them. They are cut to message size so that policies that keep the first few
# messages do not keep all of them.
_MIN_LOST_TOKENS = 1024
"""Smaller differences are within the error of the sizes."""
_PLACEHOLDER_TOKENS = 2000
"""Tokens per placeholder."""
_MAX_PLACEHOLDERS = 1000
"""Largest number of placeholders; for more tokens each one is larger."""
_MAX_FIXED_PROMPT = 64_000
"""Upper bound of a fixed prompt in tokens; those of real tools have 11,000 to 45,000."""


def _add_placeholders_for_lost_start(session: Session) -> Session:
    """Return a session with placeholders for conversation that its file has lost.

    The placeholders (role `summary`, kind `lost`, sizes without text) become the first messages.
    The session itself is returned if nothing is lost or its amount cannot be estimated.
    """
    if not session.details.get("headless") or not session.has_usage:
        return session
    lost_tokens = _estimate_lost_tokens(
        session, measure_sizes(session, tokens.get_counter("chars/4"))
    )
    return (
        session if lost_tokens < _MIN_LOST_TOKENS else _prepend_placeholders(session, lost_tokens)
    )


def _estimate_lost_tokens(session: Session, sized: MessageSizes) -> int:
    calls_with_prompts = [(n, c) for c in session.calls if (n := sized.recorded[c.index])]
    if not calls_with_prompts:
        return 0
    first_call, smallest_call = (
        calls_with_prompts[0],
        min(calls_with_prompts, key=lambda pair: pair[0]),
    )
    first_fixed, smallest_fixed = (
        max(sized.fixed_at[c.index] - sized.unsent_at[c.index], 0)
        for _, c in (first_call, smallest_call)
    )
    # Without a smaller later prompt, the smallest cache read bounds the fixed part from above, as
    # cache breakpoints are at or after its end.
    if smallest_call is first_call and first_fixed > _MAX_FIXED_PROMPT:
        cache_reads = [
            c.message.usage.cache_read_tokens or 0 for _, c in calls_with_prompts if c.message.usage
        ]
        smallest_fixed = min([first_fixed, *(r for r in cache_reads if r > _MIN_LOST_TOKENS)])
    return first_fixed - smallest_fixed


def _prepend_placeholders(session: Session, size: int) -> Session:
    ids = {e.id for e in session.log} | {m.id for e in session.edits for m in e.inserted}
    used_stems = {i.partition("-")[0] for i in ids}
    stem = next(
        s
        for n_placeholders in range(len(ids) + 1)
        if (s := f"lost{n_placeholders or ''}") not in used_stems
    )
    piece_tokens = max(_PLACEHOLDER_TOKENS, -(-size // _MAX_PLACEHOLDERS))
    piece_sizes = [piece_tokens] * (size // piece_tokens) + [size % piece_tokens] * (
        size % piece_tokens > 0
    )
    placeholders = tuple(
        Message(
            role="summary",
            id=f"{stem}-{i}",
            kind=MISSING_START_KIND,
            parts=(SizeOnly("conversation that is not in the file", tokens=n_placeholders),),
        )
        for i, n_placeholders in enumerate(piece_sizes)
    )
    first_compaction = next((e for e in session.edits if e.kind == "summarised"), None)
    placeholder_ids = tuple(m.id for m in placeholders)
    log = tuple(
        msgspec.structs.replace(e, targets=(*placeholder_ids, *e.targets))
        if e is first_compaction
        else e
        for e in session.log
    )
    n_placeholders, root = len(placeholders), session.indices[0] if session.indices else 0
    parents = tuple(
        n_placeholders - 1 if i == root else -1 if p < 0 else p + n_placeholders
        for i, p in enumerate(session.parents)
    )
    return msgspec.structs.replace(
        session,
        log=(*placeholders, *log),
        parents=(*range(-1, n_placeholders - 1), *parents) if parents else (),
        leaf=session.leaf + n_placeholders if session.leaf >= 0 else session.leaf,
    )
