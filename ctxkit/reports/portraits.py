"""The display of a session, a replay and a list of sessions, in a notebook and in a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ctxkit.display.amounts import counted
from ctxkit.display.markup import NO_MATH, escape, line, noted
from ctxkit.display.sheets import COLUMNS, GREY, INK, padded
from ctxkit.frames import frame
from ctxkit.reports.glances import cuts_of, facts_of, origin, sessions_of, turns_of
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from ctxkit.readers.session_list import Sessions
    from ctxkit.session import Session

_FEW, _MANY, _LISTED = 10, 200, 100
"""Rows of turns and sessions in a terminal; turns and sessions in a page."""
_HIGH = 420
_BOX = "display:flex;flex-wrap:wrap;gap:6px 26px;margin:8px 0"
Bundle = dict[str, str]


def of_session(session: Session) -> Bundle:
    """Return the display of a session: its head, its turns, its compactions."""
    row = frame(session, per="session").iloc[0]
    facts = facts_of(session, row)
    return {"text/plain": _text(session, facts), "text/html": _html(session, facts)}


def of_sessions(sessions: Sessions) -> Bundle:
    """Return the display of a list of sessions: a row each, and what could not be read."""
    head, n = counted(len(sessions), "session"), len(sessions.failures)
    if n:
        head += f", {counted(n, 'file')} could not be read: .failed says which and why"
    few, many = sessions_of(sessions, _FEW), sessions_of(sessions, _LISTED)
    lines = [head, *filter(None, ("", few.to_text(), few.legend))] if sessions else [head]
    html = (
        f'<div class="{NO_MATH}"'
        f' style="{INK}"><strong>{escape(head)}</strong>'
        f"{many.to_html(high=_HIGH, sorts=False)}</div>"
    )
    return {"text/plain": "\n".join(lines), "text/html": html}


def _text(session: Session, facts: list[tuple[str, str]]) -> str:
    out = [padded(title_of(session, COLUMNS), COLUMNS).rstrip()]
    out += _wrapped(" · ".join(origin(session)))
    out += _wrapped(" · ".join(f"{name} {value}" for name, value in dict(facts).items()))
    out += [row for note in session.notes for row in _wrapped(f"Note: {line(note, 400)}")]
    cuts, turns = cuts_of(session, _FEW), turns_of(session, _FEW)
    for table in (turns, cuts):
        if table.rows:
            out += ["", *([table.caption] if table.caption else []), table.to_text()]
    return "\n".join(out)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, break_long_words=True, break_on_hyphens=False)


def _html(session: Session, facts: list[tuple[str, str]]) -> str:
    soft = " · ".join(escape(word, 80) for word in origin(session))
    figures = "".join(
        f'<div><div style="{GREY};font-size:85%">{escape(name, 40)}</div>'
        f'<div style="font-size:115%">{escape(value, 60)}</div></div>'
        for name, value in facts
    )
    turns, cuts = turns_of(session, _MANY), cuts_of(session, _MANY)
    folded = cuts.to_html(high=_HIGH, sorts=False)
    folded = folded and f"<details><summary>compactions</summary>{folded}</details>"
    hover = f"id {line(session.id, 120)}" + (
        f" · {line(session.path_, 200)}" if session.path_ else ""
    )
    return (
        f'<div class="ctxkit-session {NO_MATH}" style="{INK}">'
        '<strong style="font-size:125%"'
        f' title="{escape(hover, 400)}">{escape(title_of(session, 160))}</strong>'
        f'<div style="{GREY}">{soft}</div><div style="{_BOX}">{figures}</div>{noted(session.notes)}'
        f"{turns.to_html(high=_HIGH, sorts=False)}{folded}</div>"
    )
