"""Notebook 11: a team and its views."""

from __future__ import annotations

from typing import Any

from ctxkit.course.answer_marking import score_guess
from ctxkit.course.exercises import exercise, guess, numbers
from ctxkit.errors import BadArguments
from ctxkit.experiments.comparison import compare

_LIMITS = [{"dollars": dollars} for dollars in (0.23, 0.22, 0.21, 0.24)]
_TEAM = "Give the team, too: ck.check('{key}', ..., made)."


def _compare_view(keys: Any, team: Any, key: str) -> Any:
    """Return the figures of all agents together, under the keys and where all hear everything."""
    if team is None or not isinstance(keys, dict):
        raise BadArguments(_TEAM.format(key=key) if team is None else "Give the keys of a view.")
    table = compare(team, {"mine": keys})
    return table.set_index(["agent", "view"]).loc["all agents"]


@guess(
    "11",
    "What share of all prompt tokens, in per cent, would be left if nobody saw what the tools of "
    "others said (TextOnly)? Give the team, too.",
    "A view takes away what others said; the rest is paid at each call.",
)
def _guess_token_share(answer: Any, team: Any = None) -> str:
    rows = _compare_view({"TextOnly": True}, team, "11-guess")
    return score_guess(answer, 100 * float(rows.loc["mine", "token_share"]), "%")


@exercise(
    "11-a",
    "A view that loses nothing of what was needed, for at most ${dollars:.2f}: a dictionary with "
    "keys of a ContextWindow. Give the team, too.",
    "What tools said was read again where it was needed; the beginnings of frames were enough.",
    hint="A key that shortens what others' tools printed, and leaves what they said.",
    numbers=_LIMITS,
)
def _judge_lossless_view(answer: Any, team: Any = None) -> str:
    mine = _compare_view(answer, team, "11-a").loc["mine"]
    most = numbers("11-a")["dollars"]
    wrong = [f"it loses {mine['needed_later_loss']:.0%}"] if mine["needed_later_loss"] else []
    wrong += [f"it costs ${mine['cost_usd']:.3f}"] if mine["cost_usd"] > most else []
    return f"{' and '.join(wrong).capitalize()}." if wrong else ""


@exercise(
    "11-b",
    "A view that sends at most 90 % of the tokens of the shared history, and costs more than it. "
    "Give the team, too.",
    "It moves at each turn what stands at the front, and all behind it is written to the cache "
    "anew.",
    hint="What changes at the front of a prompt with each turn?",
)
def _judge_costlier_view(answer: Any, team: Any = None) -> str:
    rows = _compare_view(answer, team, "11-b")
    mine, shared = rows.loc["mine"], rows.loc["shared"]
    if mine["token_share"] > 0.9:
        return f"It sends {mine['token_share']:.0%} of the tokens."
    cheaper = mine["cost_usd"] <= shared["cost_usd"]
    return f"It costs ${mine['cost_usd']:.3f}, less than shared." if cheaper else ""
