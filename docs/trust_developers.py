"""Section of docs/trust.md on predictions for developers without logs in the training data."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit.engine.cache_model.interval_calibration import (
    LONG_CALLS,
    MIN_DEVELOPERS,
    compute_interval_stretch,
)
from ctxkit.engine.cache_model.miss_rate_estimator import MissRateEstimator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.engine.cache_model.training_counts import Evidence, SessionMissCounts

ESTABLISHED = 10
"""Number of developers from which a figure counts as established."""
BOOTSTRAP_SAMPLES = 400
MODES: dict[Evidence, str] = {
    "folder": "a folder of logs, for the time of the last one",
    "alone": "the log alone",
    "known": "the developer's other logs as training data",
}
REPOSITORY_LICENCES = {
    "EntityProcess/agentv": "MIT",
    "MandavkarPranjal/prsui": "MIT",
    "Monotoba/OpenPrintKit": "MIT",
    "Nomos-N4s/nomos": "Apache-2.0",
    "PackmindHub/context-evaluator": "Apache-2.0",
    "badlogic/pi-mono": "MIT",
    "darthzen/zoia-canvas": "GPL-3.0",
    "ebridges/wakil": "MIT",
    "entireio/cli": "MIT",
    "entireio/entire-graph": "MIT",
    "entireio/git-sync": "MIT",
    "flop-labs/technocore-chat": "Apache-2.0",
    "gmeligio/flutter-docker-image": "MIT",
    "jazzyalex/agent-sessions": "MIT",
    "jdx/communique": "MIT",
    "jdx/fnox": "MIT",
    "jdx/hk": "MIT",
    "jdx/mise": "MIT",
    "keparlak/NumWordify": "MIT",
    "marot/spotter": "MIT",
    "moredip/session-share": "MIT",
    "obra/episodic-memory": "MIT",
    "preloopdev/preloop": "MIT",
    "teslamint/entirecontext": "MIT",
}
"""Licences of the public repositories whose logs are training data, with CTXKIT_SESSIONS."""


class JudgedRow(NamedTuple):
    """A session of the table: its prediction from other developers, compared with its record."""

    row: SessionMissCounts
    teachers: int
    error: float
    """Absolute value of predicted / recorded - 1."""
    lifetime: float
    """The error of a prediction by the cache's lifetime alone."""
    low: float | None
    """Lower end of the interval, as predicted / recorded - 1; None: there is none."""
    high: float | None

    @property
    def is_covered(self) -> bool:
        """True where the interval contains the record."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


def judge_sessions(rows: Sequence[SessionMissCounts], evidence: Evidence) -> list[JudgedRow]:
    """Return the judged sessions, without errors and stretches of their own developers."""
    judged = []
    for row in rows:
        past = row.past
        if past is None:
            continue
        bill = past.get_bill(evidence)
        own_sessions = (
            [r for r in rows if r.owner == row.owner and r is not row]
            if evidence == "known"
            else []
        )
        rates = MissRateEstimator([r for r in rows if r.owner != row.owner], row, own=own_sessions)
        stretch = compute_interval_stretch(rates, row.calls, evidence) if past.teachers else None
        low = high = None
        if stretch is not None:
            low, high = np.expm1(
                [bill.error - bill.below * stretch[0], bill.error + bill.above * stretch[1]]
            ).tolist()
        lifetime = abs(float(np.expm1(past.lifetime)))
        error = (
            abs(float(np.expm1(bill.error))) if past.teachers or evidence == "known" else lifetime
        )
        judged.append(JudgedRow(row, past.teachers, error, lifetime, low, high))
    return judged


def describe_training_table(rows: Sequence[SessionMissCounts]) -> str:
    """Return the paragraph and the table on the training data."""
    tools = Counter(row.tool for row in rows)
    tool_counts = ", ".join(f"{n} of {tool}" for tool, n in sorted(tools.items()))
    owners_n = len({row.owner for row in rows})
    names_by_licence: dict[str, list[str]] = {}
    for name, licence in REPOSITORY_LICENCES.items():
        names_by_licence.setdefault(licence, []).append(name)
    table = (
        ("sessions and subagents", f"{len(rows)}: {tool_counts}"),
        ("developers", f"{owners_n}: the user name in the paths of a log, or else its repository"),
        ("logs", "those of CTXKIT_SESSIONS and of the public repositories below"),
        *((licence, ", ".join(names)) for licence, names in names_by_licence.items()),
    )
    lines = [f"| {name} | {value} |" for name, value in table]
    return (
        "Sessions of 8 calls or more whose models have a price are predicted from the logs of "
        "**other developers**, without their own cache reads "
        "([why](decisions/011-what-a-prediction-is-told.md)). The training data are counts, rates "
        "and sizes, without text:\n\n"
        "| training data | |\n| --- | --- |\n" + "\n".join(lines) + "\n"
    )


def format_section(rows: Sequence[SessionMissCounts]) -> str:
    """Return the section in Markdown: kinds of evidence and session, then each developer."""
    judged: dict[Evidence, list[JudgedRow]] = {mode: judge_sessions(rows, mode) for mode in MODES}
    taught = {
        mode: [j for j in sessions_of_mode if j.teachers >= MIN_DEVELOPERS]
        for mode, sessions_of_mode in judged.items()
    }
    lines = ["### Developers never seen\n"]
    head = f"The first table has kinds of session with {MIN_DEVELOPERS} or more other developers. A"
    lines += [f"{head} figure from fewer than {ESTABLISHED} developers is **not established**.\n"]
    lines += _format_head("evidence")
    for mode, label in MODES.items():
        lines += [_format_line(f"{label}: 8 calls or more", taught[mode])]
        lines += [
            _format_line(f"{label}: {LONG_CALLS} or more", select_long_sessions(taught[mode]))
        ]
    folder = judged["folder"]
    lines += ["\nBy kind of session, with the time of the last log:\n", *_format_head("kind")]
    for label, is_kind in KINDS.items():
        lines.append(_format_line(label, [j for j in folder if is_kind(j)]))
    lines += ["", _describe_untaught(folder), "Each developer of 10 sessions or more:\n"]
    lines += ["| developer | sessions | median error | 90th percentile | coverage |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    session_counts = Counter(j.row.owner for j in folder)
    for owner, sessions_n in sorted(session_counts.items(), key=lambda item: -item[1]):
        own_sessions = [j for j in folder if j.row.owner == owner]
        if sessions_n >= ESTABLISHED:
            errors, coverage = _format_errors(own_sessions, " | "), format_coverage([own_sessions])
            lines.append(f"| {owner} | {sessions_n} | {errors} | {coverage} |")
    return "\n".join(lines) + "\n"


KINDS: dict[str, Callable[[JudgedRow], bool]] = {
    "Claude Code, main": lambda j: j.row.tool == "claude-code" and not j.row.subagent,
    "Codex, main": lambda j: j.row.tool == "codex" and not j.row.subagent,
    "Codex, subagents": lambda j: j.row.tool == "codex" and j.row.subagent,
    "Pi": lambda j: j.row.tool == "pi",
    "no training data": lambda j: not j.teachers,
}


def format_summary(rows: Sequence[SessionMissCounts], nested: Sequence[JudgedRow]) -> str:
    """Return in ten points which claims about predicted bills are established.

    Args:
        rows: the training table, one row per session.
        nested: sessions judged from the log alone, with intervals by constants that the logs of
            other developers chose.
    """
    judged: dict[Evidence, list[JudgedRow]] = {mode: judge_sessions(rows, mode) for mode in MODES}
    alone, folder, known = (
        [j for j in judged[mode] if j.teachers >= MIN_DEVELOPERS]
        for mode in ("alone", "folder", "known")
    )
    codex = [j for j in judged["folder"] if KINDS["Codex, main"](j)]
    return SUMMARY.format(
        near=MIN_DEVELOPERS,
        long=LONG_CALLS,
        alone=_format_errors(alone),
        folder=_format_errors(folder),
        known=_format_errors(known),
        lifetime=_format_errors(folder, attribute="lifetime"),
        long_alone=_format_errors(select_long_sessions(alone)),
        long_folder=_format_errors(select_long_sessions(folder)),
        long_known=_format_errors(select_long_sessions(known)),
        tools=", ".join(sorted({j.row.tool for j in folder})),
        owners=_count_owners(folder),
        held=format_coverage([nested]),
        held_mean=format_coverage(group_by_owner(nested)),
        width=format_width(nested),
        codex=_format_errors(codex),
        codex_note=_format_note(codex) or "established",
        codex_better=f"{_measure_share_better(codex):.0%}",
    )


SUMMARY = """## What you may believe

1. For a developer **never seen**, the errors of the predicted input cost (median, 90th percentile)
   are {alone} from the log alone; {folder} with a folder of their logs; {known}
   if the rates also learn from those logs. The cache lifetime alone gives {lifetime}.
2. For sessions of {long} calls or more, they are {long_alone}; {long_folder}; {long_known}.
3. This holds for {tools}, {owners} developers, and kinds of session with logs of {near} or more
   other developers.
4. The 80 % interval covers {held} of the sessions ({held_mean} in the mean over developers). Its
   constants were chosen without the developer's logs.
5. Its median width is {width} of the recorded cost; no narrower claim is made about one session.
6. Main sessions of Codex have errors of {codex} ({codex_note}). They beat the lifetime alone in
   only {codex_better} of the bootstrap samples, so no advantage is claimed.
7. No claim or interval is given for Pi, opencode, models behind routers or subagents of Codex.
8. Kinds of session without training logs are predicted by the lifetime alone.
9. Expect one session in ten to exceed the second figure of line 1. Rates of unexplained misses
   differ by developer.
10. A small `closure_error` shows that the prices are right, and nothing about predictions.
"""


def _describe_untaught(judged: Sequence[JudgedRow]) -> str:
    errors = [-j.row.past.lifetime for j in judged if j.row.past and not j.teachers]
    if len(errors) < ESTABLISHED:
        return "Too few sessions are of kinds without training data, so no range is established.\n"
    low, high = np.expm1(np.percentile(errors, [10, 90])).tolist()
    return (
        f"Without training data ({len(errors)} sessions), 80 % of the costs differ by {low:+.0%} "
        f"to {high:+.0%} from the prediction by the lifetime alone.\n"
    )


def _format_head(first_column: str) -> list[str]:
    names = (
        *(
            first_column,
            "sessions",
            "developers",
            "median error",
            "90th percentile",
            "lifetime alone",
        ),
        *("better than lifetime", "coverage", "mean coverage", "interval width", "note"),
    )
    return [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]


def _format_line(label: str, judged: Sequence[JudgedRow]) -> str:
    if not judged:
        return f"| {label} | 0 |" + " |" * 9
    cells = (
        *(label, str(len(judged)), str(_count_owners(judged)), _format_errors(judged, " | ")),
        *(_format_errors(judged, attribute="lifetime"), f"{_measure_share_better(judged):.0%}"),
        *(
            format_coverage([judged]),
            format_coverage(group_by_owner(judged)),
            format_width(judged),
            _format_note(judged),
        ),
    )
    return f"| {' | '.join(cells)} |"


def _format_note(judged: Sequence[JudgedRow]) -> str:
    owners = _count_owners(judged)
    return "" if owners >= ESTABLISHED else f"**not established**: {owners} developers"


def _format_errors(
    judged: Iterable[JudgedRow], separator: str = ", ", attribute: str = "error"
) -> str:
    values = [getattr(j, attribute) for j in judged]
    if not values:
        return f"-{separator}-"
    return f"{median(values):.1%}{separator}{float(np.percentile(values, 90)):.1%}"


def _measure_share_better(judged: Sequence[JudgedRow]) -> float:
    """Return the share of bootstrap samples with both errors below those of the lifetime alone."""
    groups = group_by_owner(judged)
    rng = np.random.default_rng(0)
    better_n = 0
    for _ in range(BOOTSTRAP_SAMPLES):
        sample = [j for index in rng.integers(len(groups), size=len(groups)) for j in groups[index]]
        ours, theirs = [j.error for j in sample], [j.lifetime for j in sample]
        quantiles = np.percentile(ours, [50, 90]) < np.percentile(theirs, [50, 90])
        better_n += bool(quantiles.all())
    return better_n / BOOTSTRAP_SAMPLES


def format_coverage(groups: Sequence[Sequence[JudgedRow]]) -> str:
    """Return the share of intervals that contain the record, with equal weight of each group."""
    covered_by_group = [[j.is_covered for j in group if j.low is not None] for group in groups]
    shares = [fmean(group) for group in covered_by_group if group]
    return f"{fmean(shares):.0%}" if shares else "none"


def format_width(judged: Iterable[JudgedRow]) -> str:
    """Return the median width of the intervals."""
    widths = [j.high - j.low for j in judged if j.low is not None and j.high is not None]
    return f"{median(widths):.0%}" if widths else "none"


def group_by_owner(judged: Sequence[JudgedRow]) -> list[list[JudgedRow]]:
    """Return the judged sessions of each developer."""
    owners = sorted({j.row.owner for j in judged})
    return [[j for j in judged if j.row.owner == owner] for owner in owners]


def _count_owners(judged: Iterable[JudgedRow]) -> int:
    return len({j.row.owner for j in judged})


def select_long_sessions(judged: Iterable[JudgedRow]) -> list[JudgedRow]:
    """Return the sessions of `LONG_CALLS` calls or more."""
    return [j for j in judged if j.row.calls >= LONG_CALLS]
