"""Compactions of runs and replays: sizes, savings, refill, and whether they were paid back."""

# From a compaction to a verdict
#
# A `CombinedCompactionBeforeCall` combines all compactions before one call: the sizes of its prompt
# without and with them, the summaries written, and the front that the cache still has.
# A verdict follows from the prompts after it, up to the next compaction:
#   refill     share of the freed tokens that is in use again 3 and 10 calls later
#   rebound    calls until the prompt is back at three quarters of its earlier size
#   pays after requests until the reads saved exceed the summary call and the rewritten prefix
#              (`compaction_formulas.requests_until_reset_pays`); not paid back: the next
#              compaction came before that

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.metrics.compaction_formulas import (
    requests_until_reset_pays,
)
from ctxkit.metrics.cost.call_and_summary_charges import is_written_by_model
from ctxkit.metrics.cost.replay_cost_model import WrittenSummary
from ctxkit.metrics.means_and_prediction_intervals import mean_or_none, median_or_none
from ctxkit.metrics.prompt_sizes_and_contents import PromptAndSharedPrefixSizes, RunPromptSizes
from ctxkit.policies.triggers import IDLE_AHEAD_WORD
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine import RulesRun
    from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel
    from ctxkit.session.messages import Edit
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price


REFILLED_SHARE = 0.75
"""The context counts as full again at this share of its size before the compaction."""
MIN_PROGRESS = 0.1
"""A compaction that saves less than this share made no progress (OpenHands' minimum progress)."""
SPIRAL_LENGTH = 3
"""Compactions in a row without progress that count as thrash (Codex stops trying there)."""


class CombinedCompactionBeforeCall(msgspec.Struct, frozen=True, gc=False):
    """All compactions before one call, as one. Sizes are tokens of that call's prompt."""

    call: int
    """The first call after it."""
    before: int
    """Tokens of the prompt without it."""
    after: int
    """Tokens of the prompt with it."""
    messages_before: int
    messages_after: int
    inserted_tokens: int
    """Tokens of the texts that it put in place of messages."""
    summaries: tuple[WrittenSummary, ...] = ()
    """The summaries that a model wrote for it."""
    number: int = 0
    """Its number in ``frame(per="compaction")``; for several before one call, that of the last."""
    unchanged_front_tokens: int = 0
    """Tokens at the front that are unchanged since the previous call: the cache still has them."""
    previous_prompt: int | None = None
    """Tokens of the previous call's prompt; None: as many as without the compaction."""

    @property
    def savings(self) -> float:
        """Share of the tokens that it saved; negative where the prompt grew."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def message_savings(self) -> float:
        """Share of the messages that it removed."""
        return 1 - self.messages_after / self.messages_before if self.messages_before else 0.0


class CompactionRefillAndPayback(msgspec.Struct, frozen=True):
    """How long one compaction lasted, and whether it was paid back. None: not known."""

    interval: int | None
    """Calls until the next one; None for the last one."""
    refill_3: float | None
    """Share of the freed tokens in use again three calls later; above 1: more than before."""
    refill_10: float | None
    """The same ten calls later."""
    rebound_calls: int | None
    """Calls until the prompt was back at three quarters of its earlier size; None: it never was."""
    pays_after: float | None
    """Requests after which it is paid back (see `compaction_formulas`); None without a price."""
    not_paid_back: bool | None
    """True where the next compaction came before it was paid back."""


def judge_compactions(
    compactions: Sequence[CombinedCompactionBeforeCall],
    prompts: PromptAndSharedPrefixSizes,
    cost_model: ReplayCostModel,
    summaries_usd: Sequence[float | None],
) -> list[CompactionRefillAndPayback]:
    """Return the verdict on each compaction.

    Args:
        compactions: the compactions, at most one per call, in order.
        prompts: the sizes of the prompts.
        cost_model: prices and cache behaviour of the record.
        summaries_usd: dollars of the summaries of each; None: one has no price.
    """
    verdicts, calls_n = [], len(prompts)
    for i, compaction in enumerate(compactions):
        next_call = compactions[i + 1].call if i + 1 < len(compactions) else None
        stop = calls_n if next_call is None else next_call
        pays_after = count_requests_to_break_even(compaction, cost_model, summaries_usd[i])
        interval = None if next_call is None else next_call - compaction.call
        not_paid_back = None if pays_after is None or interval is None else interval < pays_after
        refill_3, refill_10 = (
            _refilled_share(compaction, prompts, 3, stop),
            _refilled_share(compaction, prompts, 10, stop),
        )
        rebound_call = prompts.find_first_reaching(
            REFILLED_SHARE * compaction.before, compaction.call, stop
        )
        rebound_calls = None if rebound_call is None else rebound_call - compaction.call
        verdicts.append(
            CompactionRefillAndPayback(
                interval, refill_3, refill_10, rebound_calls, pays_after, not_paid_back
            )
        )
    return verdicts


def _refilled_share(
    compaction: CombinedCompactionBeforeCall,
    prompts: PromptAndSharedPrefixSizes,
    calls: int,
    stop: int,
) -> float | None:
    if compaction.call + calls >= stop or compaction.before <= compaction.after:
        return None
    size = prompts.prompt(compaction.call + calls)
    return (size - compaction.after) / (compaction.before - compaction.after) if size else None


def count_requests_to_break_even(
    compaction: CombinedCompactionBeforeCall, cost_model: ReplayCostModel, summary_usd: float | None
) -> float | None:
    """Return the requests after which a compaction is paid back, including its own call.

    Without the compaction its call would have read the previous prompt from the cache, but no more
    than the recorded call could read.

    Args:
        compaction: its sizes.
        cost_model: prices and cache behaviour of the record.
        summary_usd: dollars of its summaries; None: one has no price.
    """
    call_price = cost_model.at(compaction.call)
    if call_price is None or summary_usd is None:
        return None
    read, write = _read_write_price(call_price.at(compaction.before), cost_model)
    cached = (
        compaction.before
        if compaction.previous_prompt is None
        else min(compaction.before, compaction.previous_prompt)
    )
    if compaction.call < len(cost_model.read_limits):
        cached = min(cached, cost_model.read_limits[compaction.call])
    return requests_until_reset_pays(
        compaction.before,
        compaction.after,
        cost_usd=summary_usd,
        read_price=read,
        write_price=write,
        cached_tokens=cached,
        front=compaction.unchanged_front_tokens,
    )


def _read_write_price(prices: Price, cost_model: ReplayCostModel) -> tuple[float, float]:
    """Return the prices of a token that the cache holds and of one that it does not."""
    fit = cost_model.fit
    return prices.read if cost_model.has_cache else prices.input, prices.write(
        hour=fit.hour
    ) if fit.writes else prices.input


def make_compaction_columns(
    compactions: Sequence[CombinedCompactionBeforeCall],
    prompts: PromptAndSharedPrefixSizes,
    cost_model: ReplayCostModel,
    summaries_usd: Sequence[float | None],
) -> dict[str, Any]:
    """Return a score's columns of compactions; None: not known.

    Savings cover all compactions; verdicts only those that a call follows.

    Args:
        compactions: all compactions of a run or replay, in order.
        prompts: the prompts that its calls sent.
        cost_model: prices and cache behaviour of the record.
        summaries_usd: dollars of each compaction's summaries; None: no price.

    Returns:
        A value for each column that `docs/scores.md` lists under compactions; shares are 0..1.
    """
    observed = drop_compactions_after_last_call(compactions, len(prompts))  # the first ones
    verdicts = judge_compactions(observed, prompts, cost_model, summaries_usd)
    savings = [c.savings for c in compactions]
    return {
        "compactions_n": len(compactions),
        **summarise_verdicts(savings[: len(observed)], verdicts),
        "token_savings": mean_or_none(savings),
        "message_savings": mean_or_none([c.message_savings for c in compactions]),
        "summary_tokens": sum([c.inserted_tokens for c in compactions]),
    }


def summarise_verdicts(
    savings: Sequence[float], verdicts: Sequence[CompactionRefillAndPayback]
) -> dict[str, Any]:
    """Return the figures over all compactions of a session, named as the columns of a score.

    Args:
        savings: tokens that each compaction freed, as a share of the prompt before it.
        verdicts: the verdict on each of them.

    Returns:
        `not_paid_back_n`, `paid_back_share`, `refilled_share`, `rebound_calls`,
        `no_progress_streak` and `is_thrashing`; None where not known.
    """
    not_paid_back = [v.not_paid_back for v in verdicts if v.not_paid_back is not None]
    no_progress_streak = measure_longest_run([saved < MIN_PROGRESS for saved in savings])
    return {
        "not_paid_back_n": sum(not_paid_back) if not_paid_back or len(verdicts) < 2 else None,
        "paid_back_share": 1 - sum(not_paid_back) / len(not_paid_back) if not_paid_back else None,
        "refilled_share": mean_or_none([v.refill_10 for v in verdicts]),
        "rebound_calls": median_or_none([v.rebound_calls for v in verdicts]),
        "no_progress_streak": no_progress_streak,
        "is_thrashing": is_thrashing(no_progress_streak, not_paid_back),
    }


def is_thrashing(no_progress_streak: int, not_paid_back: Sequence[bool]) -> bool:
    """Return True where `SPIRAL_LENGTH` in a row made no progress, or most were not paid back.

    Args:
        no_progress_streak: length of the longest run of compactions without progress.
        not_paid_back: True for each compaction that was not paid back, without those of which it is
            not known; a single one does not count.
    """
    return no_progress_streak >= SPIRAL_LENGTH or (
        len(not_paid_back) > 1 and sum(not_paid_back) > len(not_paid_back) / 2
    )


def drop_compactions_after_last_call(
    compactions: Sequence[CombinedCompactionBeforeCall], calls: int
) -> list[CombinedCompactionBeforeCall]:
    """Return the compactions that at least one of a number of calls follows.

    Args:
        compactions: compactions of a run.
        calls: number of calls of the run.
    """
    return [compaction for compaction in compactions if compaction.call < calls]


def measure_longest_run(flags: Sequence[bool]) -> int:
    """Return the length of the longest run of True."""
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best


def get_rules_run_compactions(
    run: RulesRun, prompts: PromptAndSharedPrefixSizes | None = None
) -> list[CombinedCompactionBeforeCall]:
    """Return the compactions of a run.

    Args:
        run: the run.
        prompts: the prompts that it sent; None: computed here.

    Returns:
        One value a call with compactions, in order; sizes in tokens of that call's prompt.
    """
    compactions, sent = [], prompts or RunPromptSizes(run)
    for number, compaction in enumerate(run.compactions):
        old, new, steps = compaction.was, compaction.new, compaction.new.steps
        whole_before, whole_after = old.tokens, new.tokens
        # under a pruning the call would have been sent less, and was sent less
        before, after = compaction.pruned_sizes or (whole_before, whole_after)
        inserted_tokens, summaries, step_before = 0, [], whole_before
        for i, step in enumerate(steps, 1):
            step_after = steps[i].was.tokens if i < len(steps) else whole_after
            kind, _, method, usage = step.info
            if kind == "summarised" and not step.added and step.new is not None:
                size = sum([item.tokens for item in step.new])
                inserted_tokens += size
                if size and (usage is not None or is_written_by_model(method)):
                    usd = usage.cost_usd if usage is not None else None
                    written_tokens = step.written_tokens(run.log)
                    summaries.append(
                        WrittenSummary(
                            compaction.call,
                            step_before - step_after + size,
                            before if i == 1 else step_before,
                            written_tokens,
                            usd,
                            IDLE_AHEAD_WORD in compaction.trigger,
                        )
                    )
            step_before = step_after
        counts = len(old), len(new)
        front_and_sent = _shared_with_previous(sent, compaction.call, run.call)
        compactions.append(
            CombinedCompactionBeforeCall(
                compaction.call,
                before,
                after,
                *counts,
                inserted_tokens,
                tuple(summaries),
                number,
                *front_and_sent,
            )
        )
    return compactions


def get_replay_compactions(session: Session) -> list[CombinedCompactionBeforeCall]:
    """Return the compactions of a replay from the edits in its session.

    Args:
        session: a replay; also one that another process made.

    Returns:
        One value a call with compactions, in order; sizes in tokens of that call's prompt.
    """
    call_at, calls_n = {}, 0
    for position, entry in enumerate(session.path):
        call_at[position] = calls_n
        calls_n += isinstance(entry, Message) and entry.role == "assistant"
    compactions, prompts = [], get_replay_prompt_sizes(session)
    for group in group_edits(session):
        call, first, last = call_at[group.position], group.edits[0], group.edits[-1]
        summaries = [w for e in group.edits if (w := _written_summary(call, e)) is not None]
        inserted_tokens = sum(e.details.get("summary_tokens", 0) for e in group.edits)
        counts = first.details.get("messages_before", 0), last.details.get("messages_after", 0)
        sizes = first.tokens_before or 0, last.tokens_after or 0
        front_and_sent = _shared_with_previous(prompts, call, len(prompts))
        compactions.append(
            CombinedCompactionBeforeCall(
                call,
                *sizes,
                *counts,
                inserted_tokens,
                tuple(summaries),
                group.number,
                *front_and_sent,
            )
        )
    return compactions


def _shared_with_previous(
    prompts: PromptAndSharedPrefixSizes, call: int, stop: int
) -> tuple[int, int | None]:
    """Return the tokens that a call shares with the previous call, and the size of that prompt.

    They are 0 and None where no call precedes or follows the compaction.
    """
    return (prompts.shared(call), prompts.prompt(call - 1)) if 0 < call < stop else (0, None)


def _written_summary(call: int, edit: Edit) -> WrittenSummary | None:
    size = edit.details.get("summary_tokens")
    if not size or (edit.usage is None and not is_written_by_model(edit.method)):
        return None
    usd = edit.usage.cost_usd if edit.usage is not None else None
    written_tokens = edit.details.get("written_tokens", size)
    warm = IDLE_AHEAD_WORD in (edit.trigger or "")
    source_tokens, prompt = edit.details.get("source_tokens", 0), edit.tokens_before or 0
    return WrittenSummary(call, source_tokens, prompt, written_tokens, usd, warm)


def get_replay_prompt_sizes(session: Session) -> PromptAndSharedPrefixSizes:
    """Return the prompts of a replay.

    Args:
        session: a replay.

    Returns:
        Tokens of each call's prompt and of the prefix that it shares with earlier ones.
    """
    return PromptAndSharedPrefixSizes(
        *(of.tolist() for of in get_replay_prompt_and_shared_tokens(session))
    )


def get_replay_prompt_and_shared_tokens(session: Session) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt tokens and shared tokens of each call of a replay.

    Args:
        session: a replay.

    Returns:
        Two arrays with one value a call.
    """
    replies = [c.message for c in session.calls]
    sizes = (m.usage.prompt_tokens if m.usage else m.details.get("prompt_tokens") for m in replies)
    prompts = [n or 0 for n in sizes]
    shared = [m.details.get("shared_tokens", 0) for m in replies]
    return np.array(prompts, np.int64), np.array(shared, np.int64)
