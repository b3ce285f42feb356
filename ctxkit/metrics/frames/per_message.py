"""The message frame (size, state, visibility) and the audience frame (who sees a message)."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.frames.frame_column import BOOL, INT, TEXT, TIME, FrameColumn
from ctxkit.metrics.message_token_counts import count_messages
from ctxkit.session.compactions_and_prunings import MessageFate, get_message_fates
from ctxkit.session.messages import EVENT_KINDS, USER_VISIBLE_KEY, Edit, Message, ToolCall
from ctxkit.session.tool_call_paths_and_descriptions import get_path_and_command, pair_with_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from ctxkit.metrics.message_token_counts import Count
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
_NO_TARGET = None, None
_HIDDEN, _SHOWN = MessageFate("hidden", None), MessageFate("shown", None)


def rows(sessions: Sequence[Session], count: Count = None) -> dict[str, list[Any]]:
    """Return the columns of the message frame as lists.

    Args:
        sessions: recorded sessions or replays.
        count: how tokens are counted, as `ctxkit.frame` takes it.

    Returns:
        One value per message and column, in the order of `COLUMNS`.
    """
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        _append_session(session, data, count)
    return data


def _append_session(session: Session, data: dict[str, list[Any]], count: Count) -> None:
    path, agent, turns = session.path, session.agent, session.turns
    messages = session.messages
    n = len(messages)
    positions = (
        [i for i, e in enumerate(path) if isinstance(e, Message)] if session.edits else range(n)
    )
    data["session"] += [session.id] * n
    data["position"] += positions
    data["id"] += [m.id for m in messages]
    data["ts"] += [m.time for m in messages]
    data["agent"] += [m.agent or agent for m in messages]
    data["turn"] += [turns[i] for i in positions]
    data["call"] += _number_calls(messages)
    data["role"] += [m.role for m in messages]
    data["kind"] += [m.kind or None for m in messages]
    tool_calls = [m.tool_calls if m.role == "assistant" else () for m in messages]
    data["tool"] += [
        m.tool or (_join_tool_names(a) if a else None)
        for m, a in zip(messages, tool_calls, strict=True)
    ]
    related_calls = [
        call or (a[0] if len(a) == 1 else None)
        for (_, call), a in zip(pair_with_calls(messages), tool_calls, strict=True)
    ]
    calls = {
        id(call): call for call in related_calls if call is not None
    }  # a reply and its result share one call
    target_of_call = {i: get_path_and_command(call) for i, call in calls.items()}
    targets = [target_of_call.get(id(call), _NO_TARGET) for call in related_calls]
    data["path"] += [path for path, _ in targets]
    data["command"] += [command for _, command in targets]
    data["is_error"] += [m.is_error for m in messages]
    data["pinned"] += [m.pinned for m in messages]
    sizes, sources, count_tokens = count_messages(session, count, data["chars"])
    data["tokens"] += sizes
    data["source"] += sources
    _append_states(session, sizes, count_tokens, data)


def _append_states(
    session: Session,
    sizes: list[int | None],
    count_tokens: Callable[[Message], int],
    data: dict[str, list[Any]],
) -> None:
    from ctxkit.engine.replay import find_prompt_source

    messages = session.messages
    edited, n = get_message_fates(session), len(messages)
    is_pruned = find_prompt_source(session) is not None
    if not edited and not is_pruned and all([m.visible for m in messages]):  # noqa: C419  faster here
        data["visible"] += [True] * n
        data["state"] += ["shown"] * n
        data["compaction"] += [None] * n
        data["reason"] += [None] * n
        data["pruned_by"] += [None] * n
        data["shown_tokens"] += sizes
        data["sent_tokens"] += _blank_after_last_reply(messages, sizes)
        return
    fates = _find_fates_at_call(session, None, edited)
    data["visible"] += [fate is None or fate.replacement is not None for fate in fates]
    data["state"] += ["shown" if fate is None else fate.state for fate in fates]
    data["compaction"] += [None if fate is None else fate.compaction for fate in fates]
    data["reason"] += [None if fate is None else fate.reason for fate in fates]
    data["pruned_by"] += [None if fate is None else fate.pruned_by for fate in fates]
    data["shown_tokens"] += _size_after_fates(sizes, fates, count_tokens)
    last_fates = (
        _find_fates_at_call(session, -1, _find_edited_before_last_call(session, edited))
        if session.calls
        else []
    )
    data["sent_tokens"] += (
        _blank_after_last_reply(messages, _size_after_fates(sizes, last_fates, count_tokens))
        if last_fates
        else [None] * n
    )


def _find_fates_at_call(
    session: Session, call: int | None, edited: dict[str, MessageFate]
) -> list[MessageFate | None]:
    """Return the fate of each message in the prompt of a call; None: it is shown as written.

    Args:
        session: the session.
        call: number of the call; None: the next prompt.
        edited: fates by id of the messages that edits before the call changed.
    """
    from ctxkit.engine.replay import find_prompt_source

    fates = [edited.get(m.id) if m.visible else _HIDDEN for m in session.messages]
    if find_prompt_source(session) is None:
        return fates
    rows = [i for i, m in enumerate(session.messages) if m.visible]
    for row, part in session.left_out(call).items():
        if 0 <= row < len(rows):
            fates[rows[row]] = _make_pruned_fate(fates[rows[row]], None, part)
    for item in session.sent(call):
        if not 0 <= item.row < len(rows):
            continue
        i = rows[item.row]
        fate = fates[i]
        if item.pruned:
            fates[i] = _make_pruned_fate(fate, item.message, item.changed_by)
        elif fate is not None and fate.replacement is None:  # removed and restored as it was
            fates[i] = None if item.changed_by is None else fate._replace(replacement=item.message)
    return fates


def _find_edited_before_last_call(
    session: Session, edited: dict[str, MessageFate]
) -> dict[str, MessageFate]:
    """Return the fates of the messages that edits before the last call changed."""
    edits_n = sum(isinstance(e, Edit) for e in session.path[: session.calls[-1].position])
    return edited if edits_n == len(session.edits) else get_message_fates(session, edits_n)


def _make_pruned_fate(
    fate: MessageFate | None, replacement: Message | None, by: str
) -> MessageFate:
    """Return the fate of a message that is pruned for a call, whatever compactions did to it."""
    fate_before = fate or _SHOWN
    return fate_before._replace(state="pruned", replacement=replacement, pruned_by=by)


def _size_after_fates(
    sizes: list[int | None], fates: list[MessageFate | None], count_tokens: Callable[[Message], int]
) -> list[int | None]:
    """Return the size of each message as it is shown."""
    return [
        size if fate is None else 0 if fate.replacement is None else count_tokens(fate.replacement)
        for size, fate in zip(sizes, fates, strict=True)
    ]


def _blank_after_last_reply(
    messages: tuple[Message, ...], sizes: list[int | None]
) -> list[int | None]:
    """Return the sizes of the messages before the last reply, and None for later ones."""
    last = max(_find_last_reply(messages), 0)
    return [*sizes[:last], *[None] * (len(messages) - last)]


def _number_calls(messages: tuple[Message, ...]) -> list[int | None]:
    """Return the number of replies before each message; None after the last reply."""
    last = _find_last_reply(messages)
    before = accumulate([m.role == "assistant" for m in messages], initial=0)
    return [*islice(before, last + 1), *[None] * (len(messages) - last - 1)]


def _find_last_reply(messages: tuple[Message, ...]) -> int:
    """Return the index of the last reply, or -1."""
    positions = reversed(range(len(messages)))
    return next((i for i in positions if messages[i].role == "assistant"), -1)


def _join_tool_names(calls: Sequence[ToolCall]) -> str | None:
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
    """Tabulate which messages the user sees and which the agent sees.

    The user sees all messages, also those that a compaction removed from the prompt, except what
    the log marks as hidden (ai's `userVisible`), such as a digest for the model alone.

    Args:
        session: a session, or a path or messages that can be read as one.

    Returns:
        One row per message or inserted text; `docs/frames.md` defines the columns `session
        position id role kind tool user_sees agent_sees chars text`.

    Example:
        >>> import ctxkit as ck
        >>> table = ck.metrics.audience(ck.samples.path("billing"))
        >>> bool(table["user_sees"].all()), bool(table["agent_sees"].all())
        (True, False)
    """
    view_by_id = {m.id: m for m in session.view()}
    rows = [
        (
            *(session.id, position, m.id or None, m.role, _kind_of(m, view_by_id), m.tool),
            *(m.details.get(USER_VISIBLE_KEY) is not False, view_by_id.get(m.id) == m),
            *(len(m.text), sanitize_line(m.text, 120)),
        )
        for position, m in _entries_with_position(session)
    ]
    from ctxkit.metrics.frames.typed_frame_builder import build_frame

    return build_frame(
        AUDIENCE_COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(AUDIENCE_COLUMNS)}
    )


def _kind_of(message: Message, view_by_id: Mapping[str, Message]) -> str | None:
    """Return the kind of a message; for a result without a recorded kind, by its fate."""
    if message.role != "tool" or message.kind:
        return message.kind or None
    return "tool_result" if view_by_id.get(message.id) == message else "tool_result_archived"


def _entries_with_position(session: Session) -> Iterator[tuple[int, Message]]:
    """Yield each message with its position; summaries have the position of their edit.

    Messages that an edit shortened are left out, because the user has seen the whole message.
    """
    for position, entry in enumerate(session.path):
        if isinstance(entry, Message):
            if entry.kind not in EVENT_KINDS:
                yield position, entry
        elif isinstance(entry, Edit) and entry.kind == "summarised":
            yield from ((position, m) for m in entry.inserted)
