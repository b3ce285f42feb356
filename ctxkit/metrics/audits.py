"""Free audits of compactions: what a reader of the shown context would miss at once, without any
model.

Identifiers, sections and the latest request are asked for as OpenClaw's summary audit does; the
structure as yoagent's scorer: task lost, latest request lost, nothing but a marker, orphans, turns
in full detail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.frames.recorded_cuts import cuts
from ctxkit.messages import Message
from ctxkit.readers.given import of_session
from ctxkit.session import Session, apply_edit
from ctxkit.texts import identifiers
from ctxkit.texts.contents import texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from ctxkit.frames.recorded_cuts import EditGroup

__all__ = ["audits"]

MARKER = 200
"""A text of fewer characters in place of removed messages is a marker, no summary."""
COLUMNS = {
    "session": "string",
    "cut": "Int64",
    "call": "Int64",
    "identifiers_n": "Int64",
    "identifiers_kept": "Float64",
    "missing": "string",
    "sections_missing": "string",
    "ask_reflected": "boolean",
    "task_lost": "boolean",
    "ask_lost": "boolean",
    "marker_only": "boolean",
    "orphans_n": "Int64",
    "turns_n": "Int64",
}


@of_session
def audits(session: Session, sections: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row for each compaction of a session or a replay.

    `identifiers_n` names of the removed messages are asked for (at most 12, of the last ten),
    `identifiers_kept` is the share that stands in what is shown, `missing` names the others.
    `ask_reflected`: the text put in speaks of the latest request (missing where nothing was put
    in). `task_lost`, `ask_lost`: the first, the latest request is no longer shown as it was said.
    `marker_only`: what was put in is shorter than 200 characters. `orphans_n`: tool calls or
    results that the cut parted. `turns_n`: requests that are still shown as they were said.

    Args:
        session: a session with text; others have no rows.
        sections: headings that a summary shall have as lines of their own.
    """
    import pandas as pd

    rows = list(_rows(session, sections)) if session.has_text else []
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows(session: Session, sections: Sequence[str]) -> Iterator[dict[str, Any]]:
    shown: list[Message] = []
    asks: list[Message] = []
    at = calls = 0
    for cut in cuts(session):
        for entry in session.path[at : cut.position]:
            if isinstance(entry, Message):
                calls += entry.role == "assistant"
                if entry.visible:
                    shown.append(entry)
                    asks += [entry] if entry.role == "user" else []
        before = shown
        for edit in cut.edits:
            shown = apply_edit(shown, edit)
        at = cut.position + len(cut.edits)
        yield {
            "session": session.id,
            "cut": cut.number,
            "call": calls,
            **_audit(cut, before, shown, asks, sections),
        }


def _audit(
    cut: EditGroup,
    before: Sequence[Message],
    shown: Sequence[Message],
    asks: Sequence[Message],
    sections: Sequence[str],
) -> dict[str, Any]:
    there = {id(m) for m in before}
    now = {id(m) for m in shown}
    removed = [m for m in before if id(m) not in now]
    put_in = "\n".join(texts(m) for m in shown if id(m) not in there)
    everything = "\n".join(map(texts, shown))
    names = identifiers.exact([texts(m) for m in removed])
    missing = identifiers.lost(names, everything)
    rows = {row.strip() for row in put_in.splitlines()}
    return {
        "identifiers_n": len(names),
        "identifiers_kept": 1 - len(missing) / len(names) if names else None,
        "missing": ", ".join(missing),
        "sections_missing": ", ".join(s for s in sections if s not in rows),
        "ask_reflected": identifiers.reflected(texts(asks[-1]), put_in)
        if asks and put_in
        else None,
        "task_lost": id(asks[0]) not in now if asks else None,
        "ask_lost": id(asks[-1]) not in now if asks else None,
        "marker_only": 0 < len(put_in) < MARKER and any(e.kind == "summarised" for e in cut.edits),
        "orphans_n": len(_orphans(shown) - _orphans(before)),
        "turns_n": sum(id(m) in now for m in asks),
    }


def _orphans(shown: Sequence[Message]) -> set[str]:
    """Return the ids of calls and results that lack their partner; calls of the last reply may
    still be open.
    """
    last = next((m for m in reversed(shown) if m.role == "assistant"), None)
    asked = {c.id for m in shown for c in m.tool_calls}
    answered = {m.call_id for m in shown if m.role == "tool" and m.call_id}
    due = {c.id for m in shown if m is not last for c in m.tool_calls}
    return (answered - asked) | (due - answered)
