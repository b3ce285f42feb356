"""Exercises of the appendices (cache model, more about loss, sweeps at size) and of the capstone
(rules for one's own logs).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.course.exercises import (
    as_pair,
    exercise,
    guess,
    mark_choice,
    mark_number,
    numbers,
    score_guess,
)
from ctxkit.course.sample_replays_and_scores import facts_kept, load_sample, replay_sample
from ctxkit.errors import BadArguments
from ctxkit.session.session import Session

if TYPE_CHECKING:
    import pandas as pd


_YES_NO = ("yes", "no")
_CENT = 0.01
_GAINS = [{"cents": n} for n in (2, 1, 3, 5, 8, 10)]
_COHORTS = [{"fate": fate, "after": n} for n in (2, 1) for fate in ("retained", "lost")]
_FACTS = [
    {"compaction": compaction, "meaning": meaning}
    for compaction in (1, 0)
    for meaning in ("was kept and a value lost", "was lost")
]
_PAIRS = [
    {"session": "billing", "what": "cheapest"},
    {"session": "incident", "what": "cheapest"},
    {"session": "billing", "what": "one that loses least"},
    {"session": "billing", "what": "one that loses most"},
]


def _require_table(answer: Any, column: str, name: str) -> pd.DataFrame:
    if not hasattr(answer, "columns") or column not in answer.columns:
        raise BadArguments(f"Give the table `{name}`, too, behind your answer.")
    table: pd.DataFrame = answer
    return table


@guess(
    "a1",
    "What the provider said of its reads is taken off the sample; sizes, times and events stay. By "
    "how many per cent is the bill of its prompts off, that a cache model predicts?",
    "That is one log, and a kind one: docs/trust.md has many.",
)
def _guess_prediction_error(answer: Any) -> str:
    return score_guess(answer, 100 * _measure_prediction_error(), "%")


@cache
def _measure_prediction_error() -> float:
    from ctxkit.engine.cache_model.input_cost_prediction import predict_input_cost

    return abs(predict_input_cost(load_sample()).error or 0.0)


@guess(
    "a2",
    "Never compacted, all fifteen facts are there; under `codex` twelve are. In how many of 100 "
    "cases would chance alone make a difference like that?",
    "Three facts that went one way are three tosses of a coin.",
)
def _guess_chance_cases(answer: Any) -> str:
    return score_guess(answer, 100 * _measure_chance(), "cases")


@cache
def _measure_chance() -> float:
    from ctxkit.metrics.bootstrap_and_paired_tests import mcnemar

    facts = (list(facts_kept(replay_sample(name)).values()) for name in ("none", "codex"))
    # McNemar's test: only facts that one of both kept and the other lost count
    return mcnemar(*facts).p


@guess(
    "a3",
    "Under `fuseraft` a session costs a dollar less than without management, on the mean of six. "
    "In how many of the six does it save more than a cent?",
    "A mean does not say who carries it.",
)
def _guess_saving_sessions(answer: Any) -> str:
    costs = _sweep_fuseraft().pivot_table(index="session", columns="rules", values="cost_usd")
    return score_guess(answer, int((costs["none"] - costs["fuseraft"] > _CENT).sum()), "sessions")


@cache
def _sweep_fuseraft() -> pd.DataFrame:
    """Return the six samples without management and under `fuseraft`."""
    from ctxkit.experiments.sweep_runs import sweep
    from ctxkit.formats import samples

    runs: pd.DataFrame = sweep(samples.paths(), ["none", "fuseraft"], loss=False, progress=False)
    return runs


@exercise(
    "a1-a",
    "Does the order of `none` and `pi` by dollars survive a bad cache model: 'yes' or 'no'? Give "
    "the table `costs`, too.",
    "So a cache model is part of the answer, not of the decoration.",
    hint="Which of the two is cheaper in the first column, and which in the last?",
    is_choice=True,
)
def _judge_order_stability(answer: Any, costs: Any = None) -> str:
    table = _require_table(costs, "never forgets", "costs")
    # first and last column: a cache that never forgets, and one that misses as recorded
    ends = [
        float(table[c]["none"]) < float(table[c]["pi"]) for c in ("never forgets", "misses carried")
    ]
    right = "yes" if ends[0] == ends[1] else "no"
    why = "Look at `none` and `pi` in the first column and in the last one."
    return mark_choice(answer, right, _YES_NO, dict.fromkeys(_YES_NO, why))


@exercise(
    "a1-b",
    "After how many calls has the result that was taken out of a warm prompt gained {cents} cents, "
    "as headroom counts? (Within 3 %.) Give the table `gain`, too.",
    "The first calls only pay back what the writing cost; a cent more takes dozens of calls.",
    hint="The column is a straight line: two of its rows say what one more call gains.",
    numbers=_GAINS,
)
def _judge_gain_calls(answer: Any, gain: Any = None) -> str:
    warm = _require_table(gain, "headroom, warm", "gain")["headroom, warm"]
    a_call = float(warm.iloc[-1] - warm.iloc[-2]) / float(warm.index[-1] - warm.index[-2])
    calls = numbers("a1-b")["cents"] / 100 / a_call
    paid_back = float(warm.index[-1]) - float(warm.iloc[-1]) / a_call
    slips = {
        "From there on it gains; the cents come on top.": paid_back,
        "You left out what the writing costs: it has to be paid back first.": calls,
    }
    return mark_number(answer, paid_back + calls, tolerance=0.03, common_mistakes=slips)


@exercise(
    "a2-a",
    "Of the items that the first compaction took: how many were {fate} where `compactions_n` is "
    "{after}?",
    "Some that survived the first summary did not survive the second.",
    hint="A share of the row of the first cohort after so many compactions, times its `items_n`.",
    numbers=_COHORTS,
)
def _judge_cohort_items(answer: Any) -> str:
    fate, after = numbers("a2-a").values()
    table = _measure_drift()
    # first cohort: after one compaction, after two
    first, second = (table[(table["cohort"] == 0) & (table["compactions_n"] == n)] for n in (1, 2))
    row, other = (first, second) if after == 1 else (second, first)
    share, items = float(row[fate].iloc[0]), float(row["items_n"].iloc[0])
    slips = {
        "That is a share: how many items is it?": share,
        "That is after another number of compactions.": float(other[fate].iloc[0]) * items,
    }
    return mark_number(answer, share * items, tolerance=0.03, common_mistakes=slips)


@cache
def _measure_drift() -> pd.DataFrame:
    from ctxkit.metrics.loss_tables import drift

    return drift(load_sample())


@exercise(
    "a2-b",
    "At compaction {compaction}: of how many facts does the table say that the meaning {meaning}? "
    "Give the table `told`, too.",
    "A sentence about the right thing without the right name is the loss that reads best.",
    hint="The column `compaction` counts from 0; `meaning_kept` and `values_kept` say the rest.",
    numbers=_FACTS,
)
def _judge_lost_values(answer: Any, told: Any = None) -> str:
    table = _require_table(told, "meaning_kept", "told")
    compaction, asked = numbers("a2-b").values()
    rows = table[table["compaction"] == compaction]
    meaning = rows["meaning_kept"].astype(bool)
    values = rows["values_kept"].fillna(True).astype(bool)  # noqa: FBT003
    chosen = ~meaning if asked == "was lost" else meaning & ~values
    return mark_number(answer, int(chosen.sum()), tolerance=0)


@exercise(
    "a3-a",
    "Which pair of settings is the {what} on the session `{session}`? (reserve_tokens, "
    "keep_recent_tokens); give the table `runs`, too.",
    "What is cheapest on one session is not the cheapest on the other: choose on several.",
    hint="The rows of that session, sorted by `cost_usd` or by `needed_later_loss`.",
    numbers=_PAIRS,
)
def _judge_cheapest_pair(answer: Any, runs: Any = None) -> str:
    names = ["reserve_tokens", "keep_recent_tokens"]
    table = _require_table(runs, names[0], "runs")
    session, what = numbers("a3-a").values()
    column = "cost_usd" if what == "cheapest" else "needed_later_loss"
    rows = table[table["session"] == session]
    best = rows.sort_values(column, ascending=what != "one that loses most")
    right = tuple(int(best[name].iloc[0]) for name in names)
    pair = as_pair(answer)
    if pair is None:
        return "Give two numbers: (reserve_tokens, keep_recent_tokens)."
    wrong = [name for name, reply, is_ in zip(names, pair, right, strict=True) if reply != is_]
    return f"Look again at {' and '.join(wrong)}." if wrong else ""


@exercise(
    "a3-b",
    "Over the six samples: does the whole interval of `fuseraft` less `none` lie below zero: 'yes' "
    "or 'no'?",
    "That speaks of dollars. What it loses is another column.",
    hint="Both ends of the interval, `low` and `high`, on the same side of nothing?",
    is_choice=True,
)
def _judge_interval_sign(answer: Any) -> str:
    right = "yes" if _is_fuseraft_cheaper() else "no"
    return mark_choice(answer, right, _YES_NO, dict.fromkeys(_YES_NO, "Look at `low` and `high`."))


@cache
def _is_fuseraft_cheaper() -> bool:
    from ctxkit.metrics.bootstrap_and_paired_tests import compare_settings

    return bool(compare_settings(_sweep_fuseraft(), "fuseraft", "none")["high"] < 0)


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
    from ctxkit.experiments.rules_comparison_on_one_session import compare

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
    from ctxkit.course.exercises import as_float

    number = as_float(value)
    # two points of a hundred: enough for a figure that was read off a table
    return number is not None and abs(number - right) <= 0.02
