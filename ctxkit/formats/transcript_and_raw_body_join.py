"""Joining of raw request bodies with the transcript of the same session."""

# Bodies have each whole prompt. A transcript has the time of each message, which of them the
# program made, and why it compacted.

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.claude_code_attachments import REMINDER_PREFIX, SUMMARY_PREFIX
from ctxkit.session.messages import (
    EVENT_KINDS,
    WHOLE_PROMPTS_KEY,
    Edit,
    Fault,
    Message,
    ToolCall,
    get_plain_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.session import LogEntry, Session

# The bodies' log is the base, as it has every prompt. Each of its messages is paired with a partner
# in the transcript: by the ids of tool calls and results, which both have, else by its text, equal
# texts in file order. The partner supplies what the body lacks: time, kind, and usage if no
# response was written. Compactions are paired by the text of the summary, else by order. Events
# (refused calls) are inserted after the partner of the message before them. A fault counts the
# calls without a partner; nothing is removed.
_PIECE_END = "</system-reminder>"
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL)
_PROBE_CHARS = 200
"""Characters of a summary by which it is found in a later prompt."""


def join_transcript(session: Session, transcript: Session) -> Session:
    """Add to a session of raw bodies what only the transcript of the same session has.

    Args:
        session: a session read from raw request and response bodies.
        transcript: the transcript that the program wrote of it.

    Returns:
        The session of the bodies with times, kinds, compactions, events, title and folder of the
        transcript, and its subagents; faults count the calls that only one of the two has.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.formats.transcript_and_raw_body_join import join_transcript
        >>> billing = ck.read(ck.samples.path("billing"))
        >>> joined = join_transcript(billing, billing)
        >>> len(joined.calls) == len(billing.calls)
        True
    """
    partners = _Partners(transcript)
    log: list[LogEntry] = []
    positions: dict[int, int] = {}
    """Index in the log of the partner of each of the transcript's messages, by `id()`."""
    n_unmatched = 0
    for entry in session.log:
        if isinstance(entry, Message):
            partner = partners.pop_partner(entry)
            if partner is None:
                n_unmatched += entry.role == "assistant"
                log.append(entry)
                continue
            positions[id(partner)] = len(log)
            log.append(_add_fields(entry, partner))
        else:
            log.append(_add_compaction(entry, partners))
    log = _insert_events(log, transcript.path, positions)
    missing = [c.message for c in transcript.calls if id(c.message) not in positions]
    return msgspec.structs.replace(
        session,
        log=tuple(log),
        children=_join_children(session.children, transcript.children),
        faults=(*session.faults, *transcript.faults, *_list_unmatched_calls(n_unmatched, missing)),
        skipped={**transcript.skipped, **session.skipped},
        title=session.title or transcript.title,
        cwd=transcript.cwd,
        product=transcript.product,
        version=transcript.version or session.version,
        started=transcript.started,
        details={**transcript.details, **session.details},
    )


def join_transcripts_with_raw_bodies(sessions: Sequence[Session]) -> list[Session]:
    """Join the sessions of raw bodies among some with the transcripts of the same id.

    Returns:
        The sessions in their order, without the transcripts that were joined.
    """
    transcripts: dict[str, Session] = {}
    for session in sessions:
        if session.format == "claude-code" and session.parent is None:
            transcripts.setdefault(session.id, session)
    joined: set[int] = set()
    out: dict[int, Session] = {}
    for i, session in enumerate(sessions):
        transcript = transcripts.get(session.id)
        is_bodies = session.format == "anthropic" and session.details.get(WHOLE_PROMPTS_KEY)
        if is_bodies and transcript is not None:
            out[i] = join_transcript(session, transcript)
            joined.add(id(transcript))
    return [out.get(i, s) for i, s in enumerate(sessions) if id(s) not in joined]


class _Partners:
    """The messages and compactions of a transcript, indexed by ids and texts."""

    def __init__(self, transcript: Session) -> None:
        self._by_id: dict[tuple[str, str], Message] = {}
        self._by_text: dict[tuple[str, str], deque[Message]] = {}
        self.summaries: dict[str, Edit] = {}
        """Compactions by the text of their summary."""
        self.compactions = deque[Edit]()
        for entry in transcript.path:
            if isinstance(entry, Edit):
                self._add_edit(entry)
            else:
                self._add_message(entry)

    def _add_edit(self, edit: Edit) -> None:
        if edit.kind == "summarised":
            self.compactions.append(edit)
            for message in edit.inserted:
                if text := get_plain_text(message).strip():
                    self.summaries.setdefault(text, edit)

    def _add_message(self, message: Message) -> None:
        for key in _id_keys(message):
            self._by_id.setdefault(key, message)
        text = get_plain_text(message).strip()
        inner = [p.strip() for p in text.split(_PIECE_END)[:-1]]
        wrapped = (f"{p}{_PIECE_END}" for p in inner)
        bare = (p.removeprefix(REMINDER_PREFIX).strip() for p in inner)
        for piece in {text, *wrapped, *bare} - {""}:
            self._by_text.setdefault((_get_side(message), piece), deque()).append(message)

    def pop_partner(self, message: Message) -> Message | None:
        """Return the partner of a message of the bodies; one paired by its text is removed."""
        for key in _id_keys(message):
            if key in self._by_id:
                return self._by_id[key]
        same = self._by_text.get((_get_side(message), get_plain_text(message).strip()))
        return same.popleft() if same else None


def _id_keys(message: Message) -> list[tuple[str, str]]:
    if message.role == "tool":
        return [("result", message.call_id)] if message.call_id else []
    return [("call", call.id) for call in message.tool_calls if call.id]


def _get_side(message: Message) -> str:
    """Return who wrote a message: the model, or the program and its user."""
    return "model" if message.role == "assistant" else "program"


def _add_fields(message: Message, partner: Message) -> Message:
    """Return a message of the bodies with the fields that only its partner has."""
    is_reply = message.role == "assistant"
    return msgspec.structs.replace(
        message,
        time=partner.time if message.time is None else message.time,
        kind=partner.kind or message.kind,
        usage=message.usage or (partner.usage if is_reply else None),
        model=message.model or partner.model,
        stop=message.stop or partner.stop,
        details={**message.details, **partner.details},
    )


def _add_compaction(edit: Edit, partners: _Partners) -> Edit:
    """Return a compaction derived from requests as the transcript recorded it."""
    if not any(m.role == "summary" for m in edit.inserted):
        return edit
    texts = (get_plain_text(m).strip() for m in edit.inserted)
    recorded = next((partners.summaries[t] for t in texts if t in partners.summaries), None)
    if recorded is None and partners.compactions:
        recorded = partners.compactions[0]
    if recorded is None:
        return edit
    if recorded in partners.compactions:
        partners.compactions.remove(recorded)
    return msgspec.structs.replace(
        edit,
        trigger=recorded.trigger,
        method=recorded.method,
        time=recorded.time,
        tokens_before=recorded.tokens_before or edit.tokens_before,
        tokens_after=recorded.tokens_after or edit.tokens_after,
        usage=edit.usage or recorded.usage,
        source=recorded.source,
        reason=recorded.reason,
    )


def _insert_events(
    log: list[LogEntry], path: Iterable[LogEntry], positions: dict[int, int]
) -> list[LogEntry]:
    """Return the log with the transcript's events after the message that they followed."""
    events_after: dict[int, list[Message]] = {}
    at, number = -1, 0
    for entry in path:
        if not isinstance(entry, Message):
            continue
        if entry.role == "system" and entry.kind in EVENT_KINDS:
            event = msgspec.structs.replace(entry, id=f"event-{number}")
            events_after.setdefault(at, []).append(event)
            number += 1
        else:
            at = positions.get(id(entry), at)
    return [
        *events_after.get(-1, ()),
        *(e for i, entry in enumerate(log) for e in (entry, *events_after.get(i, ()))),
    ]


def _list_unmatched_calls(n_bodies: int, missing: Sequence[Message]) -> list[Fault]:
    """Return faults for the calls that only the bodies, or only the transcript, have."""
    faults = []
    if n_bodies:
        faults.append(Fault(0, f"{n_bodies} calls of the bodies are not in the transcript"))
    if missing:
        first = missing[0].id
        faults.append(
            Fault(0, f"{len(missing)} calls of the transcript have no body, first: {first}")
        )
    return faults


def _join_children(sides: Sequence[Session], subagents: Sequence[Session]) -> tuple[Session, ...]:
    """Return the side threads joined with the subagents whose messages they share, and the rest."""
    unmatched = {i: _find_marks(s) for i, s in enumerate(subagents)}
    children = []
    for side in sides:
        marks = _find_marks(side)
        shared = {i: len(marks & thread_marks) for i, thread_marks in unmatched.items()}
        best = max(shared, key=shared.__getitem__, default=None)
        if best is None or not shared[best]:
            children.append(side)
            continue
        del unmatched[best]
        subagent = subagents[best]
        children.append(
            msgspec.structs.replace(
                join_transcript(side, subagent),
                id=subagent.id,
                agent=subagent.agent,
                path_=subagent.path_,
            )
        )
    return (*children, *(subagents[i] for i in unmatched))


def _find_marks(session: Session) -> set[Any]:
    """Return what identifies a conversation: ids of its calls, and its first prompt."""
    calls = {p.id for m in session.messages for p in m.parts if type(p) is ToolCall}
    first = next((m for m in session.messages if m.role == "user" and not m.kind), None)
    return calls | ({get_plain_text(first).strip()} if first else set())


def mark_compactions(
    entries: Iterable[LogEntry], summary_replies: Sequence[Message]
) -> list[LogEntry]:
    """Mark the compactions of a client among the edits derived from its requests.

    Args:
        entries: a log of raw bodies; a message that begins like a summary becomes one.
        summary_replies: replies of the calls that wrote summaries, which are no calls of the log.

    Returns:
        The log, whose compactions have the usage of the call that wrote their summary.
    """
    unused_replies = list(summary_replies)
    return [_mark_compaction(e, unused_replies) if isinstance(e, Edit) else e for e in entries]


def _mark_compaction(edit: Edit, summary_replies: list[Message]) -> Edit:
    inserted = tuple(
        msgspec.structs.replace(m, role="summary")
        if m.role == "user" and get_plain_text(m).startswith(SUMMARY_PREFIX)
        else m
        for m in edit.inserted
    )
    summary = next((m for m in inserted if m.role == "summary"), None)
    if summary is None or edit.method != "request":
        return edit
    text = get_plain_text(summary)
    reply = next((r for r in summary_replies if _make_probe(r) in text), None)
    if reply is None:
        return msgspec.structs.replace(edit, inserted=inserted)
    summary_replies.remove(reply)
    usage = reply.usage
    return msgspec.structs.replace(
        edit,
        inserted=inserted,
        usage=usage,
        model=reply.model,
        time=reply.time,
        tokens_before=usage.prompt_tokens if usage else None,
    )


def _make_probe(reply: Message) -> str:
    text = get_plain_text(reply)
    match = _SUMMARY.search(text)
    return (match[1] if match else text).strip()[:_PROBE_CHARS] or text or "\0"
