"""How large the prompt of a live session is: as its provider billed it, else an estimate in the
provider's own unit.

A provider may bill a third of what the kit counts, or three times as much, and describes tools in
its own way. So what was not sent yet is counted and then scaled by the bills of prompts of which
the count is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.session.messages import Edit, Message, Provenance
from ctxkit.tokens.counters import estimate_message_tokens as length
from ctxkit.tokens.sizes import TOOLS_DIGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.messages import ToolSchema
    from ctxkit.session.session import Session

COUNTED = "counted_tokens"
"""In the details of a live session's reply: the messages that its call was sent, as counted."""
LIKELY = 4
"""A bill of less than one in so many counted tokens does not tell how others would be billed."""
NOISE = 0.05
"""What was said since a prompt is left out of a size, up to this share of the prompt."""
_APART = 2
"""Two prompts tell what a counted token is billed where one is at least so many times the other."""


class PromptSize(NamedTuple):
    """The size of a prompt."""

    tokens: int
    source: Provenance
    """`recorded` where the provider billed it, else `estimated`."""


class BilledPrompt(NamedTuple):
    """What the prompt of a call was counted, with the schemas of its tools, and billed."""

    counted: int
    billed: int


class SizesAround(NamedTuple):
    """The prompts before and after a compaction."""

    before: int
    after: int
    source: Provenance
    """The weaker of the two: `recorded` where both were sent and billed, else `estimated`."""


def billed_prompt(reply: Message) -> int | None:
    """Return the tokens that the prompt of a reply was billed; None: nobody billed it."""
    usage = None if reply.kind == "turn" else reply.usage
    return (usage.prompt_tokens or None) if usage is not None else None


def schemas(tools: Iterable[ToolSchema]) -> int:
    """Return the tokens of tools' schemas while no bill is known: a quarter of their characters."""
    return sum(t.chars or 0 for t in tools) // 4


def bills(replies: Iterable[Message | None], base: int) -> list[BilledPrompt]:
    """Return the bills of prompts whose count is known, under the model and the tools of the last.

    Args:
        replies: of all calls, in order.
        base: tokens of the schemas, as counted.
    """
    out: list[BilledPrompt] = []
    model: str | None = None
    for reply in replies:
        told = None if reply is None else billed_prompt(reply)
        if reply is None or told is None:
            continue
        if reply.model != model or TOOLS_DIGEST_KEY in reply.details:
            out, model = [], reply.model
        if COUNTED in reply.details and _is_size(reply, base):
            out.append(BilledPrompt(base + reply.details[COUNTED], told))
    return out


def estimate(counted: int, known: Sequence[BilledPrompt], base: BilledPrompt | None = None) -> int:
    """Return what a prompt would be billed that was counted, schemas included.

    What a counted token is billed follows from the smallest and the largest prompt, as the rest of
    a prompt is billed, too; where these are alike, or what is asked for is smaller than all, from
    the whole of one prompt.

    Args:
        counted: the prompt, as counted.
        known: bills of prompts whose count is known; without any, the count is the estimate.
        base: the prompt that this one goes on from; None: the one that is nearest in size.
    """
    if not known:
        return counted
    low, high = min(known), max(known)
    base = base or min(known, key=lambda bill: abs(bill.counted - counted))
    apart = high.counted >= _APART * low.counted and high.billed > low.billed
    if not apart or counted < low.counted:
        base = base if not apart else low
        return round(base.billed * counted / base.counted) if base.counted else counted
    rate = (high.billed - low.billed) / (high.counted - low.counted)
    return max(round(base.billed + rate * (counted - base.counted)), 0)


def size_at(session: Session, call: int) -> PromptSize:
    """Return the size of the prompt of a call of a live session."""
    told = billed_prompt(session.calls[call].message)
    if told is not None:
        return PromptSize(told, "recorded")
    return PromptSize(session.behind.prompt_size(call), "estimated")


def size_next(session: Session) -> PromptSize:
    """Return the size of the prompt that a live session would be sent next, uncompacted."""
    behind, last = session.behind, _reply_before(session, len(session.path))
    known = bills((c.message for c in session.calls), behind.schemas)
    goes_on = last is not None and _is_size(last, behind.schemas)
    base = known[-1] if known and goes_on else None
    return PromptSize(estimate(behind.counted_next, known, base), "estimated")


def size_now(session: Session) -> PromptSize:
    """Return how large a live session is: the last prompt, as billed; where it was compacted or
    more than noise was said since, the prompt that comes next, as estimated.
    """
    return _standing(session)[1]


def standing_call(session: Session) -> int | None:
    """Return the call whose prompt `size_now` gives; None: it gives the prompt that comes next."""
    return _standing(session)[0]


def _standing(session: Session) -> tuple[int | None, PromptSize]:
    """Return the size of a session, and the call that it is the prompt of."""
    last = session.path[-1] if session.path else None
    if isinstance(last, Message) and last.role == "assistant" and not last.is_error:
        call = len(session.calls) - 1
        return call, size_at(session, call)
    coming, reply = size_next(session), _reply_before(session, len(session.path))
    told = None if reply is None else billed_prompt(reply)
    if told is None or abs(coming.tokens - told) > NOISE * told:
        return None, coming
    call = next(c.index for c in reversed(session.calls) if c.message is reply)
    return call, PromptSize(told, "recorded")


def sizes_around(session: Session, first: int, last: int) -> SizesAround | None:
    """Return the prompts before and after a compaction of a live session: as billed where they were
    sent, else as they were estimated when it was made.

    What was said between a compaction and the next prompt counts to the one before, too, where it
    is more than noise; what was said before the compaction does so already.

    Args:
        session: it, or what was read of its log.
        first: place in its path of the compaction's first edit.
        last: place of its last edit.

    Returns:
        None where another program compacted, or the session is a replay: these say it themselves.
    """
    begun, ended = session.path[first], session.path[last]
    if not isinstance(begun, Edit) or not isinstance(ended, Edit) or not _is_live(session, begun):
        return None
    before, after = max(begun.tokens_before or 0, 0), max(ended.tokens_after or 0, 0)
    was, (then, since) = _reply_before(session, first), _reply_after(session, last)
    if then is None or (was is not None and was.model != then.model):
        return SizesAround(before, after, "estimated")
    after = billed_prompt(then) or 0
    more = _share(since, then)
    if more > NOISE * before:
        return SizesAround(before + more, after, "estimated")
    recorded = was is not None and before == billed_prompt(was)
    return SizesAround(before, after, "recorded" if recorded else "estimated")


def _is_size(reply: Message, base: int) -> bool:
    """Say whether the bill of a reply of a live session can be the size of its prompt, so that
    others can be scaled by it; `base`: tokens of the schemas, as counted.
    """
    told, counted = billed_prompt(reply), reply.details.get(COUNTED)
    return told is not None and told * LIKELY >= base + (counted or 0)


def _is_live(session: Session, edit: Edit) -> bool:
    """Say whether the kit compacted while the session ran."""
    replayed = session.format == "replay" or session.origin is not None
    return not replayed and edit.source == "derived" and "messages_before" in edit.details


def _reply_before(session: Session, place: int) -> Message | None:
    """Return the last billed reply before a place; None where a compaction came since."""
    for entry in reversed(session.path[:place]):
        if isinstance(entry, Edit):
            return None
        if entry.role == "assistant" and billed_prompt(entry) is not None:
            return entry
    return None


def _reply_after(session: Session, place: int) -> tuple[Message | None, list[Message]]:
    """Return the first billed reply after a place, and what was said before it; None where another
    compaction came first.
    """
    since: list[Message] = []
    for entry in session.path[place + 1 :]:
        if isinstance(entry, Edit):
            break
        if entry.role == "assistant" and billed_prompt(entry) is not None:
            return entry, since
        if entry.visible:
            since.append(entry)
    return None, since


def _share(messages: Sequence[Message], reply: Message) -> int:
    """Return what messages take of the prompt of a reply, as billed."""
    counted, told = reply.details.get(COUNTED), billed_prompt(reply)
    if not isinstance(counted, int) or not counted or told is None:
        return 0
    return min(round(told * sum(map(length, messages)) / counted), told)
