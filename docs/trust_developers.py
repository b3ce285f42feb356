"""Part of docs/trust.md on predictions for developers whose logs were not in the training data."""

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
"""Developers from which a figure counts as established."""
DRAWS = 400
MODES: dict[Evidence, str] = {
    "folder": "a folder of logs, for the time of the last one",
    "alone": "the log alone",
    "known": "the developer's other logs as training data",
}
SOURCES = {
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
"""Public repositories whose logs teach, beside those of CTXKIT_SESSIONS, with their licences."""


class JudgedRow(NamedTuple):
    """A session of the table: its prediction from other developers, compared with its record."""

    row: SessionMissCounts
    teachers: int
    error: float
    """Size of predicted / recorded - 1."""
    lifetime: float
    """The same of the cache's lifetime alone."""
    low: float | None
    """Lower end of the interval, as predicted / recorded - 1; None: there is none."""
    high: float | None

    @property
    def is_held(self) -> bool:
        """True where the interval holds the record."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


def judge(rows: Sequence[SessionMissCounts], evidence: Evidence) -> list[JudgedRow]:
    """Return the judged sessions; errors and stretches of their developers are left out."""
    judged = []
    for row in rows:
        past = row.past
        if past is None:
            continue
        bill = past.get_bill(evidence)
        own = (
            [r for r in rows if r.owner == row.owner and r is not row]
            if evidence == "known"
            else []
        )
        rates = MissRateEstimator([r for r in rows if r.owner != row.owner], row, own=own)
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


def describe_table(rows: Sequence[SessionMissCounts]) -> str:
    """Return who taught, and where their logs were published."""
    tools = Counter(row.tool for row in rows)
    counted = ", ".join(f"{n} of {tool}" for tool, n in sorted(tools.items()))
    owners = len({row.owner for row in rows})
    names = ", ".join(f"{name} ({licence})" for name, licence in SOURCES.items())
    return (
        f"The training data are {len(rows)} recorded sessions and subagents of {owners} developers "
        f"({counted}). A developer is the user name in the paths of a log, or else its repository. "
        "The table stores developers as numbers, with counts, rates and sizes only. A prediction "
        "uses sizes, times, models, events and the lifetime of cache writes, but no cache reads. "
        "Sessions of 8 calls or more whose models have a price are predicted, each from the logs "
        f"of **other developers**. The logs are public: those of CTXKIT_SESSIONS and of {names}.\n"
    )


def page(rows: Sequence[SessionMissCounts]) -> str:
    """Return the part: goals, then each group and each developer."""
    judged: dict[Evidence, list[JudgedRow]] = {mode: judge(rows, mode) for mode in MODES}
    near = {mode: [j for j in js if j.teachers >= MIN_DEVELOPERS] for mode, js in judged.items()}
    lines = ["### Developers never seen\n"]
    lines += [f"Kinds of session with {MIN_DEVELOPERS} or more other developers:\n"]
    lines += _head("evidence")
    for mode, words in MODES.items():
        lines += [_line(f"{words}: 8 calls or more", near[mode])]
        lines += [_line(f"{words}: {LONG_CALLS} or more", select_long(near[mode]))]
    folder = judged["folder"]
    lines += ["\nBy kind of session, with the time of the last log:\n", *_head("kind")]
    for words, of_kind in KINDS.items():
        lines.append(_line(words, [j for j in folder if of_kind(j)]))
    lines += ["", _describe_untaught(folder), "Each developer of 10 sessions or more:\n"]
    lines += ["| developer | sessions | median error | 90th percentile | coverage |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    sessions = Counter(j.row.owner for j in folder)
    for owner, n in sorted(sessions.items(), key=lambda item: -item[1]):
        own = [j for j in folder if j.row.owner == owner]
        if n >= ESTABLISHED:
            lines.append(f"| {owner} | {n} | {_errors(own, ' | ')} | {format_coverage([own])} |")
    return "\n".join(lines) + "\n"


KINDS: dict[str, Callable[[JudgedRow], bool]] = {
    "Claude Code, main": lambda j: j.row.tool == "claude-code" and not j.row.subagent,
    "Codex, main": lambda j: j.row.tool == "codex" and not j.row.subagent,
    "Codex, subagents": lambda j: j.row.tool == "codex" and j.row.subagent,
    "Pi": lambda j: j.row.tool == "pi",
    "no training data": lambda j: not j.teachers,
}


def summarise(rows: Sequence[SessionMissCounts], nested: Sequence[JudgedRow]) -> str:
    """Return in ten lines what a reader may believe of the predicted bills.

    Args:
        rows: the table of what sessions taught.
        nested: sessions judged from the log alone, with intervals by constants that the logs of
            other developers chose.
    """
    judged: dict[Evidence, list[JudgedRow]] = {mode: judge(rows, mode) for mode in MODES}
    alone, folder, known = (
        [j for j in judged[mode] if j.teachers >= MIN_DEVELOPERS]
        for mode in ("alone", "folder", "known")
    )
    codex = [j for j in judged["folder"] if KINDS["Codex, main"](j)]
    return SUMMARY.format(
        near=MIN_DEVELOPERS,
        long=LONG_CALLS,
        alone=_errors(alone),
        folder=_errors(folder),
        known=_errors(known),
        lifetime=_errors(folder, attribute="lifetime"),
        long_alone=_errors(select_long(alone)),
        long_folder=_errors(select_long(folder)),
        long_known=_errors(select_long(known)),
        tools=", ".join(sorted({j.row.tool for j in folder})),
        owners=_owners(folder),
        held=format_coverage([nested]),
        held_mean=format_coverage(group_by_owner(nested)),
        width=format_width(nested),
        codex=_errors(codex),
        codex_note=_note(codex) or "established",
        codex_better=f"{_share_better(codex):.0%}",
    )


SUMMARY = """## What you may believe

1. For a developer **never seen**, the predicted input cost of a session has an error of {alone}
   (median, 90th percentile) from the log alone, {folder} with a folder of their logs, and {known}
   if the rates also learn from those logs. The cache lifetime alone gives {lifetime}.
2. Sessions of {long} calls or more: {long_alone}; {long_folder}; {long_known}.
3. This holds for {tools}, {owners} developers, and kinds of session with training data from
   {near} or more other developers.
4. The 80 % interval covers {held} of the sessions ({held_mean} in the mean over developers), with
   constants chosen without the logs of the developer in question.
5. Its median width is {width} of the recorded cost; no narrower claim is made about one session.
6. Main sessions of Codex: {codex} ({codex_note}). They beat the lifetime alone in only
   {codex_better} of the bootstrap samples of developers, so no advantage is claimed.
7. Pi, opencode, models behind routers and subagents of Codex: no claim, and no interval.
8. Without training logs for the tool, model family and kind of agent, the prediction uses the
   lifetime alone, with the range of its past errors.
9. Unexplained misses differ by developer: expect one session in ten to exceed the second figure
   of line 1.
10. A small `closure_error` shows that the prices are right. It says nothing about predictions.
"""


def _describe_untaught(judged: Sequence[JudgedRow]) -> str:
    errors = [-j.row.past.lifetime for j in judged if j.row.past and not j.teachers]
    if len(errors) < ESTABLISHED:
        return "Too few sessions are of kinds without training data, so no range is established.\n"
    low, high = np.expm1(np.percentile(errors, [10, 90])).tolist()
    return (
        f"For {len(errors)} sessions of kinds without training data, 80 % of the costs differ by "
        f"{low:+.0%} to {high:+.0%} from the prediction by the lifetime alone.\n"
    )


def _head(first: str) -> list[str]:
    names = (
        *(first, "sessions", "developers", "median error", "90th percentile", "lifetime alone"),
        *("better than lifetime", "coverage", "mean coverage", "interval width", "note"),
    )
    return [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]


def _line(words: str, judged: Sequence[JudgedRow]) -> str:
    if not judged:
        return f"| {words} | 0 |" + " |" * 9
    cells = (
        *(words, str(len(judged)), str(_owners(judged)), _errors(judged, " | ")),
        *(_errors(judged, attribute="lifetime"), f"{_share_better(judged):.0%}"),
        *(
            format_coverage([judged]),
            format_coverage(group_by_owner(judged)),
            format_width(judged),
            _note(judged),
        ),
    )
    return f"| {' | '.join(cells)} |"


def _note(judged: Sequence[JudgedRow]) -> str:
    owners = _owners(judged)
    return "" if owners >= ESTABLISHED else f"**not established**: {owners} developers"


def _errors(judged: Iterable[JudgedRow], between: str = ", ", attribute: str = "error") -> str:
    values = [getattr(j, attribute) for j in judged]
    if not values:
        return f"-{between}-"
    return f"{median(values):.1%}{between}{float(np.percentile(values, 90)):.1%}"


def _share_better(judged: Sequence[JudgedRow]) -> float:
    """Return in how many draws of developers both errors are below those of the lifetime alone."""
    groups = group_by_owner(judged)
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(DRAWS):
        drawn = [j for at in rng.integers(len(groups), size=len(groups)) for j in groups[at]]
        ours, theirs = [j.error for j in drawn], [j.lifetime for j in drawn]
        quantiles = np.percentile(ours, [50, 90]) < np.percentile(theirs, [50, 90])
        better += bool(quantiles.all())
    return better / DRAWS


def format_coverage(groups: Sequence[Sequence[JudgedRow]]) -> str:
    """Return the share of intervals that hold the record, each group counting alike."""
    known = [[j.is_held for j in group if j.low is not None] for group in groups]
    shares = [fmean(group) for group in known if group]
    return f"{fmean(shares):.0%}" if shares else "none"


def format_width(judged: Iterable[JudgedRow]) -> str:
    """Return the median width of the intervals."""
    widths = [j.high - j.low for j in judged if j.low is not None and j.high is not None]
    return f"{median(widths):.0%}" if widths else "none"


def group_by_owner(judged: Sequence[JudgedRow]) -> list[list[JudgedRow]]:
    """Return the judged sessions of each developer."""
    owners = sorted({j.row.owner for j in judged})
    return [[j for j in judged if j.row.owner == owner] for owner in owners]


def _owners(judged: Iterable[JudgedRow]) -> int:
    return len({j.row.owner for j in judged})


def select_long(judged: Iterable[JudgedRow]) -> list[JudgedRow]:
    """Return those of `LONG_CALLS` calls or more."""
    return [j for j in judged if j.row.calls >= LONG_CALLS]
