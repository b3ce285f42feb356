"""Prompt sizes of live sessions: as the provider billed them, else estimated in its tokens.

A provider may bill a third of what a token counter counts, or three times as much, and it describes
tools in its own way. So a prompt that was not sent yet is counted, and the count is scaled by the
bills of prompts whose count is known (linear fit through the smallest and the largest of them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.session.messages import Edit, Message, Provenance
from ctxkit.tokens.message_sizes_from_recorded_prompts import TOOLS_DIGEST_KEY, estimate_tool_tokens
from ctxkit.tokens.message_token_counting import estimate_message_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.messages import ToolSchema
    from ctxkit.session.session import Session

COUNTED_TOKENS_KEY = "counted_tokens"
"""Key of the details of a live session's reply: counted tokens of the messages of its prompt."""
MAX_COUNT_PER_BILL = 4
"""A bill below the counted tokens divided by this is not used to scale other prompts."""
MAX_IGNORED_SHARE = 0.05
"""Messages since the last prompt are ignored in a size up to this share of the prompt."""
_MIN_SIZE_RATIO = 2
"""Two bills give the tokens billed per counted token if one prompt is this many times the other."""


# State of a live prompt: the last billed reply, and the messages since. If these are at most
# `MAX_IGNORED_SHARE` of the bill, the last bill is the size. Else the coming prompt is counted and
# scaled: by the bill of the prompt that it extends, or by the slope between the smallest and the
# largest known bill. Bills before a compaction or a change of model or tools are not used.


class PromptSize(NamedTuple):
    """The size of a prompt."""

    tokens: int
    source: Provenance
    """`recorded` where the provider billed it, else `estimated`."""


class CountedAndBilledTokens(NamedTuple):
    """The counted tokens of a prompt, tool schemas included, and the billed ones."""

    counted: int
    billed: int


class SizesAroundCompaction(NamedTuple):
    """The prompts before and after a compaction."""

    before: int
    after: int
    source: Provenance
    """The weaker of the two: `recorded` where both were sent and billed, else `estimated`."""


def get_billed_prompt(reply: Message) -> int | None:
    """Return the billed prompt tokens of a reply's call; None where there is no bill."""
    return reply.prompt_tokens or None


def estimate_schema_tokens(tools: Iterable[ToolSchema]) -> int:
    """Estimate the tokens of tool schemas without a bill: a quarter of their characters.

    Args:
        tools: the schemas, with the length of their JSON in characters.

    Example:
        >>> from ctxkit.session import ToolSchema
        >>> estimate_schema_tokens([ToolSchema(name="read", description="Read a file.")])
        5
    """
    return sum(estimate_tool_tokens(tools))


def list_counted_and_billed_prompts(
    replies: Iterable[Message | None], base: int
) -> list[CountedAndBilledTokens]:
    """Return the bills of prompts whose count is known, of the model and tools of the last call.

    Args:
        replies: replies of all calls, in order; None for a call without one.
        base: counted tokens of the tool schemas.

    Returns:
        Counted and billed tokens of each, in order of calls.
    """
    out: list[CountedAndBilledTokens] = []
    model: str | None = None
    for reply in replies:
        billed = None if reply is None else get_billed_prompt(reply)
        if reply is None or billed is None:
            continue
        if reply.model != model or TOOLS_DIGEST_KEY in reply.details:
            out, model = [], reply.model
        if COUNTED_TOKENS_KEY in reply.details and _is_plausible_bill(reply, base):
            out.append(CountedAndBilledTokens(base + reply.details[COUNTED_TOKENS_KEY], billed))
    return out


def estimate_billed_tokens(
    counted: int,
    billed_prompts: Sequence[CountedAndBilledTokens],
    base: CountedAndBilledTokens | None = None,
) -> int:
    """Estimate the billed tokens of a prompt from its counted ones.

    The rate per counted token is the slope between the smallest and the largest bill, so that a
    constant part cancels out. Where these are too close, or the prompt is smaller than all of them,
    it is the ratio of one bill.

    Args:
        counted: counted tokens of the prompt, tool schemas included.
        billed_prompts: bills of prompts whose count is known; without any, the count is the
            estimate.
        base: the bill of the prompt that this one extends; None: the bill nearest in size.

    Returns:
        Billed tokens; the counted ones where there is no bill.
    """
    if not billed_prompts:
        return counted
    low, high = min(billed_prompts), max(billed_prompts)
    base = base or min(billed_prompts, key=lambda bill: abs(bill.counted - counted))
    has_slope = high.counted >= _MIN_SIZE_RATIO * low.counted and high.billed > low.billed
    if not has_slope or counted < low.counted:
        base = low if has_slope else base
        return round(base.billed * counted / base.counted) if base.counted else counted
    rate = (high.billed - low.billed) / (high.counted - low.counted)
    return max(round(base.billed + rate * (counted - base.counted)), 0)


def get_prompt_size(session: Session, call: int) -> PromptSize:
    """Return the tokens of a call's prompt: billed ones if recorded, else the loop's estimate.

    Args:
        session: a live session.
        call: number of the call, from 0.
    """
    billed = get_billed_prompt(session.calls[call].message)
    if billed is not None:
        return PromptSize(billed, "recorded")
    return PromptSize(session.prompt_source.prompt_size(call), "estimated")


def estimate_next_prompt(session: Session) -> PromptSize:
    """Return the size of a live session's next prompt, as if nothing were compacted before it."""
    source, last = session.prompt_source, _reply_before(session, len(session.path))
    billed = list_counted_and_billed_prompts((c.message for c in session.calls), source.schemas)
    extends_last = last is not None and _is_plausible_bill(last, source.schemas)
    base = billed[-1] if billed and extends_last else None
    return PromptSize(estimate_billed_tokens(source.counted_next, billed, base), "estimated")


def get_current_size(session: Session) -> PromptSize:
    """Return the current size of a live session: the last billed prompt, or the estimated next one.

    The next one counts after a compaction, or where the messages since are more than
    `MAX_IGNORED_SHARE`.
    """
    return _current_prompt(session)[1]


def find_call_of_current_size(session: Session) -> int | None:
    """Return the call whose prompt `get_current_size` gives; None: it gives the next prompt."""
    return _current_prompt(session)[0]


def _current_prompt(session: Session) -> tuple[int | None, PromptSize]:
    """Return the call of the current prompt (None: the next call), and its size."""
    last = session.path[-1] if session.path else None
    if isinstance(last, Message) and last.role == "assistant" and not last.is_error:
        call = len(session.calls) - 1
        return call, get_prompt_size(session, call)
    coming, reply = estimate_next_prompt(session), _reply_before(session, len(session.path))
    billed = None if reply is None else get_billed_prompt(reply)
    if billed is None or abs(coming.tokens - billed) > MAX_IGNORED_SHARE * billed:
        return None, coming
    call = next(c.index for c in reversed(session.calls) if c.message is reply)
    return call, PromptSize(billed, "recorded")


def get_sizes_around_compaction(
    session: Session, first: int, last: int
) -> SizesAroundCompaction | None:
    """Return the prompt sizes before and after a compaction of a live session.

    They are billed sizes where the prompts were sent, else the estimates made at the compaction.
    Messages between the compaction and the next prompt are added to the size before, too, where
    they are more than `MAX_IGNORED_SHARE`; messages before the compaction are in it already.

    Args:
        session: the live session, or one read from its log.
        first: position in its path of the compaction's first edit.
        last: position of its last edit.

    Returns:
        None where another program compacted, or the session is a replay: their edits have sizes.
    """
    first_edit, last_edit = session.path[first], session.path[last]
    if not isinstance(first_edit, Edit) or not isinstance(last_edit, Edit):
        return None
    if not _is_live(session, first_edit):
        return None
    before, after = max(first_edit.tokens_before or 0, 0), max(last_edit.tokens_after or 0, 0)
    reply_before, (reply_after, since) = _reply_before(session, first), _reply_after(session, last)
    if reply_after is None or (
        reply_before is not None and reply_before.model != reply_after.model
    ):
        return SizesAroundCompaction(before, after, "estimated")
    after = get_billed_prompt(reply_after) or 0
    added = _billed_share(since, reply_after)
    if added > MAX_IGNORED_SHARE * before:
        return SizesAroundCompaction(before + added, after, "estimated")
    is_recorded = reply_before is not None and before == get_billed_prompt(reply_before)
    return SizesAroundCompaction(before, after, "recorded" if is_recorded else "estimated")


def _is_plausible_bill(reply: Message, base: int) -> bool:
    """Return whether the bill of a reply can be the size of its prompt, so that others can be
    scaled by it; `base`: counted tokens of the tool schemas.
    """
    billed, counted = get_billed_prompt(reply), reply.details.get(COUNTED_TOKENS_KEY)
    return billed is not None and billed * MAX_COUNT_PER_BILL >= base + (counted or 0)


def _is_live(session: Session, edit: Edit) -> bool:
    """Return whether ctxkit compacted while the session ran."""
    is_replay = session.format == "replay" or session.origin is not None
    return not is_replay and edit.source == "derived" and "messages_before" in edit.details


def _reply_before(session: Session, position: int) -> Message | None:
    """Return the last billed reply before a position; None if a compaction followed it."""
    for entry in reversed(session.path[:position]):
        if isinstance(entry, Edit):
            return None
        if entry.role == "assistant" and get_billed_prompt(entry) is not None:
            return entry
    return None


def _reply_after(session: Session, position: int) -> tuple[Message | None, list[Message]]:
    """Return the first billed reply after a position, and the messages before it; None where
    another compaction came first.
    """
    since: list[Message] = []
    for entry in session.path[position + 1 :]:
        if isinstance(entry, Edit):
            break
        if entry.role == "assistant" and get_billed_prompt(entry) is not None:
            return entry, since
        if entry.visible:
            since.append(entry)
    return None, since


def _billed_share(messages: Sequence[Message], reply: Message) -> int:
    """Return the billed tokens of a reply's prompt that some messages take."""
    counted, billed = reply.details.get(COUNTED_TOKENS_KEY), get_billed_prompt(reply)
    if not isinstance(counted, int) or not counted or billed is None:
        return 0
    return min(round(billed * sum(map(estimate_message_tokens, messages)) / counted), billed)
