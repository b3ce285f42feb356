"""Compactions of runs and replays: sizes, what they saved, whether they paid for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.breakeven import requests_until_reset_pays
from ctxkit.metrics.cost.call_prices import MODEL_FREE_METHODS
from ctxkit.metrics.cost.replay_bill import WrittenSummary
from ctxkit.metrics.prompt_sizes import RunPrompts, SentPrompts
from ctxkit.metrics.prompt_sizes import get_prompt_sizes as occupancy
from ctxkit.metrics.recorded_compactions import group_edits
from ctxkit.metrics.stats import mean_or_none, median_or_none
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine import Run
    from ctxkit.metrics.cost.replay_bill import ReplayCostModel
    from ctxkit.session.messages import Edit
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price


__all__ = ["amplification", "append_only", "headroom"]
__dir__ = public_dir(__all__)


REFILLED_SHARE = 0.75
"""Share of the size before a cut at which the context counts as full again."""
MIN_PROGRESS = 0.1
"""A cut that saves less than this share made no progress (OpenHands' minimum progress)."""
SPIRAL_LENGTH = 3
"""So many cuts without progress in a row count as thrash (where Codex stops trying)."""


class Compaction(msgspec.Struct, frozen=True, gc=False):
    """All that was compacted before one call. Sizes are tokens of its prompt, without and with."""

    call: int
    """The first call that was shown its outcome."""
    before: int
    after: int
    messages_before: int
    messages_after: int
    summary: int
    """Tokens that it put in."""
    written: tuple[WrittenSummary, ...] = ()
    """The summaries that a model wrote for it."""
    number: int = 0
    """As ``frame(per="compaction")`` counts; of several before one call, that of the last."""
    front: int = 0
    """Tokens at its front that the call before was sent as they are: the cache still has them."""
    sent: int | None = None
    """Tokens of the prompt of the call before; None: as many as without it."""

    @property
    def savings(self) -> float:
        """Share of the tokens that it saved; negative where the prompt grew."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def message_savings(self) -> float:
        """Share of the messages that it took out of sight."""
        return 1 - self.messages_after / self.messages_before if self.messages_before else 0.0


class CompactionVerdict(msgspec.Struct, frozen=True):
    """How one compaction held. None: it cannot be said."""

    interval: int | None
    """Calls until the next one; None for the last one."""
    refill_3: float | None
    """Share of the freed tokens that was full again three calls later; above 1: fuller."""
    refill_10: float | None
    rebound_calls: int | None
    """Calls until the prompt was back at three quarters of its size before; None: it never was."""
    pays_after: float | None
    """Requests after which it has paid for itself (see `breakeven`); None without a price."""
    unpaid: bool | None
    """True where the next one came before that."""


def judge_compactions(
    cuts: Sequence[Compaction],
    prompts: SentPrompts,
    sheet: ReplayCostModel,
    costs: Sequence[float | None],
) -> list[CompactionVerdict]:
    """Return how compactions held, one after the other.

    Args:
        cuts: the compactions, one a call.
        prompts: the sizes of the prompts.
        sheet: what the record tells of prices and of what the cache can have held.
        costs: dollars of the summaries of each; None: one has no price.
    """
    out, last = [], len(prompts)
    for i, cut in enumerate(cuts):
        following = cuts[i + 1].call if i + 1 < len(cuts) else None
        stop = last if following is None else following
        pays = count_requests_to_break_even(cut, sheet, costs[i])
        interval = None if following is None else following - cut.call
        unpaid = None if pays is None or interval is None else interval < pays
        soon, later = (
            _refilled_share(cut, prompts, 3, stop),
            _refilled_share(cut, prompts, 10, stop),
        )
        full = prompts.reaches(REFILLED_SHARE * cut.before, cut.call, stop)
        back = None if full is None else full - cut.call
        out.append(CompactionVerdict(interval, soon, later, back, pays, unpaid))
    return out


def _refilled_share(cut: Compaction, prompts: SentPrompts, calls: int, stop: int) -> float | None:
    if cut.call + calls >= stop or cut.before <= cut.after:
        return None
    size = prompts.prompt(cut.call + calls)
    return (size - cut.after) / (cut.before - cut.after) if size else None


def count_requests_to_break_even(
    cut: Compaction, sheet: ReplayCostModel, cost: float | None
) -> float | None:
    """Return after how many requests a compaction has paid for itself, its own call the first.

    Its summaries `cost` what the bill of a replay takes for them. What its call finds in the cache,
    with and without it, is what the call before was sent, and at most what the record's own call
    can have found.
    """
    known = sheet.at(cut.call)
    if known is None or cost is None:
        return None
    read, write = _read_write_price(known.at(cut.before), sheet)
    found = cut.before if cut.sent is None else min(cut.before, cut.sent)
    if cut.call < len(sheet.kept):
        found = min(found, sheet.kept[cut.call])
    return requests_until_reset_pays(
        cut.before,
        cut.after,
        cost_usd=cost,
        read_price=read,
        write_price=write,
        found=found,
        front=cut.front,
    )


def _read_write_price(p: Price, sheet: ReplayCostModel) -> tuple[float, float]:
    """Return what a token costs that the cache holds, and one that it does not."""
    fit = sheet.fit
    return p.read if sheet.has_cache else p.input, p.write(hour=fit.hour) if fit.writes else p.input


def make_compaction_columns(
    cuts: Sequence[Compaction],
    prompts: SentPrompts,
    sheet: ReplayCostModel,
    costs: Sequence[float | None],
) -> dict[str, Any]:
    """Return how compactions held, under the names of a score's columns; None: not known.

    What they saved is that of all; how they held, of those that a call was shown, which come first.
    """
    shown = filter_observed(cuts, len(prompts))
    found = judge_compactions(shown, prompts, sheet, costs)
    return {
        "cuts_n": len(cuts),
        **summarise_verdicts([c.savings for c in shown], found),
        "token_savings": mean_or_none([c.savings for c in cuts]),
        "message_savings": mean_or_none([c.message_savings for c in cuts]),
        "summary_tokens": sum([c.summary for c in cuts]),
    }


def summarise_verdicts(
    savings: Sequence[float], found: Sequence[CompactionVerdict]
) -> dict[str, Any]:
    """Return how compactions held whose savings and verdicts are known, named as in a score."""
    told = [v.unpaid for v in found if v.unpaid is not None]
    run = measure_longest_run([saved < MIN_PROGRESS for saved in savings])
    return {
        "unpaid_cuts_n": sum(told) if told or len(found) < 2 else None,
        "anti_thrash": 1 - sum(told) / len(told) if told else None,
        "refill": mean_or_none([v.refill_10 for v in found]),
        "rebound_calls": median_or_none([v.rebound_calls for v in found]),
        "no_progress_n": run,
        "thrash": is_thrashing(run, told),
    }


def is_thrashing(run: int, unpaid: Sequence[bool]) -> bool:
    """Say whether compactions thrash: `SPIRAL` in a row without progress, or most did not pay.

    Args:
        run: the longest run of those without progress.
        unpaid: of each that can be said to be paid or not, True where it is not; one says nothing.
    """
    return run >= SPIRAL_LENGTH or (len(unpaid) > 1 and sum(unpaid) > len(unpaid) / 2)


def filter_observed(cuts: Sequence[Compaction], calls: int) -> list[Compaction]:
    """Return the compactions that a call was shown."""
    return [cut for cut in cuts if cut.call < calls]


def measure_longest_run(flags: Sequence[bool]) -> int:
    """Return the length of the longest run of True."""
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best


def get_run_compactions(done: Run, prompts: SentPrompts | None = None) -> list[Compaction]:
    """Return the compactions of a run; `prompts` are those that it sent, where they are known."""
    out, calls = [], prompts or RunPrompts(done)
    for number, cut in enumerate(done.cuts):
        was, new, steps = cut.was, cut.new, cut.new.steps
        first, after = was.tokens, new.tokens
        summary, written, before = 0, [], first
        for i, step in enumerate(steps, 1):
            then = steps[i].was.tokens if i < len(steps) else after
            kind, _, method, usage = step.words
            if kind == "summarised" and not step.added and step.new is not None:
                size = sum([item.tokens for item in step.new])
                summary += size
                if size and method not in MODEL_FREE_METHODS:
                    usd = usage.cost_usd if usage is not None else None
                    wrote = step.written(done.log)
                    written.append(
                        WrittenSummary(cut.call, before - then + size, before, wrote, usd)
                    )
            before = then
        counts = len(was), len(new)
        warm = _shared_with_previous(calls, cut.call, done.call)
        out.append(
            Compaction(cut.call, first, after, *counts, summary, tuple(written), number, *warm)
        )
    return out


def get_replay_compactions(session: Session) -> list[Compaction]:
    """Return the compactions that a replay placed in its session, as `spots_of` has them."""
    calls, reached = {}, 0
    for position, entry in enumerate(session.path):
        calls[position] = reached
        reached += isinstance(entry, Message) and entry.role == "assistant"
    out, prompts = [], get_replay_prompts(session)
    for cut in group_edits(session):
        call, first, last = calls[cut.position], cut.edits[0], cut.edits[-1]
        made = [w for e in cut.edits if (w := _written_summary(call, e)) is not None]
        summary = sum(e.details.get("summary_tokens", 0) for e in cut.edits)
        counts = first.details.get("messages_before", 0), last.details.get("messages_after", 0)
        sizes = first.tokens_before or 0, last.tokens_after or 0
        warm = _shared_with_previous(prompts, call, len(prompts))
        out.append(Compaction(call, *sizes, *counts, summary, tuple(made), cut.number, *warm))
    return out


def _shared_with_previous(calls: SentPrompts, call: int, stop: int) -> tuple[int, int | None]:
    """Return what a call shares with the one before, and the size of that; nobody knows of none."""
    return (calls.shared(call), calls.prompt(call - 1)) if 0 < call < stop else (0, None)


def _written_summary(call: int, edit: Edit) -> WrittenSummary | None:
    size = edit.details.get("summary_tokens")
    if not size or edit.method in MODEL_FREE_METHODS:
        return None
    usd = edit.usage.cost_usd if edit.usage is not None else None
    wrote = edit.details.get("written_tokens", size)
    return WrittenSummary(call, edit.details["source_tokens"], edit.tokens_before or 0, wrote, usd)


def get_replay_prompts(session: Session) -> SentPrompts:
    """Return the prompts of a replay."""
    return SentPrompts(*(of.tolist() for of in get_replay_prompt_arrays(session)))


def get_replay_prompt_arrays(session: Session) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt tokens and shared tokens of each call of a replay."""
    replies = [c.message for c in session.calls]
    told = (m.usage.prompt_tokens if m.usage else m.details.get("prompt_tokens") for m in replies)
    prompts = [n or 0 for n in told]
    shared = [m.details.get("shared_tokens", 0) for m in replies]
    return np.array(prompts, np.int64), np.array(shared, np.int64)


ASSUMED_GROWTH = 300
"""Tokens that a call adds beside the reply before it, where its prompt fell (Boise's rule for a
drop).
"""


def headroom(trigger: float, after: float) -> float:
    """Return the working room of a cycle: the share of the trigger that a compaction leaves free,
    ``(T - A) / T``.

    Raises:
        BadArguments: the trigger is not above 0.
    """
    if trigger <= 0:
        raise BadArguments(f"A trigger is a number of tokens above 0, not {trigger!r}.")
    return (trigger - after) / trigger


def append_only(prompts: Sequence[int], outputs: Sequence[int]) -> list[int]:
    """Return the prompts that the same calls would have had if nothing had been taken away.

    ``L'[i] = L'[i-1] + g``: the growth of the prompt where it grew, else the reply before it and
    300 tokens.

    Args:
        prompts: tokens of each call's prompt.
        outputs: tokens of each call's reply.

    Raises:
        BadArguments: there is not one reply a prompt.
    """
    if len(prompts) != len(outputs):
        raise BadArguments(
            f"Give one reply for each prompt: {len(prompts)} and {len(outputs)} do not match."
        )
    out = list(prompts[:1])
    for i in range(1, len(prompts)):
        grown = prompts[i] - prompts[i - 1]
        out.append(out[-1] + (grown if grown > 0 else outputs[i - 1] + ASSUMED_GROWTH))
    return out


@accepts_session
def amplification(session: Session) -> float | None:
    """Return how many times the tokens its append-only twin would have sent; None without recorded
    prompt sizes.

    Over the calls that have a usage. For 37,732 recorded rounds of Claude Code inference-sim found
    4.12.
    """
    sizes, source = occupancy(session)
    replies = [c.message.usage for c in session.calls]
    told = [
        (n, (u.output_tokens or 0) if u else 0) for n, u in zip(sizes, replies, strict=True) if n
    ]
    if not told or source == "estimated":
        return None
    prompts = [n for n, _ in told]
    return sum(append_only(prompts, [n for _, n in told])) / sum(prompts)
