"""Regression gate (`ctxkit.gate`): figures of sessions under rules against a baseline file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit._internal.distribution_version_and_conflicts import get_version
from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_change,
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.redaction import redact
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments, CtxkitError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.experiments.setting_grids_and_labels import RulesArgument
    from ctxkit.experiments.sweep_workers import SessionRunner
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import Session


def gate(
    sessions: SessionsLike,
    rules: RulesArgument,
    baseline: str | os.PathLike[str],
    *,
    update: bool = False,
    tolerance: float = 0.0,
    exam: bool = False,
) -> GateReport:
    """Compare the figures of sessions under rules with a baseline file.

    The figures are those of `experiments.gates.regression_gate.FIGURES`, each the mean over the
    sessions that have not changed since the baseline. A figure got worse where it moved by more
    than its noise: how far it moves when the window is 1 % smaller or larger, and for planted facts
    when they are planted elsewhere.

    Args:
        sessions: recorded sessions, paths of logs, or a folder of them.
        rules: rules, policies, preset names, or ``"all"``.
        baseline: a JSON file, kept under version control.
        update: write the new figures into the baseline instead of comparing with it.
        tolerance: relative change that is accepted where it is larger than the noise.
        exam: also ask exact questions about what a compaction by the rules takes away
            (`ck.experiments.exam`): the figure `exam_answerable`.

    Returns:
        A report: `ok` is False where a figure got worse or a run failed; `frame()` has one row per
        figure.

    Raises:
        BadArguments: the baseline is missing (without `update`), damaged or of another version, or
            the tolerance is not between 0 and 1.
        StoreError: the baseline cannot be written.

    Example:
        >>> import ctxkit as ck, tempfile
        >>> path = tempfile.mkdtemp() + "/baseline.json"
        >>> ck.gate(ck.samples.path(), ["none"], path, update=True).ok
        True
    """
    from ctxkit.experiments.sweep_runs import replace_replays_by_recorded_sessions
    from ctxkit.session.session import with_unique_ids

    before = load_baseline_or_fail(baseline, tolerance, update=update)
    now = measure_rules(
        with_unique_ids(replace_replays_by_recorded_sessions(sessions)), rules, exam=exam
    )
    report = compare_with_or_write_baseline(before, now, baseline, tolerance)
    return replace(report, untested=_list_untested(now))


def _list_untested(now: FiguresByRules) -> tuple[str, ...]:
    """Return a sentence for each setting that compacted none of its sessions."""
    return tuple(
        f"{label} never compacted in {pluralize(len(entries), 'session')}, so the gate says nothing"
        " about it."
        for label, entries in now.items()
        if entries and not any(e.compacts or e.error for e in entries.values())
    )


def load_baseline_or_fail(
    baseline: str | os.PathLike[str], tolerance: float, *, update: bool
) -> FiguresByRules | None:
    """Return the figures of the baseline; None where it is to be written again.

    Args:
        baseline: path of its file.
        tolerance: checked here, before anything is measured.
        update: the file is to be written again.

    Returns:
        Figures by rules and session.

    Raises:
        BadArguments: there is no baseline, or the tolerance is not between 0 and 1.
    """
    if not 0 <= tolerance < 1:
        raise BadArguments(f"tolerance= is a share between 0 and 1, not {tolerance}.")
    if update:
        return None
    figures = load_baseline(baseline)
    if figures is None:
        raise BadArguments(
            f"There is no baseline {str(baseline)!r} yet: make it with --update (update=True), "
            "look at it, and keep it with the code."
        )
    return figures


def compare_with_or_write_baseline(
    before: FiguresByRules | None,
    now: FiguresByRules,
    baseline: str | os.PathLike[str],
    tolerance: float,
) -> GateReport:
    """Return the comparison with the baseline; where `before` is None, write the new figures.

    Args:
        before: figures of the baseline, by rules and session; None: there is none to compare with.
        now: figures that were measured.
        baseline: path of its file.
        tolerance: relative change that is accepted where it is larger than the noise.

    Returns:
        The report; after writing it says how many runs the file holds.
    """
    if before is not None:
        return compare_with_baseline(before, now, tolerance)
    bad = [(label, i, e.error) for label, of in now.items() for i, e in of.items() if e.error]
    save_baseline(baseline, now)
    notes = [f"{label} fails on {i}: {why}" for label, i, why in bad]
    n = sum(map(len, now.values()))
    notes.append(f"The baseline {str(baseline)!r} holds {n} run{'s' * (n != 1)} now.")
    return GateReport(compare_with_baseline(now, now).changes, (), tuple(notes))


ChangeState = Literal["same", "noise", "better", "worse", "gone"]
_OPTIONAL_FIGURES = {"retained"}
"""Figures that may be missing, because nothing was compacted."""
_EPSILON = 1e-9


class FigureChange(NamedTuple):
    """Change of one figure of one setting, as the mean over the sessions in both measurements."""

    rules: str
    figure: str
    sessions_n: int
    before: float
    now: float | None
    floor: float
    """Smallest change that counts: the larger of noise and tolerance."""
    state: ChangeState


@dataclass(frozen=True)
class GateReport:
    """Result of a gate: changes of figures, faults and notes; `ok` is the verdict for CI."""

    changes: tuple[FigureChange, ...]
    faults: tuple[str, ...] = ()
    """Faults that fail the gate by themselves: failed runs, broken pairs, missing sessions."""
    notes: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    """Sentences on what compacted nothing, so that a passed gate says nothing about it."""

    def __post_init__(self) -> None:
        """Redact secrets, because the report is printed to CI logs."""
        for name in ("faults", "notes"):
            object.__setattr__(self, name, tuple(map(redact, getattr(self, name))))

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """Figures that got worse by more than the noise, and figures that disappeared."""
        return tuple(c for c in self.changes if c.state in ("worse", "gone"))

    @property
    def ok(self) -> bool:
        """True where no figure got worse and there are no faults."""
        return not self.worse and not self.faults

    def check(self) -> None:
        """Check that the gate is passed, as a test does.

        Raises:
            AssertionError: it is not; the message is the report as text.
        """
        if not self.ok:
            raise AssertionError(self.to_text())

    def frame(self) -> pd.DataFrame:
        """Return one row per figure; the columns are the fields of `FigureChange`."""
        import pandas as pd

        return pd.DataFrame(self.changes, columns=list(FigureChange._fields))

    def to_text(self) -> str:
        """Return changes, faults, notes and verdict as lines of text."""
        changes = self.worse or tuple(c for c in self.changes if c.state == "better")
        table = Table(
            _CHANGE_HEADS, tuple(tuple(map(Cell, make_change_cells(c))) for c in changes)
        ).to_text()
        messages = [sanitize_line(s, 400) for s in (*self.faults, *self.notes, *self.untested)]
        return "\n".join([*filter(None, [table]), *messages, self.sentence])

    @property
    def sentence(self) -> str:
        """The verdict as a sentence."""
        n, faults = len(self.worse), len(self.faults)
        if self.ok and self.untested:
            return "Nothing got worse, but not all was tested: see above."
        if self.ok and not self.changes:
            return "The gate is passed: nothing is at fault."
        if self.ok:
            return f"The gate is passed: {len(self.changes)} figures, none got worse."
        reasons = [f"{n} of {len(self.changes)} figures got worse"] if n else []
        reasons += [f"{faults} fault{'s' * (faults != 1)}"] if faults else []
        return f"The gate is not passed: {' and '.join(reasons)}."

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
    """Return the cells of a change for a table."""
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
    """Return a figure of kind ``usd``, ``count`` or ``share`` as text; None gives ``-``.

    Args:
        value: the figure in dollars, in units, or as a share.
        kind: kind of the figure.
        sign: `+` writes a sign before positive values, too.

    Returns:
        Dollars with four digits after the point, counts with one, shares in per cent.

    Example:
        >>> from ctxkit.experiments.gates.regression_gate import format_figure
        >>> format_figure(0.125, "share"), format_figure(3.5, "usd"), format_figure(None, "usd")
        ('12.5 %', '3.5000', '-')
    """
    if value is None:
        return "-"
    if kind == "share":
        digits = (
            1 if not value or abs(value) >= 0.0005 else 3
        )  # a small change must not read as zero
        return format_change(value, digits) if sign else format_percent(value, digits)
    return f"{value:{sign},.4f}" if kind == "usd" else f"{value:{sign},.1f}"


def compare_with_baseline(
    before: FiguresByRules, now: FiguresByRules, tolerance: float = 0.0
) -> GateReport:
    """Compare figures as means over the sessions that are unchanged in both measurements.

    Args:
        before: figures of the baseline, by rules.
        now: the new figures.
        tolerance: relative change, from 0 to 1, that is accepted where it is larger than the noise.

    Returns:
        The changes, and what could not be compared.
    """
    changes: list[FigureChange] = []
    faults: list[str] = []
    notes: list[str] = []
    for label, entries in now.items():
        old = before.get(label)
        if old is None:
            faults.append(f"The baseline has no figures of {label}: add them with --update.")
            continue
        # the key of an entry changes with its session, so only unchanged sessions are compared
        both = [(old[i], e) for i, e in entries.items() if i in old and old[i].key == e.key]
        faults += _list_failures(label, entries, old)
        notes += _list_not_compared(label, entries, old)
        if not both:
            faults.append(f"{label}: no session of the baseline is here unchanged: see --update.")
        changes += [
            c for f in FIGURES if (c := _compare_figure(label, f, both, tolerance)) is not None
        ]
    return GateReport(tuple(changes), tuple(faults), tuple(notes))


# Change detection per figure: means over paired sessions, and a floor below which a change is
# noise. The floor is the mean over sessions of the larger of both measured noises, or the tolerance
# times the old mean where that is larger. Changes within the floor never fail the gate, in either
# direction. A figure that some sessions no longer have is `gone`, which fails the gate.
def _compare_figure(
    label: str,
    figure: GateFigure,
    both: list[tuple[SessionFigures, SessionFigures]],
    tolerance: float,
) -> FigureChange | None:
    name = figure.name
    # a figure that some sessions lost is gone, unless it is one that may be missing
    pairs = [
        (b.figures[name], n.figures.get(name)) for b, n in both if name in b.figures and not n.error
    ]
    measured = [(b, n) for b, n in pairs if n is not None]
    if not pairs or (len(measured) < len(pairs) and name in _OPTIONAL_FIGURES and not measured):
        return None
    if len(measured) < len(pairs) and name not in _OPTIONAL_FIGURES:
        mean = sum(b.value for b, _ in pairs) / len(pairs)
        return FigureChange(label, name, len(pairs), mean, None, 0.0, "gone")
    n = len(measured)
    before, now = sum(b.value for b, _ in measured) / n, sum(m.value for _, m in measured) / n
    noise = sum(max(b.noise, m.noise) for b, m in measured) / n
    floor = max(noise, tolerance * abs(before))
    # positive: worse, whatever the direction of the figure
    worsening = (now - before) if figure.worse == "up" else (before - now)
    return FigureChange(label, name, n, before, now, floor, _classify_change(worsening, floor))


def _classify_change(worsening: float, floor: float) -> ChangeState:
    if abs(worsening) <= _EPSILON:
        return "same"
    if abs(worsening) <= floor + _EPSILON:
        return "noise"
    return "worse" if worsening > 0 else "better"


def _list_failures(
    label: str, entries: dict[str, SessionFigures], old: dict[str, SessionFigures]
) -> list[str]:
    return [
        f"{label} failed on {sanitize_line(i, 60)}: {e.error}"
        for i, e in entries.items()
        if e.error and not (i in old and old[i].error)
    ]


def _list_not_compared(
    label: str, entries: dict[str, SessionFigures], old: dict[str, SessionFigures]
) -> list[str]:
    changed = [i for i, e in entries.items() if i in old and old[i].key != e.key]
    new = [i for i in entries if i not in old]
    missing = [i for i in old if i not in entries]
    groups = (
        ("changed", changed),
        ("not in the baseline", new),
        ("in the baseline alone", missing),
    )
    return [
        f"{label}: {len(sessions)} session{'s' * (len(sessions) != 1)} {why}, not compared: "
        f"{sanitize_line(', '.join(sessions), 100)}."
        for why, sessions in groups
        if sessions
    ]


WINDOW_SHIFT = 0.01
"""Relative change of the window, down and up, that measures the noise of a figure."""
SEEDS = (0, 1, 2)
"""Seeds of the positions at which facts are planted."""
FACTS_PLANTED = 12


class GateFigure(NamedTuple):
    """A figure of the gate with the direction that is worse."""

    name: str
    worse: Literal["up", "down"]
    kind: Literal["usd", "count", "share"]
    meaning: str


FIGURES = (
    GateFigure("cost_usd", "up", "usd", "dollars of a session: prompts, replies, summaries"),
    GateFigure("peak_tokens", "up", "count", "its largest prompt"),
    GateFigure("needed_later_loss", "up", "share", "of what it used again, what a cut had taken"),
    GateFigure(
        "retained", "down", "share", "of what compactions took, what still stood after them"
    ),
    GateFigure("is_thrashing", "up", "share", "sessions that thrash"),
    GateFigure("not_paid_back_n", "up", "count", "compactions that were not paid back"),
    GateFigure("refused_calls_n", "up", "count", "calls that the provider would refuse"),
    GateFigure("facts_kept", "down", "share", "planted facts that still stand at the end"),
    GateFigure("exam_answerable", "down", "share", "answers shown or fetchable after a cut"),
    GateFigure("read_faults_n", "up", "count", "pairs that were parted, messages out of order"),
    GateFigure("survived", "down", "share", "planted facts that stand after the last round"),
    GateFigure(
        "cliff_round", "down", "count", "compactions after which less than half of them stand"
    ),
    GateFigure("stale_values_n", "up", "count", "old values that stand beside the new one"),
    GateFigure("outdated_n", "up", "count", "old values that stand where the new one is gone"),
    GateFigure(
        "tokens_left", "up", "share", "of the tokens given, what came back, mean of the rounds"
    ),
)
"""The figures of rules, and from `read_faults_n` on those of a compactor."""
_SCORE_FIGURES = FIGURES[:7]


class FigureWithNoise(msgspec.Struct, frozen=True, array_like=True):
    """A figure and its noise: its spread under changes that do not matter."""

    value: float
    noise: float = 0.0


class SessionFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one session under one setting."""

    key: str
    """Hash of the session's content."""
    figures: dict[str, FigureWithNoise] = {}
    error: str | None = None
    compacts: bool = False
    """True where something was compacted."""


FiguresByRules = dict[str, dict[str, SessionFigures]]
"""Figures by label of the rules, then by session id."""


def measure_rules(
    sessions: Sequence[Session], rules: RulesArgument, *, exam: bool = False
) -> FiguresByRules:
    """Measure the figures of sessions under rules, each with its noise.

    The noise of a score is its largest change when the window is `WINDOW_SHIFT` smaller or larger,
    so that compactions fall elsewhere. The noise of planted facts is their spread over `SEEDS`.

    Args:
        sessions: the sessions to replay.
        rules: one or more rules, as `ctxkit.compare` takes them.
        exam: measure the survival of planted facts too.

    Returns:
        Figures by the label of the rules and by session.
    """
    from ctxkit.experiments.setting_grids_and_labels import label_rules, resolve_rules_list
    from ctxkit.experiments.sweep_workers import NamedRules, SessionRunner

    rules_list = resolve_rules_list(rules)
    settings = [
        NamedRules.of(label, r)
        for label, r in zip(label_rules(rules_list), rules_list, strict=True)
    ]
    figures: FiguresByRules = {s.label: {} for s in settings}
    for session in sessions:
        runner = SessionRunner(session)
        planted = list(_with_planted_facts(session))
        for setting in settings:
            measured = _measure_session(runner, setting, planted)
            if exam and not measured.error:
                measured = add_exam_share(measured, session, setting.rules)
            figures[setting.label][session.id] = measured
    return figures


def add_exam_share(measured: SessionFigures, session: Session, candidate: Any) -> SessionFigures:
    """Return the figures with the share of exam questions that a way leaves answerable.

    Args:
        measured: figures of one session under the candidate.
        session: a session with text.
        candidate: rules, or messages of a compactor.

    Returns:
        The figures as they are where no exam can be made of the session.
    """
    from ctxkit.experiments.exams_comparing_ways_to_compact import measure_answerable_share

    share = measure_answerable_share(session, candidate)
    if share is None:
        return measured
    return msgspec.structs.replace(
        measured, figures={**measured.figures, "exam_answerable": FigureWithNoise(share)}
    )


def _measure_session(runner: SessionRunner, setting: Any, planted: list[Any]) -> SessionFigures:
    from ctxkit.experiments.sweep_workers import SweepScoreOptions

    options = SweepScoreOptions(loss=True)
    row = runner.row(setting, options)
    if row.get("error"):
        return SessionFigures(key=runner.name, error=str(row["error"]))
    # the same setting in slightly other windows shows how far figures move without a cause
    shifted_rows = [runner.row(s, options) for s in _shifted_windows(setting, runner.limit)]
    figures = {}
    for figure in _SCORE_FIGURES:
        values = [row.get(figure.name), *(o.get(figure.name) for o in shifted_rows)]
        if values[0] is not None:
            figures[figure.name] = take_first_with_largest_deviation(
                [float(v) for v in values if v is not None]
            )
    shares = [
        share
        for session_facts in planted
        if (share := _surviving_fact_share(session_facts, setting.rules)) is not None
    ]
    if shares:
        mean = sum(shares) / len(shares)
        figures["facts_kept"] = FigureWithNoise(mean, max(abs(k - mean) for k in shares))
    prunes = setting.rules.pruning is not None and row.get("hidden_messages_n")
    compacts = bool(row.get("compactions_n") or prunes)
    return SessionFigures(key=runner.name, figures=figures, compacts=compacts)


def take_first_with_largest_deviation(repeats: Sequence[float]) -> FigureWithNoise:
    """Return the first value, with the largest distance of the others as its noise.

    Args:
        repeats: results of repeated measurements; the first one is that of the unchanged session.

    Returns:
        The figure with its noise, in the unit of the values.

    Example:
        >>> from ctxkit.experiments.gates.regression_gate import take_first_with_largest_deviation
        >>> take_first_with_largest_deviation([10.0, 11.0, 8.0]).noise
        2.0
    """
    return FigureWithNoise(
        repeats[0],
        max(abs(v - repeats[0]) for v in repeats),
    )


def _shifted_windows(setting: Any, limit: int | None) -> Iterable[Any]:
    """Yield the setting with a slightly smaller and a slightly larger window."""
    window = setting.rules.window or limit
    if window is None:
        return
    for share in (1 - WINDOW_SHIFT, 1 + WINDOW_SHIFT):
        with suppress(BadArguments):  # reserve and kept tokens do not fit this window
            rules = setting.rules.but(window=max(int(window * share), 1))
            yield setting._replace(rules=rules)


def _with_planted_facts(session: Session) -> Iterable[tuple[Session, Sequence[Any]]]:
    from ctxkit.metrics.planted_facts_and_compaction_audits import make_facts, plant_facts

    for seed in SEEDS:
        facts = make_facts(FACTS_PLANTED, seed)
        try:
            yield plant_facts(session, facts, seed), facts
        except BadArguments:
            return  # no user message in the first half: the figure is missing


def _surviving_fact_share(session_facts: tuple[Session, Sequence[Any]], rules: Any) -> float | None:
    from ctxkit.engine.replay import replay
    from ctxkit.metrics.planted_facts_and_compaction_audits import check_facts_in_prompt

    session, facts = session_facts
    try:
        survives = check_facts_in_prompt(replay(session, rules), facts)
    except CtxkitError:
        return None
    return sum(survives.values()) / len(survives)


BASELINE_VERSION = 1
"""Version of the baseline file; the file also holds `ROW_VERSION` of the scores."""


class GateBaseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a baseline file."""

    gate: int
    scores: int
    ctxkit: str
    entries: dict[str, dict[str, SessionFigures]]


def load_baseline(path: str | os.PathLike[str]) -> FiguresByRules | None:
    """Read the figures of a baseline file; None where there is no file.

    Raises:
        BadArguments: the file is unreadable, damaged or of another version.
    """
    from ctxkit.experiments.sweep_workers import ROW_VERSION as SCORES

    file = Path(path).expanduser()
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadArguments(f"The baseline {str(file)!r} cannot be read: {why}.") from None
    # versions are read first, since a file of another version need not have this structure
    advice = "--update (update=True) makes it anew."
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        versions = [msgspec.json.decode(fields[n]) for n in ("gate", "scores")]
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError):
        raise BadArguments(f"{str(file)!r} is no baseline of a gate: {advice}") from None
    if versions != [BASELINE_VERSION, SCORES]:
        raise BadArguments(
            f"The baseline {str(file)!r} was made by another version, whose figures mean something"
            f" else (gate {versions[0]}, scores {versions[1]}; here {BASELINE_VERSION}, "
            f"{SCORES}): {advice}"
        )
    try:
        return msgspec.json.decode(data, type=GateBaseline).entries
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadArguments(f"The baseline {str(file)!r} is damaged ({error}): {advice}") from None


def save_baseline(path: str | os.PathLike[str], entries: FiguresByRules) -> None:
    """Write a baseline atomically; figures of other rules and sessions in the file stay.

    Args:
        path: the baseline file.
        entries: figures by rules and session.

    Raises:
        StoreError: the file cannot be written.
    """
    from ctxkit._internal.safe_files import write_file_atomically as written
    from ctxkit.experiments.sweep_workers import ROW_VERSION as SCORES

    try:
        old = load_baseline(path) or {}
    except BadArguments:
        old = {}
    merged = {
        label: {**old.get(label, {}), **entries.get(label, {})} for label in {**old, **entries}
    }
    baseline = GateBaseline(
        gate=BASELINE_VERSION, scores=SCORES, ctxkit=get_version(), entries=merged
    )
    text = msgspec.json.format(msgspec.json.encode(baseline, order="sorted"), indent=1)
    written(Path(path).expanduser(), [text, b"\n"])
