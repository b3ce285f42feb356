"""The message frame (size, visibility, state of each message) and the audience frame (who sees
it).
"""

from __future__ import annotations

from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.frames.columns import BOOL, INT, TEXT, TIME, FrameColumn, build_frame
from ctxkit.metrics.frames.counting import count_messages
from ctxkit.metrics.recorded_compactions import MessageFate, get_message_fates
from ctxkit.session.messages import EVENT_KINDS, USER_VISIBLE_KEY, Edit, Message, ToolCall
from ctxkit.session.tool_calls import get_path_and_command, pair_with_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from ctxkit.metrics.frames.counting import Count
    from ctxkit.session.session import Session


COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("position", INT, "entries", "place among the session's messages and edits, from 0"),
    FrameColumn("id", TEXT, "", "id of the message, unique in its session"),
    FrameColumn("ts", TIME, "UTC", "when it was written"),
    FrameColumn("agent", TEXT, "", "who wrote it, or whose context it entered"),
    FrameColumn("turn", INT, "", "zero-based turn"),
    FrameColumn(
        "call",
        INT,
        "",
        "for a reply the call that wrote it; else the first call whose prompt held it, missing if"
        " none",
    ),
    FrameColumn("role", TEXT, "", "system, user, assistant, tool (a tool result) or summary"),
    FrameColumn(
        "kind",
        TEXT,
        "",
        "a finer word than the role, as the reader gives it; missing for plain messages",
    ),
    FrameColumn(
        "tool", TEXT, "", "tool of a result; the tools that a reply calls, joined by commas"
    ),
    FrameColumn(
        "path",
        TEXT,
        "",
        "the file that a tool was asked about, as the log writes it; of a reply where it asks one"
        " tool only",
    ),
    FrameColumn(
        "command", TEXT, "", "the command line that a tool was asked to run; of a reply as above"
    ),
    FrameColumn(
        "tokens", INT, "tokens", "size as it was written; missing where the log holds no content"
    ),
    FrameColumn(
        "chars",
        INT,
        "characters",
        "text, thinking, tool names and arguments; missing where the log holds no content",
    ),
    FrameColumn(
        "shown_tokens",
        INT,
        "tokens",
        "size of what the next call would be sent of it, if nothing more is compacted",
    ),
    FrameColumn(
        "sent_tokens",
        INT,
        "tokens",
        "size of what the last call of the session was sent of it: 0 where it was gone; missing"
        " where no call followed",
    ),
    FrameColumn(
        "pruned_by",
        TEXT,
        "",
        "the pruning that shortens it or leaves it out of the next call; the log keeps it",
    ),
    FrameColumn(
        "visible",
        BOOL,
        "",
        "True where the next call would still be sent it, as written or shortened",
    ),
    FrameColumn(
        "state",
        TEXT,
        "",
        "shown, hidden, dropped, shortened, replaced, summarised, or pruned for the call",
    ),
    FrameColumn("compaction", INT, "", "the compaction that changed its state, from 0"),
    FrameColumn("reason", TEXT, "", "why it is not shown as it was written"),
    FrameColumn("is_error", BOOL, "", "a tool result that reports failure, or a call that failed"),
    FrameColumn("pinned", BOOL, "", "True where no policy may remove it"),
    FrameColumn("source", TEXT, "", "where `tokens` comes from: recorded, derived or estimated"),
)
_NOTHING = None, None
_HIDDEN, _SHOWN = MessageFate("hidden", None), MessageFate("shown", None)


def rows(sessions: Sequence[Session], count: Count = None) -> dict[str, list[Any]]:
    """Return the columns of the message frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        _session(session, data, count)
    return data


def _session(session: Session, data: dict[str, list[Any]], count: Count) -> None:
    path, agent, turns = session.path, session.agent, session.turns
    messages = session.messages
    n = len(messages)
    where = [i for i, e in enumerate(path) if isinstance(e, Message)] if session.edits else range(n)
    data["session"] += [session.id] * n
    data["position"] += where
    data["id"] += [m.id for m in messages]
    data["ts"] += [m.time for m in messages]
    data["agent"] += [m.agent or agent for m in messages]
    data["turn"] += [turns[i] for i in where]
    data["call"] += _calls(messages)
    data["role"] += [m.role for m in messages]
    data["kind"] += [m.kind or None for m in messages]
    asks = [m.tool_calls if m.role == "assistant" else () for m in messages]
    data["tool"] += [
        m.tool or (_named(a) if a else None) for m, a in zip(messages, asks, strict=True)
    ]
    asked = [
        call or (a[0] if len(a) == 1 else None)
        for (_, call), a in zip(pair_with_calls(messages), asks, strict=True)
    ]
    calls = {id(call): call for call in asked if call is not None}  # a reply's is its result's
    known = {i: get_path_and_command(call) for i, call in calls.items()}
    told = [known.get(id(call), _NOTHING) for call in asked]
    data["path"] += [path for path, _ in told]
    data["command"] += [command for _, command in told]
    data["is_error"] += [m.is_error for m in messages]
    data["pinned"] += [m.pinned for m in messages]
    sizes, sources, of = count_messages(session, count, data["chars"])
    data["tokens"] += sizes
    data["source"] += sources
    _states(session, sizes, of, data)


def _states(
    session: Session,
    sizes: list[int | None],
    of: Callable[[Message], int],
    data: dict[str, list[Any]],
) -> None:
    messages = session.messages
    touched, n = get_message_fates(session), len(messages)
    if not touched and session.behind is None and all([m.visible for m in messages]):  # noqa: C419  faster here
        data["visible"] += [True] * n
        data["state"] += ["shown"] * n
        data["compaction"] += [None] * n
        data["reason"] += [None] * n
        data["pruned_by"] += [None] * n
        data["shown_tokens"] += sizes
        data["sent_tokens"] += _until(messages, sizes)
        return
    stands = _stands(session, None, touched)
    data["visible"] += [fate is None or fate.shown is not None for fate in stands]
    data["state"] += ["shown" if fate is None else fate.state for fate in stands]
    data["compaction"] += [None if fate is None else fate.compaction for fate in stands]
    data["reason"] += [None if fate is None else fate.reason for fate in stands]
    data["pruned_by"] += [None if fate is None else fate.pruned_by for fate in stands]
    data["shown_tokens"] += _left(sizes, stands, of)
    then = _stands(session, -1, _touched_at_last(session, touched)) if session.calls else []
    data["sent_tokens"] += _until(messages, _left(sizes, then, of)) if then else [None] * n


def _stands(
    session: Session, call: int | None, touched: dict[str, MessageFate]
) -> list[MessageFate | None]:
    """Return what stands for each message in the prompt of a call (None: the next), where the
    edits before it touched these; None: it does.
    """
    stands = [touched.get(m.id) if m.visible else _HIDDEN for m in session.messages]
    if session.behind is None:
        return stands
    rows = [i for i, m in enumerate(session.messages) if m.visible]
    for row, part in session.left_out(call).items():
        if 0 <= row < len(rows):
            stands[rows[row]] = _pruned(stands[rows[row]], None, part)
    for item in session.sent(call):
        if not 0 <= item.row < len(rows):
            continue
        i = rows[item.row]
        fate = stands[i]
        if item.pruned:
            stands[i] = _pruned(fate, item.message, item.changed_by)
        elif fate is not None and fate.shown is None:  # taken out and put in again as it was
            stands[i] = None if item.changed_by is None else fate._replace(shown=item.message)
    return stands


def _touched_at_last(session: Session, touched: dict[str, MessageFate]) -> dict[str, MessageFate]:
    """Return what the edits before the last call touched, of what all of them did."""
    edits = sum(isinstance(e, Edit) for e in session.path[: session.calls[-1].position])
    return touched if edits == len(session.edits) else get_message_fates(session, edits)


def _pruned(fate: MessageFate | None, shown: Message | None, by: str) -> MessageFate:
    """Return the fate of a message pruned for a call, whatever compactions made of it."""
    was = fate or _SHOWN
    return was._replace(state="pruned", shown=shown, pruned_by=by)


def _left(
    sizes: list[int | None], stands: list[MessageFate | None], of: Callable[[Message], int]
) -> list[int | None]:
    """Return the size of what stands for each message."""
    return [
        size if fate is None else 0 if fate.shown is None else of(fate.shown)
        for size, fate in zip(sizes, stands, strict=True)
    ]


def _until(messages: tuple[Message, ...], sizes: list[int | None]) -> list[int | None]:
    """Return the sizes of all before the last reply; what no call followed is missing."""
    last = max(_last_reply(messages), 0)
    return [*sizes[:last], *[None] * (len(messages) - last)]


def _calls(messages: tuple[Message, ...]) -> list[int | None]:
    """Return how many replies stand before each; what follows the last one was seen by no call."""
    last = _last_reply(messages)
    before = accumulate([m.role == "assistant" for m in messages], initial=0)
    return [*islice(before, last + 1), *[None] * (len(messages) - last - 1)]


def _last_reply(messages: tuple[Message, ...]) -> int:
    """Return the place of the last reply; -1: there is none."""
    places = reversed(range(len(messages)))
    return next((i for i in places if messages[i].role == "assistant"), -1)


def _named(calls: Sequence[ToolCall]) -> str | None:
    if len(calls) == 1:
        return calls[0].name
    return ", ".join(dict.fromkeys([call.name for call in calls])) or None


AUDIENCE_COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("position", INT, "entries", "place among the session's messages and edits"),
    FrameColumn("id", TEXT, "", "id of the message"),
    FrameColumn("role", TEXT, "", "system, user, assistant, tool or summary"),
    FrameColumn("kind", TEXT, "", "a finer word than the role"),
    FrameColumn("tool", TEXT, "", "tool of a result"),
    FrameColumn("user_sees", BOOL, "", "whether the user is shown it"),
    FrameColumn("agent_sees", BOOL, "", "whether the next prompt holds it, as it stands here"),
    FrameColumn("chars", INT, "characters", "of its text"),
    FrameColumn("text", TEXT, "", "its beginning, in one line"),
)


@accepts_session
def audience(session: Session) -> pd.DataFrame:
    """Return a row for each message that was said or put in: who sees it.

    The user sees what was said, also where a compaction or an archive took it from the model; not
    seen is what a log marks so (ai's `userVisible`), such as a digest that is for the model alone.

    Args:
        session: a session, or what can be read as one.
    """
    shown = {m.id: m for m in session.view()}
    rows = [
        (
            *(session.id, position, m.id or None, m.role, m.kind or None, m.tool),
            *(m.details.get(USER_VISIBLE_KEY) is not False, shown.get(m.id) == m),
            *(len(m.text), sanitize_line(m.text, 120)),
        )
        for position, m in _entries_with_position(session)
    ]
    return build_frame(
        AUDIENCE_COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(AUDIENCE_COLUMNS)}
    )


def _entries_with_position(session: Session) -> Iterator[tuple[int, Message]]:
    """Yield each message with its place, those that edits brought at the place of the edit.

    What an edit leaves of a message is not said again: the user has seen it whole.
    """
    for position, entry in enumerate(session.path):
        if isinstance(entry, Message):
            if entry.kind not in EVENT_KINDS:
                yield position, entry
        elif isinstance(entry, Edit) and entry.kind == "summarised":
            yield from ((position, m) for m in entry.inserted)
