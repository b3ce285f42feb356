"""Exercises of notebooks 10 (what enters a prompt) and 11 (a team and its views)."""

from __future__ import annotations

from typing import Any

from ctxkit._internal.formatting_and_sanitizing import format_percent
from ctxkit.course.exercises import as_float, exercise, guess, numbers, score_guess
from ctxkit.errors import BadArguments
from ctxkit.experiments.rules_comparison_on_one_session import compare

_LEAST = 0.01
_MARGINS = [{"percent": n} for n in (10, 5, 15, 20, 25)]
_MOVED = "time, at the top"


def _require_section_costs(costs: Any, key: str) -> dict[str, float]:
    """Return what each section costs, from the table of a session."""
    if "cost_usd" not in getattr(costs, "columns", ()) or "section" not in costs.columns:
        raise BadArguments(
            f"Give the table, too: ck.check('{key}', ..., ck.experiments.sections(priced))."
        )
    return dict(zip(costs["section"], costs["cost_usd"], strict=True))


@guess(
    "10",
    "The time is a dozen tokens. Said anew at the top of the prompt in each of eight turns, how "
    "many cents would it cost over some fifty calls? Give what ck.experiments.sections says, too.",
    "What stands behind a word that changes is billed as new.",
)
def _guess_timestamp_cost(answer: Any, costs: Any = None) -> str:
    return score_guess(answer, 100 * _require_section_costs(costs, "10-guess")[_MOVED], "cents")


@exercise(
    "10-a",
    "Which section could you leave out to save at least a cent in this session without losing a "
    "tool? Give its name, and what ck.experiments.sections says.",
    "It is sent again with every call; a cache reads it at a tenth of the price.",
    hint="The column `cost_usd`, and what the agent could do without the section.",
    is_choice=True,
)
def _judge_dispensable_section(answer: Any, costs: Any = None) -> str:
    dollars = _require_section_costs(costs, "10-a")
    if answer == _MOVED:
        return "That row is a question: no prompt of this session has it."
    if not isinstance(answer, str) or answer not in dollars:
        return f"No section is called {answer!r}: {', '.join(dollars)}."
    if answer == "tool schemas":
        return "That saves enough, but the agent would have no tools."
    return (
        "" if dollars[answer] >= _LEAST else f"It saves ${dollars[answer]:.4f}, less than a cent."
    )


@exercise(
    "10-b",
    "From how many reads on is pasting the guide cheaper by more than {percent} % of what listing "
    "it costs? Give the number, and the function that says what both ways cost.",
    "One read costs about what pasting costs; each further one leaves another copy, which all "
    "later calls carry.",
    hint="`ways(n)['cost_usd']` has both; compare them for each number of reads.",
    numbers=_MARGINS,
)
def _judge_break_even_reads(answer: Any, ways: Any = None) -> str:
    if not callable(ways):
        raise BadArguments("Give the function, too: ck.check('10-b', ..., ways).")
    number = as_float(answer)
    if number is None or number not in range(1, 13):
        return "Give a whole number from 1 to 12."
    reads, margin = int(number), numbers("10-b")["percent"] / 100

    def pasted_wins(n: int) -> bool:
        listed, pasted = ways(n)["cost_usd"]
        return bool(pasted < (1 - margin) * listed)

    if not pasted_wins(reads):
        return "With so many pasting is not cheaper by that much."
    # the right number is the least that wins, so one read fewer must lose
    return (
        "Pasting is cheaper by that much already with one read fewer."
        if pasted_wins(reads - 1)
        else ""
    )


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
    wrong = (
        [f"it loses {format_percent(mine['needed_later_loss'])}"]
        if mine["needed_later_loss"]
        else []
    )
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
        return f"It sends {format_percent(mine['token_share'])} of the tokens."
    cheaper = mine["cost_usd"] <= shared["cost_usd"]
    return f"It costs ${mine['cost_usd']:.3f}, less than shared." if cheaper else ""
