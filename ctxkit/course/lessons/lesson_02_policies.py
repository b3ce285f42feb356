"""Notebook 02: policies, triggers and safe cuts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.course.exercises import exercise, guess
from ctxkit.course.marking import as_float, mark_number, score_guess
from ctxkit.course.sample_data import load_sample, make_rules_above, replay_sample, score_replay
from ctxkit.policies.rules import Rules
from ctxkit.policies.triggers import Always

if TYPE_CHECKING:
    from ctxkit.session.session import Session

_CALL, _AT = 150, 102


@guess(
    "02",
    "Above 30,000 tokens sum up what is old, and keep the newest 8,000 as they are. What share of "
    "all that the session uses again later is out of sight when it is needed, in per cent?",
    "A summary keeps the story and drops the names.",
)
def _guess_summary_loss(answer: Any) -> str:
    scored = score_replay(replay_sample(make_rules_above("summary:keep_tokens=8000", 30_000)))
    return score_guess(answer, 100 * scored["needed_later_loss"], "%")


@exercise(
    "02-c",
    "Write rules that clear all results of tools but those of the last five turns. Give the rules.",
    "A policy is a few lines; what it costs is another question, and the next notebooks ask it.",
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
def _count_non_results(index: int) -> int:
    """Return how many messages of a call, never compacted, are no results."""
    return sum(item.message.role != "tool" for item in _replay_uncompacted().sent(index))


@cache
def _replay_uncompacted() -> Session:
    return replay_sample("none")


def _find_mistake(replay: Session, index: int) -> str:
    """Say what is wrong at a call: words or a new result gone, or an old result that stands."""
    items = replay.sent(index)
    if sum(item.message.role != "tool" for item in items) < _count_non_results(index):
        return f"At call {index} more is gone than results: what was said, or calls of tools."
    users = [i for i, item in enumerate(items) if item.message.role == "user"]
    # with fewer than five requests no result is old
    start = users[-5] if len(users) >= 5 else 0
    for i, item in enumerate(items):
        if item.message.role != "tool":
            continue
        whole = item.message.text in _list_result_texts()
        if i >= start and not whole:
            return f"At call {index} a result of the last five turns is cleared."
        # a short result may stand whole: a placeholder would not be shorter
        if i < start and whole and item.tokens > 60:
            return f"At call {index} a result that is older than five turns still stands."
    return ""


@exercise(
    "02-a",
    f"At call {_CALL} you want to drop what stands before position {_AT} of "
    f"`session.view({_CALL})`. Which is the first safe cut at or after it?",
    "Between a call and its result no cut is safe: providers refuse a call without its result.",
)
def _judge_safe_cut(answer: Any) -> str:
    shown = load_sample().view(_CALL)
    right = next(p for p in range(_AT, len(shown)) if shown[p].role != "tool")
    at = as_float(answer)
    if at is not None and at != right and at in range(_AT, len(shown)):
        # a cut is safe before anything but a result
        if shown[int(at)].role == "tool":
            return "There a result would stand without its call."
        return "That one is safe, but it is not the first."
    return mark_number(answer, right, within=0)


@exercise(
    "02-b",
    "A policy without a trigger is due before every call. How often would "
    "`window:keep_tokens=20000` compact?",
    "Each of them changes the beginning of the prompt. What that costs is notebook 05.",
)
def _judge_untriggered_cuts(answer: Any) -> str:
    due = Rules(policy="window:keep_tokens=20000", trigger=Always())
    return mark_number(answer, len(replay_sample(due).edits), within=0)
