"""What a session is called for a person: its title, first words, project and day."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ctxkit._internal.formatting import sanitize_line
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.session import Session

_PLACEHOLDER = re.compile(r"(?i)(new|untitled)\s+(session|chat|conversation)\b.*|[\W_]*")
"""Titles that programs give before they know one."""
_TAGGED = re.compile(r"(?s)\s*<([A-Za-z][\w-]{0,60})\b[^>]{0,200}>.*?</\1>")
_TAG = re.compile(r"</?[A-Za-z][\w-]{0,60}\b[^>]{0,200}>")
_CHARS, _ASKED = 20_000, 20
_LAST = 253_402_300_799


def title_of(session: Session, limit: int = 60) -> str:
    """Return what a session is called, in one line of at most `limit` characters; not escaped.

    Its title; else the first words of the first prompt; else its project and its day; else its id.
    """
    told = sanitize_line(session.title or "", limit)
    if told and not _PLACEHOLDER.fullmatch(told):
        return told
    asked = first_words(session, limit)
    if asked:
        return asked
    placed = " ".join(filter(None, (project_of(session), day_of(session))))
    return sanitize_line(placed or told or session.id or "a session without a name", limit)


def first_words(session: Session, limit: int = 60) -> str:
    """Return the beginning of what was asked first; empty where nothing readable was."""
    asked = [m for m in session.messages if m.role == "user" and not m.kind and m.visible][:_ASKED]
    for message in asked:
        text = message.text[:_CHARS]
        while found := _TAGGED.match(text):  # what a program puts before the words of a person
            text = text[found.end() :]
        if words := _words(text, limit):
            return words
    return next(filter(None, (_words(m.text[:_CHARS], limit) for m in asked)), "")


def first_prompts_by_turn(session: Session) -> dict[int, str]:
    """Return the first words of the user in each turn, in one line; not escaped."""
    out: dict[int, str] = {}
    for entry, turn in zip(session.path, session.turns, strict=True):
        if isinstance(entry, Message) and entry.role == "user" and turn not in out:
            out[turn] = sanitize_line(entry.text, 400)
    return out


def _words(text: str, limit: int) -> str:
    words = sanitize_line(_TAG.sub(" ", text).lstrip("#*`- \n"), limit)
    return words if any(c.isalnum() for c in words) else ""


def project_of(session: Session) -> str | None:
    """Return the last part of the folder that the agent worked in; None where not named."""
    parts = [p for p in (session.cwd or "").replace("\\", "/").split("/") if p]
    return sanitize_line(parts[-1], 60) if parts else None


def get_start_time(session: Session) -> float | None:
    """Return when a session began, in seconds since 1970; None where its log has no time."""
    if session.started is not None:
        return session.started
    return min((m.time for m in session.messages if m.time is not None), default=None)


def day_of(session: Session) -> str | None:
    """Return the day it began, UTC, as `2026-03-09`; None where its log has no time."""
    at = get_start_time(session)
    if at is None or not 0 <= at < _LAST:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def unique_titles(sessions: Iterable[Session]) -> list[str]:
    """Return what several sessions are called, each by a name of its own."""
    return make_names_unique(title_of(session, 60) for session in sessions)


def make_names_unique(names: Iterable[str]) -> list[str]:
    """Return names of which none stands twice; the second of a name becomes `name (2)`."""
    out: dict[str, None] = {}
    used: dict[str, int] = {}
    for name in names:
        own, n = name, used.get(name, 1)
        while own in out:
            n += 1
            own = f"{name} ({n})"
        out[own], used[name] = None, n
    return list(out)
