"""One row a message: what it is, how large, and whether a model still sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.frames.columns import BOOL, INT, TEXT, TIME, Column
from ctxkit.frames.counts import counting
from ctxkit.frames.fates import Fate, fates
from ctxkit.messages import Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.frames.counts import Count
    from ctxkit.session import Session

COLUMNS = (
    Column("session", TEXT, "", "id of the session"),
    Column("position", INT, "entries", "place among the session's messages and edits, from 0"),
    Column("id", TEXT, "", "id of the message, unique in its session"),
    Column("ts", TIME, "UTC", "when it was written"),
    Column("agent", TEXT, "", "who wrote it, or whose context it entered"),
    Column("turn", INT, "", "zero-based turn"),
    Column(
        "call", INT, "", "for a reply the call that wrote it; else the first call whose prompt held it, missing if none"
    ),
    Column("role", TEXT, "", "system, user, assistant, tool (a tool result) or summary"),
    Column("kind", TEXT, "", "a finer word than the role, as the reader gives it; missing for plain messages"),
    Column("tool", TEXT, "", "tool of a result; the tools that a reply calls, joined by commas"),
    Column("tokens", INT, "tokens", "size as it was written; missing where the log holds no content"),
    Column(
        "chars", INT, "characters", "text, thinking, tool names and arguments; missing where the log holds no content"
    ),
    Column("shown_tokens", INT, "tokens", "size of what a model is shown of it now: 0 where it is gone"),
    Column("visible", BOOL, "", "True where a model is still shown it, as written or shortened"),
    Column("state", TEXT, "", "shown, hidden, dropped, shortened, replaced or summarised"),
    Column("compaction", INT, "", "the compaction that changed its state, from 0"),
    Column("reason", TEXT, "", "why it is not shown as it was written"),
    Column("is_error", BOOL, "", "a tool result that reports failure, or a call that failed"),
    Column("pinned", BOOL, "", "True where no policy may remove it"),
    Column("source", TEXT, "", "where `tokens` comes from: recorded, derived or estimated"),
)
_HIDDEN = Fate("hidden", None)


def rows(sessions: Sequence[Session], count: Count = None) -> dict[str, list[Any]]:
    """Return the columns of the message frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        _session(session, data, count)
    return data


def _session(session: Session, data: dict[str, list[Any]], count: Count) -> None:
    path, agent, turns = session.path, session.agent, session.turns
    where = [i for i, e in enumerate(path) if isinstance(e, Message)]
    messages = session.messages
    n = len(messages)
    data["session"] += [session.id] * n
    data["position"] += where
    data["id"] += [m.id for m in messages]
    data["ts"] += [m.time for m in messages]
    data["agent"] += [m.agent or agent for m in messages]
    data["turn"] += [turns[i] for i in where]
    data["call"] += _calls(messages)
    data["role"] += [m.role for m in messages]
    data["kind"] += [m.kind or None for m in messages]
    data["tool"] += [m.tool or (_called(m) if m.role == "assistant" and m.parts else None) for m in messages]
    data["is_error"] += [m.is_error for m in messages]
    data["pinned"] += [m.pinned for m in messages]
    sizes, sources, of = counting(session, count, data["chars"])
    data["tokens"] += sizes
    data["source"] += sources
    _states(session, sizes, of, data)


def _states(
    session: Session, sizes: list[int | None], of: Callable[[Message], int], data: dict[str, list[Any]]
) -> None:
    messages = session.messages
    touched, n = fates(session), len(messages)
    if not touched and all([m.visible for m in messages]):  # noqa: C419  a list is faster here
        data["visible"] += [True] * n
        data["state"] += ["shown"] * n
        data["compaction"] += [None] * n
        data["reason"] += [None] * n
        data["shown_tokens"] += sizes
        return
    stands = [touched.get(m.id) if m.visible else _HIDDEN for m in messages]
    data["visible"] += [fate is None or fate.shown is not None for fate in stands]
    data["state"] += ["shown" if fate is None else fate.state for fate in stands]
    data["compaction"] += [None if fate is None else fate.compaction for fate in stands]
    data["reason"] += [None if fate is None else fate.reason for fate in stands]
    data["shown_tokens"] += [
        size if fate is None else 0 if fate.shown is None else of(fate.shown)
        for size, fate in zip(sizes, stands, strict=True)
    ]


def _calls(messages: tuple[Message, ...]) -> list[int | None]:
    out: list[int | None] = []
    call = 0
    for m in messages:
        out.append(call)
        if m.role == "assistant":
            call += 1
    for i in range(len(out) - 1, -1, -1):  # what follows the last reply was seen by no call
        if messages[i].role == "assistant":
            break
        out[i] = None
    return out


def _called(message: Message) -> str | None:
    names = [part.name for part in message.parts if type(part) is ToolCall]
    return names[0] if len(names) == 1 else ", ".join(dict.fromkeys(names)) or None
