"""Exercises of notebooks 02 (policies, triggers and safe cuts) and 03 (thrash and payback)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.course.exercises import as_float, exercise, guess, mark_number, numbers, score_guess
from ctxkit.course.sample_replays_and_scores import (
    load_sample,
    measure_cost_with_trigger,
    measure_loss_with_trigger,
    replay_sample,
    score_replay,
)
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.triggers import Always

if TYPE_CHECKING:
    from ctxkit.session.session import Session


_PLACES = [
    {"call": call, "position": position}
    for call in (150, 120, 90, 210, 240)
    for position in (102, 104, 106)
]
_KEEP_TOKENS = [{"keep_tokens": n} for n in (20_000, 16_000, 18_000, 22_000, 24_000, 26_000)]


@guess(
    "02",
    "Above 30,000 tokens sum up what is old, and keep the newest 8,000 as they are. What share of "
    "all that the session uses again later is out of sight when it is needed, in per cent?",
    "A summary keeps the story and drops the names.",
)
def _guess_summary_loss(answer: Any) -> str:
    return score_guess(
        answer, 100 * measure_loss_with_trigger("summary:keep_tokens=8000", 30_000), "%"
    )


@exercise(
    "02-c",
    "Write rules that clear all results of tools but those of the last five turns. Give the rules.",
    "A policy is a few lines; what it costs is another question, and the next notebooks ask it.",
    hint="Positions before `history.nth_last('user', 5)` whose role is 'tool', and no others.",
)
def _judge_cleared_results(answer: Any) -> str:
    replay = replay_sample(answer)
    if not replay.edits:
        return "They changed nothing: is there a trigger, and does the policy return a new history?"
    # about forty calls are looked at, spread over the session
    for call in replay.calls[:: max(1, len(replay.calls) // 40)]:
        if wrong := _find_mistake(replay, call.index):
            return wrong
    return ""


@cache
def _list_result_texts() -> frozenset[str]:
    """Return the results of the record, word for word."""
    return frozenset(m.text for m in load_sample().messages if m.role == "tool")


@cache
def _list_spoken(index: int) -> tuple[str, ...]:
    """Return the words of a call's messages, never compacted, that are no results."""
    items = _replay_uncompacted().sent(index)
    return tuple(item.message.text for item in items if item.message.role != "tool")


@cache
def _replay_uncompacted() -> Session:
    return replay_sample("none")


def _find_mistake(replay: Session, index: int) -> str:
    """Describe the mistake at a call: text or a new result removed, or an old result kept."""
    items = replay.sent(index)
    spoken = [item.message.text for item in items if item.message.role != "tool"]
    if len(spoken) < len(_list_spoken(index)):
        return f"At call {index} more is gone than results: what was said, or calls of tools."
    if tuple(spoken) != _list_spoken(index):
        return f"At call {index} words of the user or the assistant are changed; only results go."
    users = [i for i, item in enumerate(items) if item.message.role == "user"]
    # with fewer than five requests no result is old
    start = users[-5] if len(users) >= 5 else 0
    for i, item in enumerate(items):
        if item.message.role != "tool":
            continue
        whole = item.message.text in _list_result_texts()
        if i >= start and not whole:
            return f"At call {index} a result of the last five turns is cleared."
        # a short result may be whole: a placeholder would not be shorter
        if i < start and whole and item.tokens > 60:
            return f"At call {index} a result that is older than five turns still stands."
    return ""


@exercise(
    "02-a",
    "At call {call} you want to drop what stands before position {position} of "
    "`session.view({call})`. Which is the first safe cut at or after it?",
    "Between a call and its result no cut is safe: providers refuse a call without its result.",
    hint="A cut is safe where what begins the rest is no result.",
    numbers=_PLACES,
)
def _judge_safe_cut(answer: Any) -> str:
    call, position = numbers("02-a").values()
    view = load_sample().view(call)
    right = next(p for p in range(position, len(view)) if view[p].role != "tool")
    at = as_float(answer)
    if at is not None and at != right and at in range(position, len(view)):
        # a cut is safe before anything but a result
        if view[int(at)].role == "tool":
            return "There a result would stand without its call."
        return "That one is safe, but it is not the first."
    return mark_number(answer, right, tolerance=0)


@exercise(
    "02-b",
    "A policy without a trigger is due before every call. How often would "
    "`window:keep_tokens={keep_tokens}` compact?",
    "Each of them changes the beginning of the prompt. What that costs is notebook 05.",
    hint="`ck.replay(session, rules).edits` has one entry a compaction.",
    numbers=_KEEP_TOKENS,
)
def _judge_untriggered_cuts(answer: Any) -> str:
    count = _count_untriggered(numbers("02-b")["keep_tokens"])
    return mark_number(answer, count, tolerance=0)


@cache
def _count_untriggered(keep_tokens: int) -> int:
    """Return how often a window without a trigger compacts the sample."""
    due = Rules(policy=f"window:keep_tokens={keep_tokens}", trigger=Always())
    return len(replay_sample(due).edits)


_PAYBACKS = [{"calls": n} for n in (25, 18, 20, 30, 36, 40)]
_LIMITS = [
    {"peak": peak, "dollars": dollars}
    for peak in (30_000, 28_000, 26_000)
    for dollars in (2.6, 2.5)
]


@guess(
    "03",
    "Above 20,000 tokens, keep the newest 18,000 and sum up the rest. As recorded the session cost "
    "$3.29. How many dollars are these rules?",
    "They send fewer tokens and cost more: every cut writes the prompt anew.",
)
def _guess_cautious_cost(answer: Any) -> str:
    return score_guess(answer, measure_cost_with_trigger("summary:keep_tokens=18000", 20_000), "$")


@exercise(
    "03-a",
    "A compaction pays back after {calls} calls. How many tokens must lie between what is kept and "
    "the trigger, so that the next one does not come before? (Within 5 %.)",
    "That is all there is to thrash: a distance that is too short.",
    hint="How many tokens does a prompt grow by, from one call to the next? That, times the calls.",
    numbers=_PAYBACKS,
)
def _judge_trigger_distance(answer: Any) -> str:
    # prompts grow by about the same number at each call: distance = growth * calls
    grown = measure_growth_per_call()
    slips = {
        "That is the growth of one call.": grown,
        "That is all that the session grew by.": grown * (len(load_sample().calls) - 1),
    }
    return mark_number(
        answer, grown * numbers("03-a")["calls"], tolerance=0.05, common_mistakes=slips
    )


@cache
def measure_growth_per_call() -> float:
    """Return by how many tokens a prompt of the sample grows from call to call, never compacted."""
    from ctxkit.metrics.frames import frame

    # never compacted, so the mean growth is last less first, by the calls between
    prompts = frame(replay_sample("none"), per="call")["prompt_tokens"]
    return float(prompts.iloc[-1] - prompts.iloc[0]) / (len(prompts) - 1)


@exercise(
    "03-b",
    "Find rules whose prompts stay below {peak:,} tokens, that do not thrash and cost at most "
    "${dollars:.2f}. Give the rules.",
    "That is half of the answer. Now look at what they lose: `ck.compare(session, [rules])`.",
    hint="A lower trigger makes prompts shorter; keeping less makes the distance longer.",
    numbers=_LIMITS,
)
def _judge_calm_rules(answer: Any) -> str:
    scored = score_replay(replay_sample(answer), loss=False)
    peak, dollars = numbers("03-b").values()
    if scored["peak_tokens"] >= peak:
        return f"The largest prompt has {scored['peak_tokens']:,} tokens."
    if scored["is_thrashing"]:
        bad, total = scored["not_paid_back_n"], scored["compactions_n"]
        return f"They thrash: {bad} of {total} compactions were not paid back."
    if scored["cost_usd"] > dollars:
        return f"They cost ${scored['cost_usd']:.2f}."
    return ""
