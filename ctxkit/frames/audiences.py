"""Who sees which message: the model at the next call, and the user, who sees what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.frames.frame_columns import BOOL, INT, TEXT, FrameColumn, build
from ctxkit.messages import EVENTS, USER_VISIBLE, Edit, Message
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.session import Session

COLUMNS = (
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


@of_session
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
            *(m.details.get(USER_VISIBLE) is not False, shown.get(m.id) == m),
            *(len(m.text), line(m.text, 120)),
        )
        for position, m in _said(session)
    ]
    return build(COLUMNS, {c.name: [row[i] for row in rows] for i, c in enumerate(COLUMNS)})


def _said(session: Session) -> Iterator[tuple[int, Message]]:
    """Yield each message with its place, those that edits brought at the place of the edit.

    What an edit leaves of a message is not said again: the user has seen it whole.
    """
    for position, entry in enumerate(session.path):
        if isinstance(entry, Message):
            if entry.kind not in EVENTS:
                yield position, entry
        elif isinstance(entry, Edit) and entry.kind == "summarised":
            yield from ((position, m) for m in entry.inserted)
