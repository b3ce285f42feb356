"""Exercises of notebook 01: the parts of a session, and the cost of one call."""

from __future__ import annotations

from functools import cache
from typing import Any

from ctxkit.course.exercises import exercise, guess, mark_number, mark_span, numbers, score_guess
from ctxkit.course.sample_replays_and_scores import load_sample
from ctxkit.session.messages import Usage

_HIDDEN_NAMES = (
    "fin-import-7",
    "INV-2026-118842",
    "bill-worker-3",
    "billing/ledger.py",
    "billing/payouts.py",
    "tests/test_usage.py",
)
"""Names that were seen, were out of sight in one stretch, and came back."""
_INBOX_CALLS = (20, 8, 30, 40, 50, 60)
_COLD_CALLS = (274, 22, 29, 108, 155, 232)
"""Calls after a pause: nothing of their prompts was read."""


@guess(
    "01",
    "What share of the last prompt are results of tools, in per cent?",
    "What tools print is most of what an agent is shown, and most of what can be taken away.",
)
def _guess_tool_result_share(answer: Any) -> str:
    from ctxkit.metrics.context_window_report import report

    context_report = report(load_sample())
    return score_guess(
        answer, 100 * context_report.groups()["tool results"] / context_report.prompt_tokens, "%"
    )


@exercise(
    "01-a",
    "From which call to which was {name} out of sight, once seen? (first, last)",
    "What no message shows the agent does not know: it has to be told, or to look again.",
    hint="`known` lists the calls that show it: the gap lies between two of them that are not "
    "neighbours; the first and the last call of the gap are asked for.",
    numbers=[{"name": name} for name in _HIDDEN_NAMES],
)
def _judge_hidden_calls(answer: Any) -> str:
    name = numbers("01-a")["name"]
    is_visible = [any(name in m.text for m in view) for _, view in load_sample().views()]
    # calls before the name was first seen do not count as hidden
    first = is_visible.index(True)
    gone = [i for i, seen in enumerate(is_visible) if i > first and not seen]
    return mark_span(answer, (gone[0], gone[-1]))


@exercise(
    "01-b",
    "What did call {call} cost, in dollars? Add up four classes of tokens times their prices.",
    "Nearly all of it is writing: the cache had died in a pause, so nothing was read.",
    hint="Fresh, read, written and reply: each number of tokens times its price, by a million.",
    numbers=[{"call": call} for call in _COLD_CALLS],
)
def _judge_call_cost(answer: Any) -> str:
    usage = load_sample().call(numbers("01-b")["call"]).message.usage or Usage()
    # this call has no cache reads: three of the four classes are left
    fresh, written = usage.input_tokens or 0, usage.cache_write_tokens or 0
    reply = 15e-6 * (usage.output_tokens or 0)
    slips = {
        "You paid the written tokens as plain input; writing to the cache costs more.": (
            3e-6 * (fresh + written) + reply
        ),
        "The reply is missing.": 3e-6 * fresh + 3.75e-6 * written,
        "You paid the written tokens as if they had been read.": (
            3e-6 * fresh + 0.3e-6 * written + reply
        ),
    }
    return mark_number(
        answer, 3e-6 * fresh + 3.75e-6 * written + reply, tolerance=0.002, common_mistakes=slips
    )


@exercise(
    "01-c",
    "What share of the prompt of call {call} of the sample `inbox` stands in no message of its "
    "log, in per cent?",
    "They are schemas of tools. No rule that works on messages can take one of them away.",
    hint="`ck.report(path, call)` reports another call than the last one; a row of it has what the "
    "provider billed and no message holds.",
    numbers=[{"call": call} for call in _INBOX_CALLS],
)
def _judge_unlogged_share(answer: Any) -> str:
    unlogged, whole = _count_unlogged(numbers("01-c")["call"])
    last_unlogged, last_whole = _count_unlogged(-1)
    slips = {
        "That is the share of the last prompt.": 100 * last_unlogged / last_whole,
        "That is what its messages hold.": 100 * (whole - unlogged) / whole,
        "That is a number of tokens: their share of the whole prompt is asked for.": unlogged,
    }
    return mark_number(answer, 100 * unlogged / whole, tolerance=0.002, common_mistakes=slips)


@cache
def _count_unlogged(call: int) -> tuple[int, int]:
    """Return the tokens of a prompt of `inbox` that no message holds, and all of it."""
    from ctxkit.metrics.context_window_report import report

    context_report = report(load_sample("inbox"), call)
    return context_report.groups()["not in the log"], context_report.prompt_tokens
