"""Notebook 01: what a session is made of, and what one call costs."""

from __future__ import annotations

from typing import Any

from ctxkit.course.exercises import exercise, guess, numbers
from ctxkit.course.marking import mark_number, mark_span, score_guess
from ctxkit.course.sample_data import load_sample
from ctxkit.session.messages import Usage

_QUEUE = "fin-import-7"
_COLD_CALLS = (274, 22, 29, 108, 155, 232)
"""Calls after a pause: nothing of their prompts was read."""


@guess(
    "01",
    "What share of the last prompt are results of tools, in per cent?",
    "What tools print is most of what an agent is shown, and most of what can be taken away.",
)
def _guess_tool_result_share(answer: Any) -> str:
    from ctxkit.metrics.context_report import report

    context_report = report(load_sample())
    return score_guess(
        answer, 100 * context_report.groups()["tool results"] / context_report.prompt_tokens, "%"
    )


@exercise(
    "01-a",
    f"From which call to which was {_QUEUE} out of sight, once seen? (first, last)",
    "So for a whole morning the agent did not know where the import runs.",
    hint="`known` lists the calls that show it: the gap lies between two of them that are not "
    "neighbours; the first and the last call of the gap are asked for.",
)
def _judge_hidden_calls(answer: Any) -> str:
    is_visible = [any(_QUEUE in m.text for m in view) for _, view in load_sample().views()]
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
    return mark_number(answer, 3e-6 * fresh + 3.75e-6 * written + reply, within=0.002, slips=slips)


@exercise(
    "01-c",
    "How many tokens of each prompt of the sample `inbox` stand in no message of its log?",
    "They are schemas of tools. No rule that works on messages can take one of them away.",
    hint="The report has a row for what the provider billed and no message holds.",
)
def _judge_unlogged_tokens(answer: Any) -> str:
    from ctxkit.metrics.context_report import report

    context_report = report(load_sample("inbox"))
    right, whole = context_report.groups()["not in the log"], float(context_report.prompt_tokens)
    slips = {"That is the whole prompt.": whole, "That is what its messages hold.": whole - right}
    return mark_number(answer, right, within=0.01, slips=slips)
