"""Messages of one prompt as they were sent, with sizes that add up to the billed prompt."""

# A record gives only its messages and the billed size of each prompt: `tokens.message_sizes` sizes
# the messages, and the difference is the part that is not in the log. For a run the engine knows
# everything that was sent and its counted size; where the provider billed the prompt, counts are
# scaled to the bill (largest remainder method, so that integers add up).

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.engine.replay import find_prompt_source
from ctxkit.metrics.prompt_composition import (
    apportion,
    get_recorded_prompt,
    get_run_prompt_size,
    has_recorded_prompt,
    is_live,
    measure_unlogged,
    separate_schemas,
)
from ctxkit.metrics.recorded_compactions import get_message_fates
from ctxkit.session.messages import Message, Provenance
from ctxkit.tokens.message_sizes import measure_sizes

if TYPE_CHECKING:
    from ctxkit.session.session import Session
    from ctxkit.tokens.counter_protocol import TokenCounter
    from ctxkit.tokens.message_sizes import MessageSizes

_FIXED_KIND = "fixed"
"""Kind of the item that stands for system prompt and tools outside messages."""


class SentMessage(NamedTuple):
    """A message as it was sent, with its size."""

    message: Message
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed."""
    source: Provenance
    position: int | None = None
    """Position of its original in `session.path`; None for an inserted message."""
    changed_by: str | None = None


class PromptContents(NamedTuple):
    """All contents of one prompt, in tokens."""

    messages: tuple[SentMessage, ...]
    visible: int
    """Tokens of the messages before they are scaled to the recorded prompt."""
    rest: int
    """Tokens that are not in the log."""
    schemas: list[int]
    """Tokens of each tool schema."""
    later: int
    """Tokens that are neither in the log nor in the first prompt."""
    excess: int
    """Tokens by which messages, schemas and rest exceed the prompt."""
    is_smaller_than_log: bool
    """True where the prompt had fewer tokens than the log shows."""
    prompt: int
    prompt_source: Provenance
    source: Provenance
    counter: str
    error: float | None


def get_prompt_contents(
    session: Session,
    index: int | None,
    counter: TokenCounter | None = None,
    sized: MessageSizes | None = None,
) -> PromptContents:
    """Return the contents of the prompt of a call.

    Args:
        session: any session.
        index: number of the call, from 0; None: the next prompt.
        counter: counts messages of a record where usage does not give their size.
        sized: the sizes of a record's messages; None: measured here.

    Returns:
        Messages with their sizes, schemas and the rest of the prompt, in tokens that add up to the
        billed prompt where there is a bill.
    """
    if find_prompt_source(session) is None:
        return _contents_of_record(session, index, sized or measure_sizes(session, counter))
    return _contents_of_run(session, index)


def _contents_of_record(session: Session, index: int | None, sized: MessageSizes) -> PromptContents:
    """Return a prompt of a record, with message sizes anchored on recorded usage."""
    sent = tuple(_sent_messages(session, index, sized))
    visible = sum(s.tokens for s in sent)
    rest, schemas, later = measure_unlogged(session, sized, index, visible)
    recorded, counted = (
        get_recorded_prompt(sized, index),
        visible + rest + later + sum(schemas),
    )
    source: Provenance = "derived" if has_recorded_prompt(session) else "estimated"
    return PromptContents(
        messages=sent,
        visible=visible,
        rest=rest,
        schemas=schemas,
        later=later,
        excess=0 if recorded is None else max(counted - recorded, 0),
        is_smaller_than_log=index is not None and bool(sized.unsent_at[index]),
        prompt=counted if recorded is None else recorded,
        prompt_source=source if recorded is None else "recorded",
        source=source,
        counter=sized.counter,
        error=sized.error,
    )


def _sent_messages(session: Session, index: int | None, sized: MessageSizes) -> list[SentMessage]:
    stop = len(session.path) if index is None else session.calls[index].position
    originals = _original_messages(session, stop)
    source_of = {id(m): s for m, s in zip(session.messages, sized.source, strict=True)}
    position_of = {id(e): i for i, e in enumerate(session.path)}
    sent = []
    for message in session.view(index):
        first, by = originals.get(id(message), (message, None))
        size, raw = sized.of(message), sized.of(first)
        sent.append(
            SentMessage(
                message,
                size,
                raw,
                source_of.get(id(message), "estimated"),
                position_of.get(id(first)),
                by,
            )
        )
    return sent


def _original_messages(session: Session, stop: int) -> dict[int, tuple[Message, str | None]]:
    """Return the original of each changed message and what changed it, by the message's `id()`."""
    if not session.edits:
        return {}
    edits_n = sum(not isinstance(e, Message) for e in session.path[:stop])
    by_id = {m.id: m for m in session.messages}
    return {
        id(f.replacement): (by_id[first], f.edit.method or f.state if f.edit else f.state)
        for first, f in get_message_fates(session, edits_n).items()
        if f.replacement is not None and first in by_id
    }


def _has_provider_usage(session: Session, index: int | None) -> bool:
    """Return True if the usage of a call is the provider's own, not modelled by a replay."""
    source = None if index is None else session.calls[index].message.details.get("usage_source")
    return source != "derived"


def _contents_of_run(session: Session, index: int | None) -> PromptContents:
    """Return a prompt of a run by its own sizes, scaled where the provider billed the prompt.

    Everything that a live session sent is known, so no tokens are "not in the log".
    """
    items = session.sent(index)
    positions = [i for i, e in enumerate(session.path) if isinstance(e, Message) and e.visible]
    messages = [i for i in items if i.message.kind != _FIXED_KIND]
    fixed = sum(i.tokens for i in items if i.message.kind == _FIXED_KIND)
    if is_live(session):
        fixed = session.prompt_source.schemas
    counted = fixed + sum(i.tokens for i in messages)
    size = get_run_prompt_size(session, index, counted)
    total, is_billed = size.tokens, size.source == "recorded"
    sizes = [max(fixed, 0), *(i.tokens for i in messages)]
    if total != counted:
        sizes = apportion(total, sizes)
    source: Provenance = "derived" if has_recorded_prompt(session) else "estimated"
    sent = []
    for item, tokens in zip(messages, sizes[1:], strict=True):
        raw = item.raw_tokens if total == counted else item.raw_tokens * total // max(counted, 1)
        is_unchanged = item.changed_by is None
        sent.append(
            SentMessage(
                message=item.message,
                tokens=tokens,
                raw_tokens=tokens if is_unchanged else raw,
                source=source if is_unchanged else "estimated",
                position=positions[item.row] if 0 <= item.row < len(positions) else None,
                changed_by=item.changed_by,
            )
        )
    rest, schemas = separate_schemas(session, sizes[0], is_whole=is_live(session))
    return PromptContents(
        messages=tuple(sent),
        visible=sum(sizes[1:]),
        rest=rest,
        schemas=schemas,
        later=0,
        excess=0 if is_billed else max(-fixed, 0),
        is_smaller_than_log=fixed < 0 and not is_billed,
        prompt=total,
        prompt_source="recorded" if is_billed and _has_provider_usage(session, index) else source,
        source=source,
        counter=find_prompt_source(session).counter,
        error=counted / total - 1 if counted and is_billed else None,
    )
