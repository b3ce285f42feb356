"""The gate of a compactor of one's own: what outlives its rounds, beside a kept baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.gates.gate_verdicts import GateReport
from ctxkit.gates.holding import held, kept
from ctxkit.gates.programs import command
from ctxkit.gates.readings import Entry, Reading, measure
from ctxkit.gates.rounds import Survival, survival

if TYPE_CHECKING:
    import os

    from ctxkit.gates.programs import Compactor
    from ctxkit.readers.given import GivenAll
    from ctxkit.session import Session

LABEL = "compacted"


@dataclass(frozen=True, repr=False)
class CompactorReport(GateReport):
    """A verdict, with what outlived the rounds on each session."""

    survivals: dict[str, Survival] | None = None

    def to_text(self) -> str:
        """Return the rounds of each session, then the verdict."""
        told = [f"{name}\n{found.to_text()}" for name, found in (self.survivals or {}).items()]
        return "\n\n".join([*told, super().to_text()])


def gate_compactor(
    compact: Compactor | str,
    sessions: GivenAll | None = None,
    baseline: str | os.PathLike[str] | None = None,
    *,
    rounds: int = 6,
    repeat: int = 1,
    timeout: float = 120.0,
    least: float = 0.0,
    update: bool = False,
    tolerance: float = 0.0,
) -> CompactorReport:
    """Return whether a compactor parts pairs or changes the order, and which facts outlive it.

    Args:
        compact: a function from messages to messages (Chat Completions, as dicts), or a command
            that gets them as JSON on stdin and prints what is left; no shell is asked.
        sessions: whose messages it gets; None: the sample that comes with the kit.
        baseline: a JSON file of what was measured before; None: only faults and `least` count.
        rounds: how often it is asked of each session.
        repeat: how often all of that is done: how far figures differ is their noise, which matters
            where a model writes summaries.
        timeout: seconds that a command may take, each time.
        least: share of the facts that must stand after the last round.
        update: write the figures of now into the baseline.
        tolerance: as in `gate`.

    Raises:
        BadArguments: it cannot be judged: it fails, hangs, or gives back no messages.
    """
    if repeat < 1 or not 0 <= least <= 1:
        raise BadArguments("repeat= is 1 or more, least= a share between 0 and 1.")
    if update and baseline is None:
        raise BadArguments("update= writes a baseline: name its file with baseline=.")
    before = None if baseline is None else kept(baseline, tolerance, update=update)
    given = _sessions(sessions)
    work = command(compact, timeout) if isinstance(compact, str) else compact
    found = {s.id: [survival(work, s, rounds, seed=i) for i in range(repeat)] for s in given}
    now = {LABEL: {s.id: _entry(s, found[s.id], rounds) for s in given}}
    faults = tuple(
        dict.fromkeys(f for every in found.values() for one in every for f in one.faults)
    )
    report = GateReport(()) if baseline is None else held(before, now, baseline, tolerance)
    survived = {n: e.figures["survived"].value for n, e in now[LABEL].items()}
    faults += tuple(
        f"{n}: {share:.0%} of the facts outlive {rounds} rounds, less than {least:.0%}."
        for n, share in survived.items()
        if share < least
    )
    first = {name: every[0] for name, every in found.items()}
    return CompactorReport(report.changes, (*faults, *report.faults), report.notes, survivals=first)


def _sessions(sessions: GivenAll | None) -> list[Session]:
    from ctxkit import samples
    from ctxkit.readers.given import as_sessions
    from ctxkit.session import apart

    return apart(as_sessions(samples.path() if sessions is None else sessions))


def _entry(session: Session, found: list[Survival], rounds: int) -> Entry:
    from ctxkit.sweeps.batches import key_of

    figures: dict[str, Reading] = {
        "faults_n": measure([float(len(s.faults)) for s in found]),
        "survived": measure([s.survived for s in found]),
        "cliff_round": measure([float(s.cliff) for s in found]),
        "stale_n": measure([float(s.rounds[-1].stale_n) for s in found]),
        "wrong_n": measure([float(s.rounds[-1].wrong_n) for s in found]),
        "tokens_left": measure([s.tokens_left for s in found]),
    }
    return Entry(key=f"{key_of(session)}-{rounds}", figures=figures)
