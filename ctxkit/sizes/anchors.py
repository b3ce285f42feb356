"""Where a log says how large a prompt was, and what was written since it last said so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.messages import Edit
from ctxkit.session import apply_edit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.messages import Message
    from ctxkit.session import Session
    from ctxkit.tokens.counters import Counter


TOOLS = "tools_digest"
"""Where a reply's `details` say that other tools are described from this call on, as
twelve digits.
"""


class Slots:
    """All messages of a session, and those that its edits inserted, each with its plain count."""

    def __init__(self, session: Session, counter: Counter) -> None:
        inserted = [m for e in session.edits for m in e.inserted]
        self.messages = list({id(m): m for m in (*session.messages, *inserted)}.values())
        self.index = {id(m): i for i, m in enumerate(self.messages)}
        self.raw = [counter.message(m) for m in self.messages]


class AnchorStep(msgspec.Struct):
    """A call with a usable prompt size, and what was written since the one before."""

    call: int
    agent: str
    prompt: int
    kind: str
    """`first`, `growth`, `edit` (something was edited since), `switch` (another model or other
    tools) or `drop` (it shrank)."""
    shown: list[int]
    """Slots of what was in the prompt; for `growth` only those written since the call before."""
    before: int = 0
    """Prompt of the call before."""


def steps_of(session: Session, slots: Slots) -> Iterator[AnchorStep]:
    """Walk the log once and yield its anchors, in order."""
    prompts, calls = _prompts(session), iter(session.calls)
    last: dict[str, tuple[int, int, str | None]] = {}
    since: dict[str, list[int]] = {}
    shown: list[Message] = []
    epoch = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            shown, epoch = apply_edit(shown, entry), epoch + 1
            continue
        if entry.role == "assistant":
            call = next(calls)
            prompt = prompts[call.index]
            if prompt is not None and not _bounces(
                session, prompts, call.index, last.get(call.agent), epoch
            ):
                before = last.get(call.agent)
                kind = _kind(before, prompt, epoch, entry)
                new = since[call.agent] if kind == "growth" else [slots.index[id(m)] for m in shown]
                yield AnchorStep(
                    call.index, call.agent, prompt, kind, new, before[0] if before else 0
                )
                last[call.agent], since[call.agent] = (prompt, epoch, entry.model), []
        if entry.visible:
            shown.append(entry)
            for new in since.values():
                new.append(slots.index[id(entry)])


def _prompts(session: Session) -> list[int | None]:
    """Prompt sizes that can be used: not those of calls that failed before they were billed."""
    known = (c.message.usage for c in session.calls)
    return [None if u is None else u.prompt_tokens or None for u in known]


def _kind(
    before: tuple[int, int, str | None] | None, prompt: int, epoch: int, reply: Message
) -> str:
    model = reply.model
    if before is None:
        return "first"
    if TOOLS in reply.details:
        return "switch"
    if before[1] != epoch:
        return "edit"
    if before[2] != model and before[2] and model:
        return "switch"
    return "drop" if prompt < before[0] else "growth"


def _bounces(
    session: Session,
    prompts: Sequence[int | None],
    index: int,
    before: tuple[int, int, str | None] | None,
    epoch: int,
) -> bool:
    """True where a prompt is smaller than the one before it and the next is not: a number that says
    nothing.
    """
    prompt = prompts[index]
    if before is None or before[1] != epoch or prompt is None or prompt >= before[0]:
        return False
    calls = session.calls
    following = (
        p
        for i in range(index + 1, len(calls))
        if (p := prompts[i]) and calls[i].agent == calls[index].agent
    )
    return next(following, 0) >= before[0]
