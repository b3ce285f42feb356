"""Messages of one prompt as they were sent, with sizes that add up to what was billed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.prompt_groups import (
    apportion,
    get_recorded_prompt,
    has_recorded_prompt,
    is_live,
    measure_unlogged,
    separate_schemas,
    size_of,
)
from ctxkit.metrics.recorded_compactions import get_message_fates
from ctxkit.session.messages import Message, Provenance
from ctxkit.tokens.sizes import measure_sizes

if TYPE_CHECKING:
    from ctxkit.session.session import Session
    from ctxkit.tokens.counters import TokenCounter
    from ctxkit.tokens.sizes import MessageSizes

_FIXED = "fixed"
"""The kind of the item that stands for what no message holds."""


class SentMessage(NamedTuple):
    """A message as it was sent."""

    message: Message
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed."""
    source: Provenance
    position: int | None = None
    """Place in `session.path` of what it was said as; None: it was put in."""
    changed_by: str | None = None


class PromptContents(NamedTuple):
    """All that one prompt held."""

    shown: tuple[SentMessage, ...]
    visible: int
    """Tokens of the messages, before they are scaled to what was recorded."""
    rest: int
    """Tokens that no log shows."""
    schemas: list[int]
    later: int
    excess: int
    """Tokens by which the messages, the schemas and the rest are more than the prompt."""
    fell: bool
    """True where what was counted was not sent."""
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
    """Return what the prompt of a call held.

    Args:
        session: any session.
        index: number of the call, from 0; None: the prompt that comes next.
        counter: counts of a record what usage does not tell.
        sized: the sizes of a record, where they are known already.
    """
    if session.behind is None:
        return _contents_of_record(session, index, sized or measure_sizes(session, counter))
    return _contents_of_run(session, index)


def _contents_of_record(session: Session, index: int | None, sized: MessageSizes) -> PromptContents:
    """Return a prompt of a record: what its view shows, sized by the usage that it recorded."""
    shown = tuple(_sent_messages(session, index, sized))
    visible = sum(s.tokens for s in shown)
    rest, schemas, later = measure_unlogged(session, sized, index, visible)
    recorded, whole = (
        get_recorded_prompt(session, sized, index),
        visible + rest + later + sum(schemas),
    )
    source: Provenance = "derived" if has_recorded_prompt(session) else "estimated"
    return PromptContents(
        shown=shown,
        visible=visible,
        rest=rest,
        schemas=schemas,
        later=later,
        excess=0 if recorded is None else max(whole - recorded, 0),
        fell=index is not None and bool(sized.unsent_at[index]),
        prompt=whole if recorded is None else recorded,
        prompt_source=source if recorded is None else "recorded",
        source=source,
        counter=sized.counter,
        error=sized.error,
    )


def _sent_messages(session: Session, index: int | None, sized: MessageSizes) -> list[SentMessage]:
    stop = len(session.path) if index is None else session.calls[index].position
    said = _original_messages(session, stop)
    source = {id(m): s for m, s in zip(session.messages, sized.source, strict=True)}
    place = {id(e): i for i, e in enumerate(session.path)}
    out = []
    for message in session.view(index):
        first, by = said.get(id(message), (message, None))
        size, raw = sized.of(message), sized.of(first)
        out.append(
            SentMessage(
                message, size, raw, source.get(id(message), "estimated"), place.get(id(first)), by
            )
        )
    return out


def _original_messages(session: Session, stop: int) -> dict[int, tuple[Message, str | None]]:
    """By identity of a changed message in view: as it was said, and the edit that changed it."""
    if not session.edits:
        return {}
    upto = sum(not isinstance(e, Message) for e in session.path[:stop])
    by_id = {m.id: m for m in session.messages}
    return {
        id(f.shown): (by_id[first], f.edit.method or f.state if f.edit else f.state)
        for first, f in get_message_fates(session, upto).items()
        if f.shown is not None and first in by_id
    }


def _has_provider_usage(session: Session, index: int | None) -> bool:
    """Return True where the usage of a call is the provider's own, not a replay's model of it."""
    said = None if index is None else session.calls[index].message.details.get("usage_source")
    return said != "derived"


def _contents_of_run(session: Session, index: int | None) -> PromptContents:
    """Return a prompt of a run: what went out, by the run's own sizes; scaled where it was billed.

    Of a replay the run's size is the prompt. Of a live session it is a count, that the bill of the
    provider scales: all that was sent is known, so nothing is left over for "not in the log".
    """
    items = session.sent(index)
    places = [i for i, e in enumerate(session.path) if isinstance(e, Message) and e.visible]
    messages = [i for i in items if i.message.kind != _FIXED]
    fixed = sum(i.tokens for i in items if i.message.kind == _FIXED)
    if is_live(session):
        fixed = session.behind.schemas
    counted = fixed + sum(i.tokens for i in messages)
    size = size_of(session, index, counted)
    whole, is_billed = size.tokens, size.source == "recorded"
    parts = [max(fixed, 0), *(i.tokens for i in messages)]
    if whole != counted:
        parts = apportion(whole, parts)
    source: Provenance = "derived" if has_recorded_prompt(session) else "estimated"
    shown = []
    for item, tokens in zip(messages, parts[1:], strict=True):
        raw = item.raw_tokens if whole == counted else item.raw_tokens * whole // max(counted, 1)
        same = item.changed_by is None
        shown.append(
            SentMessage(
                message=item.message,
                tokens=tokens,
                raw_tokens=tokens if same else raw,
                source=source if same else "estimated",
                position=places[item.row] if 0 <= item.row < len(places) else None,
                changed_by=item.changed_by,
            )
        )
    rest, schemas = separate_schemas(session, parts[0], is_whole=is_live(session))
    return PromptContents(
        shown=tuple(shown),
        visible=sum(parts[1:]),
        rest=rest,
        schemas=schemas,
        later=0,
        excess=0 if is_billed else max(-fixed, 0),
        fell=fixed < 0 and not is_billed,
        prompt=whole,
        prompt_source="recorded" if is_billed and _has_provider_usage(session, index) else source,
        source=source,
        counter=session.behind.counter,
        error=counted / whole - 1 if counted and is_billed else None,
    )
