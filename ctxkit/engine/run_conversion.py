"""From a session to the log that a run works on, and a run's edits woven back into its messages."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.engine.runs import Run
from ctxkit.policies.history.log import MessageLog
from ctxkit.session.messages import Edit
from ctxkit.session.session import apply_edit
from ctxkit.tokens.live_prompt_sizes import COUNTED, LIKELY, billed_prompt, schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.engine.segments import Compaction
    from ctxkit.policies.rules import Rules
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session
    from ctxkit.tokens.counters import TokenCounter
    from ctxkit.tokens.sizes import MessageSizes

_replace = msgspec.structs.replace
_BETWEEN_CALLS = ("manual", "agent_requested", "overflow", "length")
"""Triggers of compactions that were made between two calls, not for one."""


def log_from_session(
    session: Session,
    rules: Rules | None = None,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | Sequence[int] | None = None,
    as_recorded: bool = False,
    last_usage: bool = False,
    anchored: MessageSizes | None = None,
) -> MessageLog:
    """Return the log of what was said in a session; recorded compactions are lifted out of it.

    Args:
        session: any session; its subagents are logs of their own.
        rules: their counter and estimator are used.
        tokens: one size a message of `session.messages`; None: the sizes anchored on recorded
            usage.
        fixed: tokens of each prompt that no message holds, for all calls or each; None: as far as
            recorded usage tells.
        as_recorded: let the fixed part change at each call as recorded, also where a compaction
            changed it, and leave out what the record shows to have gone unsent (old reasoning, for
            one); else only an agent or a model changes it, and all that is shown is sent: what
            would have gone unsent of another view, no log says.
        last_usage: let each prompt have the size that was known before it was sent, and be billed
            what the record billed beside that: see `as_known`.
        anchored: the session's sizes under the rules' counter, where they are known.
    """
    from ctxkit.tokens.registry import default_counter
    from ctxkit.tokens.sizes import measure_sizes

    counter: TokenCounter = (rules.counter if rules else None) or default_counter()
    session = with_message_ids(session)
    known: list[FixedPart] | None = None
    if last_usage and tokens is None and fixed is None:
        tokens, known = sizes_as_known(session, counter)
    if tokens is not None:
        anchored = None
    elif anchored is None:
        anchored = measure_sizes(session, counter)
    log = MessageLog(counter, agent=session.agent, estimator=rules.estimator if rules else None)
    if anchored is not None:
        tokens = anchored.tokens
        brought = [m for e in session.edits for m in e.inserted]
        sized = {id(m): size for m, size in zip(brought, anchored.inserted, strict=True)}
        log.known = lambda message: sized.get(id(message))
        log.scale = 1.0 if anchored.error is None else 1 / (1 + anchored.error)
        # sizes are found by identity: the messages must live as long as the log
        log.memo["session"] = session
    assert tokens is not None  # noqa: S101  for the type checker
    if known is None:
        known = [FixedPart(n) for n in _fixed_parts(session, anchored, fixed, as_recorded)]
    sizes_of, calls, turns, told = iter(tokens), iter(known), session.turns, None
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            log.recorded.append((log.calls, entry))
            continue
        size = next(sizes_of)
        if entry.role == "assistant":
            call = next(calls)
            log.open(call_start_time(entry, told), entry.agent, call.fixed)
            log.owe(call.owed)
        log.append(entry, size, turn=turns[position])
        told = told if entry.time is None else entry.time
    return log


def run_of_replay(session: Session) -> Run | None:
    """Return the run that a replay was made of, in the process that made it; None for any other."""
    return session.behind if isinstance(session.behind, Run) else None


class FixedPart(NamedTuple):
    """What of a call's prompt no message holds, as far as it was known when it was sent."""

    fixed: int
    owed: int = 0
    """Tokens that it was billed beside what was known."""


def sizes_as_known(session: Session, counter: TokenCounter) -> tuple[list[int], list[FixedPart]]:
    """Return plain sizes of the messages, and of each call what to add, as the usage before it
    tells.

    That is how a live session knows its prompts: the last bill and a count of what came since (as
    ai's and Pi's estimates have it); at first, and after a compaction, the count alone with the
    tools' schemas, until the next bill. Where prunings or a trim sent less than the record shows,
    a live session's record says what was counted.
    """
    sizes = {id(m): counter.message(m) for m in session.messages}
    sizes |= {id(m): counter.message(m) for e in session.edits for m in e.inserted}
    shown: list[Message] = []
    base = schemas(session.tools)
    total, more, before, out = 0, 0, 0, list[FixedPart]()
    for entry in session.path:
        if isinstance(entry, Edit):
            shown, before = apply_edit(shown, entry), 0
            more = 0 if entry.trigger in _BETWEEN_CALLS else more  # what it was decided by
            total = sum(sizes[id(m)] for m in shown)
            continue
        if entry.role == "assistant":
            said = entry.details.get(COUNTED)
            counted = base + (said if isinstance(said, int) else total)
            then, more = more, billing_offset(entry, counted, before)
            before = more
            out.append(
                FixedPart(base + then, (billed_prompt(entry) or counted + then) - counted - then)
            )
        if entry.visible:
            shown.append(entry)
            total += sizes[id(entry)]
    return [sizes[id(m)] for m in session.messages], out


def billing_offset(reply: Message, counted: int, before: int = 0) -> int:
    """Return by how much the bill of a call differs from its counted prompt; `before` where it says
    nothing.

    A bill of less than a quarter of the count is no size of that prompt.
    """
    told = billed_prompt(reply)
    return before if not told or told < counted / LIKELY else told - counted


def with_message_ids(session: Session) -> Session:
    """Return the session with an id of its own for every message: itself, where each has one."""
    seen = Tally(m.id for m in session.messages)
    if not seen[""] and len(seen) == len(session.messages):
        return session
    used: set[str] = set()
    log = []
    for n, entry in enumerate(session.log):
        if not isinstance(entry, Edit) and (not entry.id or entry.id in used):
            entry = _replace(entry, id=f"{entry.id or 'message'}#{n}")  # noqa: PLW2901
        used.add(entry.id)
        log.append(entry)
    return _replace(session, log=tuple(log))


def call_start_time(reply: Message, told: float | None) -> float | None:
    """Return when a call was sent, in seconds since 1970: its end less its latency, else when its
    input was written.

    Args:
        reply: what came back.
        told: the time of the last message before it that has one.
    """
    if reply.time is not None and reply.latency is not None:
        return reply.time - reply.latency
    if told is None or reply.time is None:
        return reply.time if told is None else told
    return min(told, reply.time)


def _fixed_parts(
    session: Session,
    anchored: MessageSizes | None,
    fixed: int | Sequence[int] | None,
    as_recorded: bool,
) -> list[int]:
    """Return the fixed part of each call's prompt."""
    if fixed is not None and not isinstance(fixed, int):
        return list(fixed)
    if fixed is not None or anchored is None or not anchored.fixed_at:
        return [fixed or 0] * len(session.calls)
    if as_recorded:
        return [n - unsent for n, unsent in zip(anchored.fixed_at, anchored.unsent_at, strict=True)]
    return list(anchored.begun)


def weave_edits(messages: Iterable[Message], done: Run) -> Iterator[Message | Edit]:
    """Yield what was said with a run's edits, each before the reply of the call that it was for."""
    log, name = done.log, done.rules.label
    before: dict[int, list[tuple[int, Compaction]]] = {}
    for n, cut in enumerate(done.cuts):
        reply = log.replies[cut.call] if cut.call < log.calls else None
        if reply is None and cut.call < log.calls and log.upto[cut.call] < len(log):
            reply = log.messages[log.upto[cut.call]]  # never answered: what was said next
        before.setdefault(0 if reply is None else id(reply), []).append((n, cut))
    for message in messages:
        for n, cut in before.get(id(message), ()):
            yield from _numbered_edits(name, n, cut)
        yield message
    for n, cut in before.get(0, ()):
        yield from _numbered_edits(name, n, cut)


def _numbered_edits(name: str, n: int, cut: Compaction) -> Iterator[Edit]:
    for i, edit in enumerate(cut.edits):
        yield _replace(edit, id=f"{name}-{n}.{i}")
