"""What a gate looks at: a few figures of each session, each with how far it moves for no reason."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit.errors import BadArguments, CtxkitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session import Session
    from ctxkit.sweeps.batches import Bench
    from ctxkit.sweeps.grids import Several

SHAKE = 0.01
"""Share by which the window is made smaller and larger, to see what moves for nothing."""
SEEDS = (0, 1, 2)
"""Of the places at which facts are planted."""
FACTS = 12


class Figure(NamedTuple):
    """One figure, and which way is worse."""

    name: str
    worse: Literal["up", "down"]
    kind: Literal["usd", "count", "share"]
    meaning: str


FIGURES = (
    Figure("cost_usd", "up", "usd", "dollars of a session: prompts, replies, summaries"),
    Figure("peak_tokens", "up", "count", "its largest prompt"),
    Figure("needed_later_loss", "up", "share", "of what it used again, what a cut had taken"),
    Figure("retained", "down", "share", "of what cuts took, what still stood after them"),
    Figure("thrash", "up", "share", "sessions that thrash"),
    Figure("unpaid_cuts_n", "up", "count", "cuts that did not pay for themselves"),
    Figure("facts_kept", "down", "share", "planted facts that still stand at the end"),
    Figure("faults_n", "up", "count", "pairs that were parted, messages out of order"),
    Figure("survived", "down", "share", "planted facts that stand after the last round"),
    Figure("cliff_round", "down", "count", "compactions after which less than half of them stand"),
    Figure("stale_n", "up", "count", "old values that stand beside the new one"),
    Figure("wrong_n", "up", "count", "old values that stand where the new one is gone"),
    Figure("tokens_left", "up", "share", "of the tokens given, what came back, mean of the rounds"),
)
"""The figures of rules, and from `faults_n` on those of a compactor."""
_SCORED = FIGURES[:6]


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """A figure and how far it moves where nothing changed that anybody would call a change."""

    value: float
    noise: float = 0.0


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one session under one setting."""

    key: str
    """Changes as soon as the session does."""
    figures: dict[str, Reading] = {}
    error: str | None = None


Entries = dict[str, dict[str, Entry]]
"""By rules, then by session."""


def measured(sessions: Sequence[Session], rules: Several) -> Entries:
    """Return the figures of sessions under rules.

    The noise of a figure is how far it moves when the window is 1 % smaller or larger (cuts then
    fall elsewhere), of facts how far it moves with the places at which they are said.
    """
    from ctxkit.sweeps.batches import Bench, NamedRules
    from ctxkit.sweeps.grids import labels, rules_of

    given = rules_of(rules)
    settings = [NamedRules.of(label, r) for label, r in zip(labels(given), given, strict=True)]
    out: Entries = {s.label: {} for s in settings}
    for session in sessions:
        bench = Bench(session)
        talks = list(_planted(session))
        for setting in settings:
            out[setting.label][session.id] = _entry(bench, setting, talks)
    return out


def _entry(bench: Bench, setting: Any, talks: list[Any]) -> Entry:
    from ctxkit.sweeps.batches import Options

    options = Options(loss=True)
    row = bench.row(setting, options)
    if row.get("error"):
        return Entry(key=bench.name, error=str(row["error"]))
    others = [bench.row(s, options) for s in _shaken(setting, bench.limit)]
    figures = {}
    for figure in _SCORED:
        values = [row.get(figure.name), *(o.get(figure.name) for o in others)]
        if values[0] is not None:
            figures[figure.name] = measure([float(v) for v in values if v is not None])
    kept = [share for talk in talks if (share := _kept(talk, setting.rules)) is not None]
    if kept:
        mean = sum(kept) / len(kept)
        figures["facts_kept"] = Reading(mean, max(abs(k - mean) for k in kept))
    return Entry(key=bench.name, figures=figures)


def measure(values: Sequence[float]) -> Reading:
    """Return the first of some values, with how far the others are from it."""
    return Reading(values[0], max(abs(v - values[0]) for v in values))


def _shaken(setting: Any, limit: int | None) -> Iterable[Any]:
    """Yield the setting in a window that is a little smaller, and a little larger."""
    window = setting.rules.window or limit
    if window is None:
        return
    for share in (1 - SHAKE, 1 + SHAKE):
        with suppress(BadArguments):  # its reserve, or what it keeps, leaves no room in a window
            rules = setting.rules.but(window=max(int(window * share), 1))
            yield setting._replace(rules=rules)


def _planted(session: Session) -> Iterable[tuple[Session, Sequence[Any]]]:
    from ctxkit.metrics.planted import facts, plant

    for seed in SEEDS:
        said = facts(FACTS, seed)
        try:
            yield plant(session, said, seed), said
        except BadArguments:
            return  # no user speaks in its first half: the figure is missing


def _kept(talk: tuple[Session, Sequence[Any]], rules: Any) -> float | None:
    from ctxkit.metrics.planted import available
    from ctxkit.replays import replay

    session, said = talk
    try:
        found = available(replay(session, rules), said)
    except CtxkitError:
        return None
    return sum(found.values()) / len(found)
