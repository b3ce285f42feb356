"""The capstone: rules for one's own logs; the part of it that can be counted is marked."""

from __future__ import annotations

from typing import Any

from ctxkit.course.exercises import exercise
from ctxkit.errors import BadArguments
from ctxkit.session.session import Session

_FEWEST_CALLS = 20
_PARTS = ("sessions", "rules", "held_out", "cheaper", "loses")


@exercise(
    "capstone",
    "Choose rules for your own logs. Give a dictionary: `sessions` (those you chose on), "
    "`held_out` (at least one you did not), `rules` (your choice), `cheaper` (dollars that they "
    "save on the held-out sessions, as a share of what they cost as recorded) and `loses` (the "
    "largest loss there, as a share).",
    "What can be counted holds. The rest of the rubric is for a reader: why these rules, what the "
    "replay does not tell, and what you would run to find out.",
    hint="`ck.compare(session, [rules])` has `cost_usd` and `needed_later_loss`, of both.",
)
def _judge_capstone(answer: Any) -> str:
    if not isinstance(answer, dict) or set(_PARTS) - set(answer):
        return f"Give a dictionary with {', '.join(_PARTS)}."
    chosen, test_sessions = (
        _require_sessions(answer[key], key) for key in ("sessions", "held_out")
    )
    if {s.id for s in chosen} & {s.id for s in test_sessions}:
        return "A session that you chose on is among the held-out ones."
    if short := [s.id for s in (*chosen, *test_sessions) if len(s.calls) < _FEWEST_CALLS]:
        return f"Session {short[0][:40]} has fewer than {_FEWEST_CALLS} calls: take longer ones."
    saving, loss, over = _measure(test_sessions, answer["rules"])
    wrong = []
    if over:
        wrong.append("a held-out session does not fit its window under your rules")
    if not _is_near(answer["cheaper"], saving):
        wrong.append("what they save on the held-out sessions is another share")
    if not _is_near(answer["loses"], loss):
        wrong.append("the largest loss there is another one")
    return f"{'; '.join(wrong).capitalize()}." if wrong else ""


def _require_sessions(value: Any, key: str) -> list[Session]:
    many = [value] if isinstance(value, Session) else value
    if not isinstance(many, (list, tuple)) or not many or len(many) > 100:
        raise BadArguments(f"Give `{key}` as a list of sessions, as ck.read returns them.")
    if not all(isinstance(each, Session) for each in many):
        raise BadArguments(f"Give `{key}` as a list of sessions, as ck.read returns them.")
    return list(many)


def _measure(sessions: list[Session], rules: Any) -> tuple[float, float, bool]:
    """Return the share of dollars saved, the largest loss, and whether a window is passed."""
    from ctxkit.experiments.comparison import compare

    before = after = loss = 0.0
    over = False
    for session in sessions:
        table = compare(session, [rules], progress=False)
        mine = dict(table.iloc[-1])
        before += float(str(table.loc["recorded", "cost_usd"]))
        after += float(mine["cost_usd"])
        loss = max(loss, float(mine["needed_later_loss"]))
        over |= float(mine["peak_tokens"]) > (session.context_window or float("inf"))
    return (1 - after / before if before else 0.0), loss, over


def _is_near(value: Any, right: float) -> bool:
    from ctxkit.course.answer_marking import as_float

    number = as_float(value)
    # two points of a hundred: enough for a figure that was read off a table
    return number is not None and abs(number - right) <= 0.02
