"""Readable names of sessions: title, first words of the user, project and day."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.session import Session

_PLACEHOLDER = re.compile(r"(?i)(new|untitled)\s+(session|chat|conversation)\b.*|[\W_]*")
"""Placeholder titles that programs give before there is a real one."""
_TAGGED = re.compile(r"(?s)\s*<([A-Za-z][\w-]{0,60})\b[^>]{0,200}>.*?</\1>")
_TAG = re.compile(r"</?[A-Za-z][\w-]{0,60}\b[^>]{0,200}>")
_MAX_CHARS, _MAX_PROMPTS = 20_000, 20
_LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, in seconds since 1970."""


def get_title(session: Session, limit: int = 60) -> str:
    """Return a readable name of a session, in one line of at most `limit` characters; not escaped.

    This is its title, else the first words of its first prompt, else its project and day, else its
    id and day.

    Args:
        session: any session.
        limit: maximal length in characters; a longer name ends with an ellipsis.

    Returns:
        One line without control characters. Escape it before it is put into HTML.

    Example:
        >>> import ctxkit as ck
        >>> len(get_title(ck.read(ck.samples.path("chat")), limit=20)) <= 20
        True
    """
    title = sanitize_line(session.title or "", limit)
    if title and not _PLACEHOLDER.fullmatch(title):
        return title
    words = get_first_words(session, limit)
    if words:
        return words
    origin = get_project_name(session) or title or session.id
    name = " ".join(filter(None, (origin, get_start_day(session))))
    return sanitize_line(name or "a session without a name", limit)


def get_first_words(session: Session, limit: int = 60) -> str:
    """Return the first words of the user's first readable prompt; empty where there is none.

    Args:
        session: only its first readable user messages are searched.
        limit: maximal characters of the words.
    """
    prompts = [m for m in session.messages if m.role == "user" and not m.kind and m.visible]
    prompts = prompts[:_MAX_PROMPTS]
    for message in prompts:
        text = message.text[:_MAX_CHARS]
        while tagged := _TAGGED.match(text):  # blocks that a program puts before the user's words
            text = text[tagged.end() :]
        if words := _readable_words(text, limit):
            return words
    return next(filter(None, (_readable_words(m.text[:_MAX_CHARS], limit) for m in prompts)), "")


def get_first_prompts_by_turn(session: Session) -> dict[int, str]:
    """Return the first words of the user in each turn, each in one line; not escaped."""
    out: dict[int, str] = {}
    for entry, turn in zip(session.path, session.turns, strict=True):
        if isinstance(entry, Message) and entry.role == "user" and turn not in out:
            out[turn] = sanitize_line(entry.text, 400)
    return out


def _readable_words(text: str, limit: int) -> str:
    words = sanitize_line(_TAG.sub(" ", text).lstrip("#*`- \n"), limit)
    return words if any(c.isalnum() for c in words) else ""


def get_project_name(session: Session) -> str | None:
    """Return the last part of the agent's working folder; None where the log has none."""
    parts = [p for p in (session.cwd or "").replace("\\", "/").split("/") if p]
    return sanitize_line(parts[-1], 60) if parts else None


def get_start_time(session: Session) -> float | None:
    """Return when a session began, in seconds since 1970; None where its log has no time."""
    if session.started is not None:
        return session.started
    return min((m.time for m in session.messages if m.time is not None), default=None)


def get_start_day(session: Session) -> str | None:
    """Return the day a session began, UTC, as `2026-03-09`; None where its log has no time."""
    start = get_start_time(session)
    if start is None or not 0 <= start < _LAST_SECOND:
        return None
    return datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d")


def make_unique_titles(sessions: Iterable[Session]) -> list[str]:
    """Return a distinct readable name for each session.

    Args:
        sessions: sessions in the order in which equal titles are numbered.

    Returns:
        One title a session, as `get_title` gives it, with a number where it is not the first.

    Example:
        >>> import ctxkit as ck
        >>> chat = ck.read(ck.samples.path("chat"))
        >>> make_unique_titles([chat, chat])[1].endswith(" (2)")
        True
    """
    return make_names_unique(get_title(session, 60) for session in sessions)


def make_names_unique(names: Iterable[str]) -> list[str]:
    """Return distinct names: the second occurrence of a name becomes `name (2)`.

    Args:
        names: names in the order in which equal ones are numbered.

    Returns:
        As many names, in the same order; no two are equal.

    Example:
        >>> make_names_unique(["pi", "fased", "pi"])
        ['pi', 'fased', 'pi (2)']
    """
    unique: dict[str, None] = {}
    used: dict[str, int] = {}  # the last number that each name was given
    for name in names:
        candidate, n = name, used.get(name, 1)
        while candidate in unique:
            n += 1
            candidate = f"{name} ({n})"
        unique[candidate], used[name] = None, n
    return list(unique)
