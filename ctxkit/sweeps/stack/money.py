"""The bill of runs side by side: what `metrics.bills` says of each, from running sums over calls and from the cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.sweeps.stack.purses import ALWAYS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.sweeps.stack.figures import Runs
    from ctxkit.sweeps.stack.purses import Purse

    Ints = NDArray[Any]
    Flags = NDArray[Any]
    Floats = NDArray[Any]


class Money(NamedTuple):
    """One value a lane, over the calls that the record bills."""

    prompts: Ints
    peak: Ints
    """-1 where no call is billed."""
    read: Ints
    rest: Ints
    input_usd: Floats
    output_usd: Floats
    summaries_usd: Floats
    doubtful: Flags
    """Lanes with a prompt too short for the cache, or long enough for another price: to be billed one by one."""


def money(runs: Runs, purse: Purse, *, reuse: bool) -> Money:
    """Return the bills of all lanes."""
    cuts, C, log = runs.cuts, runs.table.tokens.C, runs.session  # noqa: N806  as it is called there
    start, begin, first = -runs.table.tokens.base[log], runs.begin, runs.first_call
    call, until = cuts.call, runs.until
    prompts = purse.S[runs.stop] - purse.S[begin] + start * (purse.B[first] - purse.B[begin])
    prompts += runs.summed(runs.off * (purse.B[until] - purse.B[call]))
    most = purse.last_billed[until]
    last = purse.last_billed[first]
    peak = np.where(last >= begin, start + C[last], -1)
    peak = runs.most(np.where(most >= call, runs.off + C[most], -1), peak)
    read = _read(runs, purse)
    rest = prompts - read
    writes = purse.writes[log]
    fresh, written = np.where(writes, 0, rest), np.where(writes, rest, 0)
    into = fresh * purse.input[log] + read * purse.read[log]
    into += written * purse.write[log]
    replies = purse.output[log] * purse.reply[log]
    doubtful = _doubtful(runs, purse, peak, reuse=reuse)
    return Money(prompts, peak, read, rest, into, replies, _summaries(runs, purse, reuse=reuse), doubtful)


def _summaries(runs: Runs, purse: Purse, *, reuse: bool) -> Floats:
    """Return the dollars of the calls that write summaries."""
    size, log = runs.cuts.size, runs.log
    if reuse:
        into = (runs.off_before + runs.table.tokens.C[runs.cuts.call]) * purse.read[log]
    else:
        into = source(runs) * purse.input[log]
    usd = np.where(size > 0, into + size * purse.reply[log], 0.0)
    # added one after the other, as for a single run
    return np.bincount(runs.cuts.lane, usd, len(runs.session)).astype(float)


def source(runs: Runs) -> Ints:
    """Return the tokens that each cut took out."""
    return runs.off_before - runs.off + runs.cuts.size


def _doubtful(runs: Runs, purse: Purse, peak: Ints, *, reuse: bool) -> Flags:
    """Return the lanes for which sums cannot tell."""
    C, cuts, off = runs.table.tokens.C, runs.cuts, runs.off  # noqa: N806
    least = (purse.smallest + np.maximum(purse.lag, 0))[runs.session]
    out = (runs.first_call > runs.begin) & (C[runs.begin] - runs.table.tokens.base[runs.session] < least)
    out &= purse.cached[runs.session]
    out |= (peak > purse.tier[runs.session]) & purse.known[runs.session]
    short = off + C[cuts.call] < purse.smallest[runs.log]
    short |= (runs.until > cuts.call + 1) & (off + C[cuts.call + 1] < least[cuts.lane])
    short &= purse.cached[runs.log]
    sent = np.maximum(runs.off_before + C[cuts.call], 0 if reuse else source(runs))
    short |= (sent > purse.tier[runs.log]) & purse.known[runs.log]
    short |= purse.other[cuts.call]  # of a model that is billed nowhere: it may have another price
    out[cuts.lane[short]] = True
    return np.asarray(out)


# -- what the cache held -----------------------------------------------------------------------------------------------


def _read(runs: Runs, purse: Purse) -> Ints:
    """Return the tokens that the cache held, over all billed calls."""
    cuts, log, lag = runs.cuts, runs.log, purse.lag
    start, begin, first = -runs.table.tokens.base[runs.session], runs.begin, runs.first_call
    after = np.minimum(cuts.call + 1, runs.until)
    read = purse.R[first] - purse.R[begin] + start * (purse.N[first] - purse.N[begin])
    shared, before, prompt = _shared(runs)
    whole = shared >= np.minimum(before, prompt)
    own = shared - np.where(whole, lag[log], np.maximum(lag[log], 0))
    own = np.where(purse.floor[log] < ALWAYS, np.minimum(shared, purse.floor[log]), own)
    own = np.maximum(np.minimum(own, prompt), 0)
    own = np.where(purse.billed[cuts.call] & ~purse.odd[cuts.call], own, 0)
    stretch = purse.R[runs.until] - purse.R[after] + runs.off * (purse.N[runs.until] - purse.N[after])
    read += runs.summed(own + stretch)
    for lane, tokens in _odd(runs, purse, shared):
        np.add.at(read, lane, tokens)
    return np.where(purse.cached[runs.session], read, 0)


def _shared(runs: Runs) -> tuple[Ints, Ints, Ints]:
    """Return for each cut what its prompt shares with the one before, that one, and its own prompt."""
    C, call = runs.table.tokens.C, runs.cuts.call  # noqa: N806
    prompt = runs.off + C[call]
    known = call > runs.begin[runs.cuts.lane]
    before = np.where(known, runs.off_before + C[np.maximum(call - 1, 0)], 0)
    return np.minimum(np.minimum(runs.stable, before), prompt), before, prompt


def _odd(runs: Runs, purse: Purse, shared: Ints) -> list[tuple[Ints, Ints]]:
    """Return what the calls read that the cache treats in a way of their own, with their lanes."""
    calls = [purse.odd_calls[log] for log in runs.session[:: runs.settings]]
    n = np.array([len(c) for c in calls])
    if not n.sum():
        return []
    own = np.repeat(np.arange(len(calls)) * runs.settings, n)
    lane = (own[:, None] + np.arange(runs.settings)).ravel()
    call = np.repeat(np.concatenate(calls), runs.settings)
    return [(lane, _reads(runs, purse, shared, lane, call))]


def _reads(runs: Runs, purse: Purse, shared: Ints, lane: Ints, call: Ints) -> Ints:
    """Return what single calls of lanes read, as `Sheet` has it for one call."""
    C, log = runs.table.tokens.C, runs.session[lane]  # noqa: N806
    last = purse.last[call]
    cut = _place(runs, lane, call)
    prompt = C[call] + _off(runs, lane, cut)
    at_cut = (cut >= 0) & (_take(runs.cuts.call, cut) == call)
    known = last >= 0
    cut_last = np.where(known, _place(runs, lane, np.maximum(last, 0)), cut)
    before = np.where(known, C[np.maximum(last, 0)] + _off(runs, lane, cut_last), prompt)
    base = np.minimum(before, prompt)
    between = np.flatnonzero(known & (cut > cut_last))
    if len(between):  # the least that two neighbours shared on the way
        ends = np.where(cut_last[between] >= 0, cut_last[between] + 1, runs.cuts.first[lane[between]])
        spans = np.stack((ends, cut[between] + 1), 1).ravel()
        base[between] = np.minimum(before[between], np.minimum.reduceat(np.append(shared, 0), spans)[::2])
    lag = np.where(base >= np.minimum(before, prompt), purse.lag[log], np.maximum(purse.lag[log], 0))
    read = base - np.where(purse.cold[call], 0, lag)
    floor = purse.floor[log]
    read = np.where(at_cut & (floor < ALWAYS), np.minimum(base, floor), read)
    return np.asarray(np.maximum(np.minimum(np.minimum(read, purse.kept[call]), prompt), 0))


def _place(runs: Runs, lane: Ints, call: Ints) -> Ints:
    """Return the place of a lane's last cut up to a call, or -1."""
    width = int(runs.table.calls[-1]) + 1
    found = np.searchsorted(runs.cuts.lane * width + runs.cuts.call, lane * width + call, "right") - 1
    return np.where(found >= runs.cuts.first[lane], found, -1)


def _off(runs: Runs, lane: Ints, cut: Ints) -> Ints:
    return np.where(cut >= 0, _take(runs.off, cut), -runs.table.tokens.base[runs.session[lane]])


def _take(values: NDArray[Any], at: Ints) -> NDArray[Any]:
    return values[np.maximum(at, 0)] if len(values) else np.zeros_like(at)
