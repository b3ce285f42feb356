"""The gate: sessions under rules beside a kept baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.gates.baselines import load, save
from ctxkit.gates.gate_verdicts import GateReport, compared
from ctxkit.gates.readings import Entries, measured

if TYPE_CHECKING:
    import os

    from ctxkit.readers.given import GivenAll
    from ctxkit.sweeps.grids import Several


def gate(
    sessions: GivenAll,
    rules: Several,
    baseline: str | os.PathLike[str],
    *,
    update: bool = False,
    tolerance: float = 0.0,
) -> GateReport:
    """Return what got worse since a baseline was kept, of sessions under rules.

    Looked at are the figures of `gates.FIGURES`: dollars, peak, needed-later loss, what was
    retained, thrash, unpaid cuts, planted facts. Each is the mean over the sessions that are as
    they were. A figure got worse where it moved by more than its noise: how far it moves when the
    window is 1 % smaller or larger, of facts when they are said elsewhere.

    Args:
        sessions: recorded sessions, paths of logs, or a folder of them.
        rules: rules, policies, names of presets, or ``"all"``.
        baseline: a JSON file to be kept with the code.
        update: write the figures of now into it; what got worse is still told.
        tolerance: share of a figure's own size that it may get worse by, where that is more.

    Raises:
        BadArguments: there is no baseline and none is to be made, or it is of another version.
        StoreError: it cannot be written.
    """
    from ctxkit.session import apart
    from ctxkit.sweeps.sweep_runs import sessions_of

    before = kept(baseline, tolerance, update=update)
    now = measured(apart(sessions_of(sessions)), rules)
    return held(before, now, baseline, tolerance)


def kept(baseline: str | os.PathLike[str], tolerance: float, *, update: bool) -> Entries | None:
    """Return the figures to hold against, before anything is measured; None: they are made anew.

    Raises:
        BadArguments: there are none, or the tolerance is no share.
    """
    if not 0 <= tolerance < 1:
        raise BadArguments(f"tolerance= is a share between 0 and 1, not {tolerance}.")
    if update:
        return None
    found = load(baseline)
    if found is None:
        raise BadArguments(
            f"There is no baseline {str(baseline)!r} yet: make it with --update (update=True), "
            "look at it, and keep it with the code."
        )
    return found


def held(
    before: Entries | None, now: Entries, baseline: str | os.PathLike[str], tolerance: float
) -> GateReport:
    """Return the verdict; without figures to hold against, those of now are kept (`--update`)."""
    if before is not None:
        return compared(before, now, tolerance)
    bad = [(label, i, e.error) for label, of in now.items() for i, e in of.items() if e.error]
    save(baseline, now)
    notes = [f"{label} fails on {i}: {why}" for label, i, why in bad]
    n = sum(map(len, now.values()))
    notes.append(f"The baseline {str(baseline)!r} holds {n} run{'s' * (n != 1)} now.")
    return GateReport(compared(now, now).changes, (), tuple(notes))
