"""How the cuts of runs side by side held: the columns of `metrics.size.holds`, and what is out of sight at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.metrics.size import NO_PROGRESS, SPIRAL
from ctxkit.metrics.thrash import FULL
from ctxkit.sweeps.stack.cells import maybe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.sweeps.stack.figures import Runs
    from ctxkit.sweeps.stack.purses import Purse

    Ints = NDArray[Any]
    Flags = NDArray[Any]
    Floats = NDArray[Any]


def holds(runs: Runs, purse: Purse) -> dict[str, list[Any]]:
    """Return the columns, one value a lane; None where nothing can be said."""
    cuts, n = runs.cuts, runs.cuts_n
    C, call = runs.table.tokens.C, cuts.call  # noqa: N806  as it is called there
    before, after = runs.off_before + C[call], runs.off + C[call]
    savings = np.where(before > 0, 1 - after / np.maximum(before, 1), 0.0)
    told, unpaid = _paid(runs, purse, before, after)
    told_n = runs.summed(told)
    unpaid_n = runs.summed(unpaid)
    anti = 1 - unpaid_n / np.maximum(told_n, 1)
    later = np.minimum(call + 10, runs.stop[cuts.lane])
    ten = (call + 10 < runs.until) & (before > after)
    refill = np.where(ten, (C[later] - C[call]) / np.where(ten, before - after, 1), 0.0)
    run = _longest(runs, savings < NO_PROGRESS)
    shares = (savings, _message_savings(runs))
    means = [maybe(_sum(runs, share) / np.maximum(n, 1), n > 0) for share in shares]
    tens = runs.summed(ten)
    thrash = (run >= SPIRAL) | ((told_n >= 2) & (anti < 0.5))
    return {
        "cuts_n": n.tolist(),
        "unpaid_cuts_n": maybe(unpaid_n, (told_n > 0) | (n < 2)),
        "anti_thrash": maybe(anti, told_n > 0),
        "refill": maybe(_sum(runs, refill) / np.maximum(tens, 1), tens > 0),
        "rebound_calls": _rebounds(runs, before, after),
        "no_progress_n": run.tolist(),
        "token_savings": means[0],
        "message_savings": means[1],
        "summary_tokens": runs.summed(cuts.size).tolist(),
        "thrash": thrash.tolist(),
        **_hidden(runs),
    }


def _sum(runs: Runs, values: Floats) -> Floats:
    """Return the sums over the cuts of each lane, to the last bit as `sum` adds those of a single run."""
    if sys.hexversion < 0x030C_0000:
        return np.bincount(runs.cuts.lane, values, len(runs.session)).astype(float)
    return compensated(values, runs.cuts.first)


def compensated(values: Floats, first: Ints) -> Floats:
    """Return sums of consecutive values with Neumaier's correction, as `sum` has added floats since Python 3.12.

    Args:
        values: what is added.
        first: where each sum begins, and the end of all.
    """
    n, start = np.diff(first), first[:-1]
    total, lost = np.zeros(len(n)), np.zeros(len(n))
    for rank in range(int(n.max(initial=0))):
        some = np.flatnonzero(n > rank)
        old, new = total[some], values[start[some] + rank]
        both = old + new
        lost[some] += np.where(np.abs(old) >= np.abs(new), (old - both) + new, (new - both) + old)
        total[some] = both
    return np.asarray(total + lost)


def _paid(runs: Runs, purse: Purse, before: Ints, after: Ints) -> tuple[Flags, Flags]:
    """Return for each cut whether it can be told if it paid for itself, and whether the next came too early."""
    log, size = runs.log, runs.cuts.size
    read = purse.read[log]
    cost = np.where(size > 0, before * read + size * purse.reply[log], 0.0)
    saved = read * (before - after)
    pays = (cost + (purse.reset[log] - read) * after) / np.where(saved > 0, saved, 1.0)
    pays = np.where(saved > 0, pays, np.inf)
    told = purse.reads[log] & ~runs.closes
    return told, told & (runs.until - runs.cuts.call < pays)


def _message_savings(runs: Runs) -> Floats:
    table, cuts = runs.table, runs.cuts
    stay, hi = table.stay[runs.log], table.upto[cuts.call]
    before = stay + (runs.carried(cuts.size, 0) > 0) + hi - runs.row_before
    after = stay + (cuts.size > 0) + hi - cuts.row
    return np.where(before > 0, 1 - after / np.maximum(before, 1), 0.0)


def _rebounds(runs: Runs, before: Ints, after: Ints) -> list[Any]:
    """Return the median calls until prompts were back at a share of their size."""
    C, cuts = runs.table.tokens.C, runs.cuts  # noqa: N806
    aim = np.ceil(FULL * before - after).astype(np.int64) + C[cuts.call]
    found = np.maximum(runs.table.tokens.calls.find(aim), cuts.call)
    back = found < runs.until
    lane, calls = cuts.lane[back], (found - cuts.call)[back]
    width = int(runs.table.calls[-1]) + 1
    ordered = np.sort(lane * width + calls) % width  # lanes rise already: only calls within one change places
    n = np.bincount(lane, minlength=len(runs.session))
    first = np.concatenate(([0], np.cumsum(n)))[:-1]
    ordered = np.append(ordered, 0)
    low, high = (ordered[np.where(n > 0, first + i, len(ordered) - 1)] for i in ((n - 1) // 2, n // 2))
    return maybe((low + high) / 2, n > 0)


def _longest(runs: Runs, flags: Flags) -> Ints:
    """Return the longest row of True among the cuts of each lane."""
    place = np.arange(len(flags))
    broken = np.where(flags, np.where(runs.opens, place - 1, -1), place)
    lengths = place - np.maximum.accumulate(broken) if len(flags) else place
    return runs.most(lengths, np.zeros(len(runs.session), np.int64))


def _hidden(runs: Runs) -> dict[str, list[Any]]:
    start = runs.table.start[runs.session]
    row = start.copy()
    have = np.flatnonzero(runs.cuts_n)
    row[have] = runs.cuts.row[runs.cuts.first[have + 1] - 1]
    results = runs.table.said(("tool",))[1]
    return {
        "hidden_messages_n": (row - start).tolist(),
        "hidden_results_n": (results[row] - results[start]).tolist(),
    }
