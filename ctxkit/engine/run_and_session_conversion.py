"""Conversion of a session into the log of a run, and of a run's edits back into a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.engine.context_rules_run import RulesRun
from ctxkit.policies.history.message_log import MessageLog
from ctxkit.session.messages import Edit
from ctxkit.session.session import apply_edit
from ctxkit.tokens.live_prompt_sizes import (
    COUNTED_TOKENS_KEY,
    MAX_COUNT_PER_BILL,
    estimate_schema_tokens,
    get_billed_prompt,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.engine.run_segments_and_prompts import Compaction
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes
    from ctxkit.tokens.token_counters import TokenCounter

_replace = msgspec.structs.replace
_BETWEEN_CALLS = ("manual", "agent_requested", "length", "tool_summary")
"""Triggers of compactions that happen between two calls, not because of the coming one; so does
one for an overflow that a call reported, but not one for an overflow that the rules expect.
"""


# A recorded session becomes a log as if it had never been compacted: every message is a row, every
# reply opens a call, and recorded edits stand beside the log. Three sources of sizes, the first
# that applies: given ones, the usage known before each call, or counts anchored on recorded usage.
def make_log_from_session(
    session: Session,
    rules: Rules | None = None,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | Sequence[int] | None = None,
    recorded_calls: int = 0,
    last_usage: bool = False,
    anchored: MessageSizes | None = None,
) -> MessageLog:
    """Build the message log of a session; its recorded compactions are removed.

    Args:
        session: any session; its subagents are logs of their own.
        rules: their counter and estimator are used.
        tokens: one size a message of `session.messages`; None: sizes that are anchored on the
            recorded usage.
        fixed: tokens of each prompt that no message holds, one number or one a call; None: what the
            recorded usage gives.
        recorded_calls: in so many calls the fixed part changes as recorded, also where a compaction
            changed it, and what the record shows to be unsent (such as old reasoning) is
            subtracted. In later calls only another agent or model changes it, and all visible
            messages are sent, as no log says what would be unsent of another prompt.
        last_usage: give each prompt the size that was known before it was sent, and bill what the
            record billed beyond that; see `count_sizes_by_last_usage`.
        anchored: the session's sizes under the rules' counter, if they were measured already.

    Returns:
        The log: one row a message of `session.messages`, and the recorded compactions beside it.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> log = make_log_from_session(session)
        >>> len(log) == len(session.messages), log.calls == len(session.calls)
        (True, True)
    """
    from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes
    from ctxkit.tokens.token_counters import default_counter

    counter: TokenCounter = (rules.counter if rules else None) or default_counter()
    session = with_message_ids(session)
    fixed_parts: list[TokensOutsideMessages] | None = None
    if last_usage and tokens is None and fixed is None:
        tokens, fixed_parts = count_sizes_by_last_usage(session, counter)
    if tokens is not None:
        anchored = None
    elif anchored is None:
        anchored = measure_sizes(session, rules.counter if rules else None)
    log = MessageLog(counter, agent=session.agent, estimator=rules.estimator if rules else None)
    if anchored is not None:
        tokens = anchored.tokens
        inserted = [m for e in session.edits for m in e.inserted]
        size_of = {id(m): size for m, size in zip(inserted, anchored.inserted, strict=True)}
        log.recorded_size = lambda message: size_of.get(id(message))
        log.scale = (
            1.0 if anchored.plain_count_error is None else 1 / (1 + anchored.plain_count_error)
        )
        # sizes are looked up by identity, so the messages must live as long as the log
        log.memo["session"] = session
        log.memo["sizes"] = anchored
    assert tokens is not None  # noqa: S101  for the type checker
    if fixed_parts is None:
        fixed_parts = [
            TokensOutsideMessages(n) for n in _fixed_parts(session, anchored, fixed, recorded_calls)
        ]
    sizes, fixed_of_call, turns = iter(tokens), iter(fixed_parts), session.turns
    last_time: float | None = None
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            log.recorded.append((log.calls, entry))
            continue
        size = next(sizes)
        if entry.role == "assistant":
            part = next(fixed_of_call)
            log.open(estimate_call_start(entry, last_time), entry.agent, part.fixed)
            log.bill_extra(part.owed)
        log.append(entry, size, turn=turns[position])
        last_time = last_time if entry.time is None else entry.time
    return log


def with_recorded_calls(log: MessageLog, recorded_calls: int) -> MessageLog:
    """Return the log with another number of calls sized as recorded; it shares the rows.

    Args:
        log: a log with sizes that are anchored on the recorded usage; it keeps the result.
        recorded_calls: as `make_log_from_session` takes it.
    """
    logs: dict[int, MessageLog] = log.prompt_size_memo.setdefault("by recorded calls", {})
    if recorded_calls not in logs:
        fixed_parts = _choose_fixed_parts(log.memo["sizes"], recorded_calls)
        logs[recorded_calls] = log.with_fixed_parts(fixed_parts)
    return logs[recorded_calls]


def get_run_of_replay(session: Session) -> RulesRun | None:
    """Return the run behind a replay; None for other sessions and replays of other processes.

    Args:
        session: any session.

    Returns:
        The run that made the session in this process, or None.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> get_run_of_replay(session) is None, get_run_of_replay(ck.replay(session, "pi")) is None
        (True, False)
    """
    return session.prompt_source if isinstance(session.prompt_source, RulesRun) else None


class TokensOutsideMessages(NamedTuple):
    """The tokens of a call's prompt that no message holds."""

    fixed: int
    """Tokens that were known when the call was sent."""
    owed: int = 0
    """Tokens that it was billed beyond what was known; negative: that it was billed less."""


def count_sizes_by_last_usage(
    session: Session, counter: TokenCounter
) -> tuple[list[int], list[TokensOutsideMessages]]:
    """Return counted sizes of the messages, and for each call the fixed part known before it.

    A live session knows its prompts this way: the last bill plus a count of the messages since (as
    the estimates of ai and Pi do). At first, and after a compaction, it knows only the count with
    the tools' schemas, until the next bill. Where prunings or a trim sent less than the record
    shows, a live session's record has the counted tokens.

    Args:
        session: a session whose replies may have usage.
        counter: counts the messages since the last bill.

    Returns:
        (sizes, fixed parts): tokens of each of `session.messages`, and one `TokensOutsideMessages`
        a call.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> sizes, fixed = count_sizes_by_last_usage(session, ck.tokens.default_counter())
        >>> len(sizes) == len(session.messages), len(fixed) == len(session.calls)
        (True, True)
    """
    sizes = {id(m): counter.message(m) for m in session.messages}
    sizes |= {id(m): counter.message(m) for e in session.edits for m in e.inserted}
    # state: the visible messages and their total; `offset` is what the last bill was above the
    # count, `bill_offset` the same since the last compaction only
    visible: list[Message] = []
    tool_tokens = estimate_schema_tokens(session.tools)
    total, offset, bill_offset, parts, has_failed = 0, 0, 0, list[TokensOutsideMessages](), False
    for entry in session.path:
        if isinstance(entry, Edit):
            visible, bill_offset = apply_edit(visible, entry), 0
            is_after_failure = entry.trigger == "overflow" and has_failed
            # a compaction for a call still was decided by the offset of the last bill
            offset = 0 if is_after_failure or entry.trigger in _BETWEEN_CALLS else offset
            total = sum(sizes[id(m)] for m in visible)
            continue
        has_failed = entry.role == "assistant" and entry.error is not None
        if entry.role == "assistant":
            recorded_count = entry.details.get(COUNTED_TOKENS_KEY)
            count = recorded_count if isinstance(recorded_count, int) else total
            counted = tool_tokens + count
            expected = counted + offset
            owed = (get_billed_prompt(entry) or expected) - expected
            parts.append(TokensOutsideMessages(tool_tokens + offset, owed))
            offset = bill_offset = compute_billing_offset(entry, counted, bill_offset)
        if entry.visible:
            visible.append(entry)
            total += sizes[id(entry)]
    return [sizes[id(m)] for m in session.messages], parts


def compute_billing_offset(reply: Message, counted: int, default: int = 0) -> int:
    """Return the tokens by which the bill of a call exceeds its counted prompt.

    Args:
        reply: the reply of the call.
        counted: counted tokens of its prompt.
        default: what is returned where the reply has no bill, or one below 1 / `MAX_COUNT_PER_BILL`
            of the count, which cannot be the size of that prompt.

    Returns:
        Billed less counted tokens; below 0 where the count is too large.

    Example:
        >>> from ctxkit.session import Message, Usage
        >>> reply = Message(role="assistant", usage=Usage(input_tokens=5_200))
        >>> compute_billing_offset(reply, 5_000)
        200
    """
    billed = get_billed_prompt(reply)
    return default if not billed or billed < counted / MAX_COUNT_PER_BILL else billed - counted


def with_message_ids(session: Session) -> Session:
    """Return the session with a distinct id for every message; itself where all have one.

    Args:
        session: any session; formats without ids give messages the id `""`.

    Returns:
        The session, or a copy in which messages without an id, or with one that was used before,
        have a new one.

    Example:
        >>> import ctxkit as ck
        >>> session = with_message_ids(ck.read([{"role": "user", "content": "Hello"}] * 2))
        >>> len({message.id for message in session.messages})
        2
    """
    ids = {m.id for m in session.messages}
    if "" not in ids and len(ids) == len(session.messages):
        return session
    used: set[str] = set()
    log = []
    for n, entry in enumerate(session.log):
        if not isinstance(entry, Edit) and (not entry.id or entry.id in used):
            entry = _replace(entry, id=f"{entry.id or 'message'}#{n}")  # noqa: PLW2901
        used.add(entry.id)
        log.append(entry)
    return _replace(session, log=tuple(log))


def estimate_call_start(reply: Message, input_time: float | None) -> float | None:
    """Return when a call was sent, in seconds since 1970; None where no time is known.

    That is the time of the reply less its latency, else the time of the last input.

    Args:
        reply: the reply of the call.
        input_time: time of the last message before it that has one.

    Returns:
        Unix seconds, or None.

    Example:
        >>> from ctxkit.session import Message
        >>> estimate_call_start(Message(role="assistant", time=100.0, latency=4.0), 90.0)
        96.0
    """
    if reply.time is not None and reply.latency is not None:
        return reply.time - reply.latency
    if input_time is None or reply.time is None:
        return reply.time if input_time is None else input_time
    return min(input_time, reply.time)


def _fixed_parts(
    session: Session,
    anchored: MessageSizes | None,
    fixed: int | Sequence[int] | None,
    recorded_calls: int,
) -> list[int]:
    """Return the fixed part of each call's prompt."""
    if fixed is not None and not isinstance(fixed, int):
        return list(fixed)
    if fixed is not None or anchored is None or not anchored.fixed_at:
        return [fixed or 0] * len(session.calls)
    return _choose_fixed_parts(anchored, recorded_calls)


def _choose_fixed_parts(sizes: MessageSizes, recorded_calls: int) -> list[int]:
    """Return the fixed part of each call, in so many calls as recorded."""
    return [*sizes.unseen_at[:recorded_calls], *sizes.first_fixed_at[recorded_calls:]]


def interleave_edits(messages: Iterable[Message], run: RulesRun) -> Iterator[Message | Edit]:
    """Yield the messages with a run's edits, each before the reply of its call.

    Args:
        messages: the messages of the run's log.
        run: a run; its compactions become edits.

    Yields:
        The messages as they are; of a compaction before call c its edits, numbered and named after
        the rules, come just before the reply of c.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import run_replay
        >>> run = run_replay(ck.read(ck.samples.path("billing")), ck.policies.recorded_rules())
        >>> len(list(interleave_edits(run.log.messages, run))) > len(run.log.messages)
        True
    """
    log, name = run.log, run.rules.label
    before: dict[int, list[tuple[int, Compaction]]] = {}
    for n, compaction in enumerate(run.compactions):
        reply = log.replies[compaction.call] if compaction.call < log.calls else None
        if reply is None and compaction.call < log.calls and log.upto[compaction.call] < len(log):
            reply = log.messages[log.upto[compaction.call]]  # no reply came: the next message
        before.setdefault(0 if reply is None else id(reply), []).append((n, compaction))
    for message in messages:
        for n, compaction in before.get(id(message), ()):
            yield from _numbered_edits(name, n, compaction)
        yield message
    for n, compaction in before.get(0, ()):
        yield from _numbered_edits(name, n, compaction)


def _numbered_edits(name: str, n: int, compaction: Compaction) -> Iterator[Edit]:
    for i, edit in enumerate(compaction.edits):
        yield _replace(edit, id=f"{name}-{n}.{i}")
