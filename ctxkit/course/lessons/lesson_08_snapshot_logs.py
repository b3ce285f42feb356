"""Notebook 08: snapshot logs of a lab; its exercises are about the frame that the notebook made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.course.answer_marking import mark_choice, mark_number, score_guess
from ctxkit.course.exercises import exercise, guess, numbers
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    import pandas as pd

_CUTOVERS = [{"tokens": n} for n in (120_000, 90_000, 110_000, 130_000, 140_000, 150_000)]


def _require_turn_frame(turns: Any) -> pd.DataFrame:
    if not hasattr(turns, "columns") or "turn_input_tokens" not in turns.columns:
        raise BadArguments("Give the frame, too: ck.check('08-a', answer, turns).")
    frame: pd.DataFrame = turns
    return frame


@guess(
    "08",
    "An agent may spend 100,000 tokens; one that is above that when its turn is over causes a "
    "compaction. By how many per cent has it gone over, on the mean? Give the log, too.",
    "The turn that crosses the line is already paid for.",
)
def _guess_overshoot(answer: Any, log: Any = None) -> str:
    if "cutover_at" not in getattr(log, "columns", ()):
        raise BadArguments("Give the log, too: ck.check('08-guess', GUESS, log).")
    from ctxkit.formats.snapshots.turns_and_segments import segments

    parts = segments(log)
    over = parts[parts["reached"] == "cutover"]
    return score_guess(
        answer, 100 * float((over["cumulative_input_tokens"] / over["cutover_at"] - 1).mean()), "%"
    )


@exercise(
    "08-a",
    "Which agent sends most of all input tokens? Its name; give the frame `turns`, too.",
    "An agent with many tool rounds pays for its prompt in each of them.",
    hint="Group `turns` by agent and add up `turn_input_tokens`.",
    is_choice=True,
)
def _judge_largest_sender(answer: Any, turns: Any = None) -> str:
    sums = _require_turn_frame(turns).groupby("agent")["turn_input_tokens"].sum()
    names = [str(name).lower() for name in sums.index]
    right = str(sums.idxmax()).lower()
    return mark_choice(answer, right, names, dict.fromkeys(names, "It is not the largest."))


@exercise(
    "08-b",
    "How many compactions would a cut-over at {tokens:,} tokens have made? Give the frame, too.",
    "As long as nothing else changes: with another budget the turns themselves would be others.",
    hint="`compactions_at` of the notebook counts them for any number of tokens.",
    numbers=_CUTOVERS,
)
def _judge_compaction_count(answer: Any, turns: Any = None) -> str:
    frame = _require_turn_frame(turns)
    limit = numbers("08-b")["tokens"]
    spent: dict[tuple[str, str], int] = {}
    fired = 0
    columns = ("session", "agent", "turn_input_tokens")
    for session, agent, tokens in zip(*(frame[c] for c in columns), strict=True):
        # tokens add up by agent; one agent over the limit resets all agents of its session
        spent[session, agent] = spent.get((session, agent), 0) + int(tokens)
        if spent[session, agent] >= limit:
            fired += 1
            spent = {key: n for key, n in spent.items() if key[0] != session}
    return mark_number(answer, fired, within=0)
