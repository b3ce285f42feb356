"""`ctxkit.gate`: measures sessions under rules and compares them with a baseline file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit._internal.distribution import get_version
from ctxkit._internal.formatting import escape_html, sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments, CtxkitError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.experiments.grids import RulesArgument
    from ctxkit.experiments.session_runner import SessionRunner
    from ctxkit.formats.inputs import SessionsLike
    from ctxkit.session.session import Session


def gate(
    sessions: SessionsLike,
    rules: RulesArgument,
    baseline: str | os.PathLike[str],
    *,
    update: bool = False,
    tolerance: float = 0.0,
) -> GateReport:
    """Return what got worse since a baseline was kept, of sessions under rules.

    Looked at are the figures of `experiments.gates.FIGURES`: dollars, peak, needed-later loss, what
    was retained, thrash, unpaid cuts, planted facts. Each is the mean over the sessions that are as
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
    from ctxkit.experiments.sweep_runs import get_recorded_sessions
    from ctxkit.session.session import with_unique_ids

    before = load_baseline_or_fail(baseline, tolerance, update=update)
    now = measure_rules(with_unique_ids(get_recorded_sessions(sessions)), rules)
    return report_against_baseline(before, now, baseline, tolerance)


def load_baseline_or_fail(
    baseline: str | os.PathLike[str], tolerance: float, *, update: bool
) -> FiguresByRules | None:
    """Return the figures to hold against, before anything is measured; None: they are made anew.

    Raises:
        BadArguments: there are none, or the tolerance is no share.
    """
    if not 0 <= tolerance < 1:
        raise BadArguments(f"tolerance= is a share between 0 and 1, not {tolerance}.")
    if update:
        return None
    found = load_baseline(baseline)
    if found is None:
        raise BadArguments(
            f"There is no baseline {str(baseline)!r} yet: make it with --update (update=True), "
            "look at it, and keep it with the code."
        )
    return found


def report_against_baseline(
    before: FiguresByRules | None,
    now: FiguresByRules,
    baseline: str | os.PathLike[str],
    tolerance: float,
) -> GateReport:
    """Return the verdict; without figures to hold against, those of now are kept (`--update`)."""
    if before is not None:
        return compare_with_baseline(before, now, tolerance)
    bad = [(label, i, e.error) for label, of in now.items() for i, e in of.items() if e.error]
    save_baseline(baseline, now)
    notes = [f"{label} fails on {i}: {why}" for label, i, why in bad]
    n = sum(map(len, now.values()))
    notes.append(f"The baseline {str(baseline)!r} holds {n} run{'s' * (n != 1)} now.")
    return GateReport(compare_with_baseline(now, now).changes, (), tuple(notes))


ChangeState = Literal["same", "noise", "better", "worse", "gone"]
_MAY_GO = {"retained"}
"""Figures that are missing where nothing was cut: that is no loss."""
_TINY = 1e-9


class FigureChange(NamedTuple):
    """One figure of one setting, as the mean over the sessions that both know."""

    rules: str
    figure: str
    sessions_n: int
    before: float
    now: float | None
    floor: float
    """What is less than this is no change: the noise, or the tolerance where that is more."""
    state: ChangeState


@dataclass(frozen=True)
class GateReport:
    """What a gate found. `ok` is what CI asks; `frame()` has all rows."""

    changes: tuple[FigureChange, ...]
    faults: tuple[str, ...] = ()
    """What is wrong whatever the baseline says: failed runs, parted pairs, missing sessions."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take keys out of what it says: it lands in the logs of CI."""
        for name in ("faults", "notes"):
            object.__setattr__(self, name, tuple(map(redact, getattr(self, name))))

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """The figures that got worse by more than the noise, and those that are gone."""
        return tuple(c for c in self.changes if c.state in ("worse", "gone"))

    @property
    def ok(self) -> bool:
        """True where nothing got worse and nothing is at fault."""
        return not self.worse and not self.faults

    def check(self) -> None:
        """Raise an AssertionError with the table where something got worse (for tests)."""
        if not self.ok:
            raise AssertionError(self.to_text())

    def frame(self) -> pd.DataFrame:
        """Return one row a figure: rules, figure, sessions_n, before, now, floor, state."""
        import pandas as pd

        return pd.DataFrame(self.changes, columns=list(FigureChange._fields))

    def to_text(self) -> str:
        """Return what was found as lines of at most 80 characters."""
        shown = self.worse or tuple(c for c in self.changes if c.state == "better")
        table = Table(
            _CHANGE_HEADS, tuple(tuple(map(Cell, make_change_cells(c))) for c in shown)
        ).to_text()
        said = [sanitize_line(s, 400) for s in (*self.faults, *self.notes)]
        return "\n".join([*filter(None, [table]), *said, self.sentence])

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        n, faults = len(self.worse), len(self.faults)
        if self.ok and not self.changes:
            return "The gate is passed: nothing is at fault."
        if self.ok:
            return f"The gate is passed: {len(self.changes)} figures, none got worse."
        told = [f"{n} of {len(self.changes)} figures got worse"] if n else []
        told += [f"{faults} fault{'s' * (faults != 1)}"] if faults else []
        return f"The gate is not passed: {' and '.join(told)}."

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape_html(self.to_text())}</pre>"


_CHANGE_HEADS = (
    Column("rules", number=False),
    Column("figure", number=False, firm=True),
    *map(Column, ("before", "now", "change", "noise", "")),
)


def make_change_cells(change: FigureChange) -> tuple[str, ...]:
    """Return a change as it stands in a table."""
    kind = next(f.kind for f in FIGURES if f.name == change.figure)
    moved = None if change.now is None else change.now - change.before
    return (
        sanitize_line(change.rules, 24),
        change.figure,
        format_figure(change.before, kind),
        format_figure(change.now, kind),
        format_figure(moved, kind, sign="+"),
        format_figure(change.floor, kind),
        change.state,
    )


def format_figure(value: float | None, kind: str, sign: str = "") -> str:
    """Return a figure as text."""
    if value is None:
        return "-"
    if kind == "share":
        digits = 1 if not value or abs(value) >= 0.0005 else 3  # a change is not told as none
        return f"{value:{sign}.{digits}%}"
    return f"{value:{sign},.4f}" if kind == "usd" else f"{value:{sign},.1f}"


def compare_with_baseline(
    before: FiguresByRules, now: FiguresByRules, tolerance: float = 0.0
) -> GateReport:
    """Return how figures have changed, as means over the sessions that both know unchanged."""
    changes: list[FigureChange] = []
    faults: list[str] = []
    notes: list[str] = []
    for label, entries in now.items():
        old = before.get(label)
        if old is None:
            faults.append(f"The baseline has no figures of {label}: add them with --update.")
            continue
        both = [(old[i], e) for i, e in entries.items() if i in old and old[i].key == e.key]
        faults += _failed(label, entries, old)
        notes += _not_compared(label, entries, old)
        if not both:
            faults.append(f"{label}: no session of the baseline is here unchanged: see --update.")
        changes += [c for f in FIGURES if (c := _change(label, f, both, tolerance)) is not None]
    return GateReport(tuple(changes), tuple(faults), tuple(notes))


def _change(
    label: str,
    figure: GateFigure,
    both: list[tuple[SessionFigures, SessionFigures]],
    tolerance: float,
) -> FigureChange | None:
    name = figure.name
    pairs = [
        (b.figures[name], n.figures.get(name)) for b, n in both if name in b.figures and not n.error
    ]
    known = [(b, n) for b, n in pairs if n is not None]
    if not pairs or (len(known) < len(pairs) and name in _MAY_GO and not known):
        return None
    if len(known) < len(pairs) and name not in _MAY_GO:
        mean = sum(b.value for b, _ in pairs) / len(pairs)
        return FigureChange(label, name, len(pairs), mean, None, 0.0, "gone")
    n = len(known)
    before, now = sum(b.value for b, _ in known) / n, sum(m.value for _, m in known) / n
    noise = sum(max(b.noise, m.noise) for b, m in known) / n
    floor = max(noise, tolerance * abs(before))
    moved = (now - before) if figure.worse == "up" else (before - now)
    return FigureChange(label, name, n, before, now, floor, _state(moved, floor))


def _state(moved: float, floor: float) -> ChangeState:
    if abs(moved) <= _TINY:
        return "same"
    if abs(moved) <= floor + _TINY:
        return "noise"
    return "worse" if moved > 0 else "better"


def _failed(
    label: str, entries: dict[str, SessionFigures], old: dict[str, SessionFigures]
) -> list[str]:
    return [
        f"{label} failed on {sanitize_line(i, 60)}: {e.error}"
        for i, e in entries.items()
        if e.error and not (i in old and old[i].error)
    ]


def _not_compared(
    label: str, entries: dict[str, SessionFigures], old: dict[str, SessionFigures]
) -> list[str]:
    changed = [i for i, e in entries.items() if i in old and old[i].key != e.key]
    new = [i for i in entries if i not in old]
    gone = [i for i in old if i not in entries]
    told = (("changed", changed), ("not in the baseline", new), ("in the baseline alone", gone))
    return [
        f"{label}: {len(found)} session{'s' * (len(found) != 1)} {why}, not compared: "
        f"{sanitize_line(', '.join(found), 100)}."
        for why, found in told
        if found
    ]


WINDOW_SHIFT = 0.01
"""Share by which the window is made smaller and larger, to see what moves for nothing."""
SEEDS = (0, 1, 2)
"""Of the places at which facts are planted."""
FACTS_PLANTED = 12


class GateFigure(NamedTuple):
    """One figure, and which way is worse."""

    name: str
    worse: Literal["up", "down"]
    kind: Literal["usd", "count", "share"]
    meaning: str


FIGURES = (
    GateFigure("cost_usd", "up", "usd", "dollars of a session: prompts, replies, summaries"),
    GateFigure("peak_tokens", "up", "count", "its largest prompt"),
    GateFigure("needed_later_loss", "up", "share", "of what it used again, what a cut had taken"),
    GateFigure("retained", "down", "share", "of what cuts took, what still stood after them"),
    GateFigure("thrash", "up", "share", "sessions that thrash"),
    GateFigure("unpaid_cuts_n", "up", "count", "cuts that did not pay for themselves"),
    GateFigure("facts_kept", "down", "share", "planted facts that still stand at the end"),
    GateFigure("faults_n", "up", "count", "pairs that were parted, messages out of order"),
    GateFigure("survived", "down", "share", "planted facts that stand after the last round"),
    GateFigure(
        "cliff_round", "down", "count", "compactions after which less than half of them stand"
    ),
    GateFigure("stale_n", "up", "count", "old values that stand beside the new one"),
    GateFigure("wrong_n", "up", "count", "old values that stand where the new one is gone"),
    GateFigure(
        "tokens_left", "up", "share", "of the tokens given, what came back, mean of the rounds"
    ),
)
"""The figures of rules, and from `faults_n` on those of a compactor."""
_SCORED = FIGURES[:6]


class Measurement(msgspec.Struct, frozen=True, array_like=True):
    """A figure and how far it moves where nothing changed that anybody would call a change."""

    value: float
    noise: float = 0.0


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one session under one setting."""

    key: str
    """Changes as soon as the session does."""
    figures: dict[str, Measurement] = {}
    error: str | None = None


FiguresByRules = dict[str, dict[str, SessionFigures]]
"""By rules, then by session."""


def measure_rules(sessions: Sequence[Session], rules: RulesArgument) -> FiguresByRules:
    """Return the figures of sessions under rules.

    The noise of a figure is how far it moves when the window is 1 % smaller or larger (cuts then
    fall elsewhere), of facts how far it moves with the places at which they are said.
    """
    from ctxkit.experiments.grids import label_rules, resolve_rules
    from ctxkit.experiments.session_runner import NamedRules, SessionRunner

    given = resolve_rules(rules)
    settings = [NamedRules.of(label, r) for label, r in zip(label_rules(given), given, strict=True)]
    out: FiguresByRules = {s.label: {} for s in settings}
    for session in sessions:
        bench = SessionRunner(session)
        talks = list(_with_planted_facts(session))
        for setting in settings:
            out[setting.label][session.id] = _measure_session(bench, setting, talks)
    return out


def _measure_session(bench: SessionRunner, setting: Any, talks: list[Any]) -> SessionFigures:
    from ctxkit.experiments.session_runner import RunOptions

    options = RunOptions(loss=True)
    row = bench.row(setting, options)
    if row.get("error"):
        return SessionFigures(key=bench.name, error=str(row["error"]))
    others = [bench.row(s, options) for s in _shifted_windows(setting, bench.limit)]
    figures = {}
    for figure in _SCORED:
        values = [row.get(figure.name), *(o.get(figure.name) for o in others)]
        if values[0] is not None:
            figures[figure.name] = measure_first_with_noise(
                [float(v) for v in values if v is not None]
            )
    kept = [
        share for talk in talks if (share := _surviving_fact_share(talk, setting.rules)) is not None
    ]
    if kept:
        mean = sum(kept) / len(kept)
        figures["facts_kept"] = Measurement(mean, max(abs(k - mean) for k in kept))
    return SessionFigures(key=bench.name, figures=figures)


def measure_first_with_noise(values: Sequence[float]) -> Measurement:
    """Return the first of some values, with how far the others are from it."""
    return Measurement(values[0], max(abs(v - values[0]) for v in values))


def _shifted_windows(setting: Any, limit: int | None) -> Iterable[Any]:
    """Yield the setting in a window that is a little smaller, and a little larger."""
    window = setting.rules.window or limit
    if window is None:
        return
    for share in (1 - WINDOW_SHIFT, 1 + WINDOW_SHIFT):
        with suppress(BadArguments):  # its reserve, or what it keeps, leaves no room in a window
            rules = setting.rules.but(window=max(int(window * share), 1))
            yield setting._replace(rules=rules)


def _with_planted_facts(session: Session) -> Iterable[tuple[Session, Sequence[Any]]]:
    from ctxkit.metrics.retention_checks import make_facts, plant_facts

    for seed in SEEDS:
        said = make_facts(FACTS_PLANTED, seed)
        try:
            yield plant_facts(session, said, seed), said
        except BadArguments:
            return  # no user speaks in its first half: the figure is missing


def _surviving_fact_share(talk: tuple[Session, Sequence[Any]], rules: Any) -> float | None:
    from ctxkit.engine.replay import replay
    from ctxkit.metrics.retention_checks import check_facts_in_view

    session, said = talk
    try:
        found = check_facts_in_view(replay(session, rules), said)
    except CtxkitError:
        return None
    return sum(found.values()) / len(found)


BASELINE_VERSION = 1
"""Of the file; that of the scores stands beside it."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured, and by which kit."""

    gate: int
    scores: int
    ctxkit: str
    entries: dict[str, dict[str, SessionFigures]]


def load_baseline(path: str | os.PathLike[str]) -> FiguresByRules | None:
    """Return the figures of a baseline; None where there is no file.

    Raises:
        BadArguments: the file is no baseline, or one of another version.
    """
    from ctxkit.experiments.session_runner import ROW_VERSION as SCORES

    place = Path(path).expanduser()
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadArguments(f"The baseline {str(place)!r} cannot be read: {why}.") from None
    again = "--update (update=True) makes it anew."
    try:
        told = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        versions = [msgspec.json.decode(told[n]) for n in ("gate", "scores")]
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError):
        raise BadArguments(f"{str(place)!r} is no baseline of a gate: {again}") from None
    if versions != [BASELINE_VERSION, SCORES]:
        raise BadArguments(
            f"The baseline {str(place)!r} was made by another version, whose figures mean something"
            f" else (gate {versions[0]}, scores {versions[1]}; here {BASELINE_VERSION}, "
            f"{SCORES}): {again}"
        )
    try:
        return msgspec.json.decode(data, type=Baseline).entries
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadArguments(f"The baseline {str(place)!r} is damaged ({error}): {again}") from None


def save_baseline(path: str | os.PathLike[str], entries: FiguresByRules) -> None:
    """Write a baseline, whole or not at all; what it holds of other rules and sessions stays.

    Raises:
        StoreError: it cannot be written.
    """
    from ctxkit._internal.safe_fs import write_file as written
    from ctxkit.experiments.session_runner import ROW_VERSION as SCORES

    try:
        kept = load_baseline(path) or {}
    except BadArguments:
        kept = {}
    whole = {
        label: {**kept.get(label, {}), **entries.get(label, {})} for label in {**kept, **entries}
    }
    made = Baseline(gate=BASELINE_VERSION, scores=SCORES, ctxkit=get_version(), entries=whole)
    text = msgspec.json.format(msgspec.json.encode(made, order="sorted"), indent=1)
    written(Path(path).expanduser(), [text, b"\n"])
