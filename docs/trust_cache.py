"""Chapter of docs/trust.md on the prompt cache, and the training table of the cache model."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import trust_calibration
import trust_classes
import trust_developers
from trust_training import (
    compute_chance_errors,
    count_logs,
    count_tokens_named_by_chance,
    predict_leave_one_out,
    read_corpus,
    select_distinct_logs,
    select_distinct_sessions,
)

import ctxkit as ck
from ctxkit.engine.cache_model import training_counts
from ctxkit.engine.cache_model.call_features import MISS_RULES, has_reliable_times
from ctxkit.engine.cache_model.input_cost_prediction import (
    InputCostPredictionErrors,
    compute_compaction_read_error,
    predict_input_cost,
    predict_reads_after_compactions,
    with_random_reads,
    with_shuffled_reads,
)
from ctxkit.engine.cache_model.training_counts import TABLE_FILE, load_training_counts
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.cost.replay_cost_model import closure_error

if TYPE_CHECKING:
    from ctxkit.session.session import Session

TABLE = Path(training_counts.__file__).with_name(TABLE_FILE)
CLAUDE = "claude-code"
Judged: TypeAlias = "list[tuple[Session, InputCostPredictionErrors]]"
_COLUMNS = (
    "session",
    "tool",
    "calls",
    "recorded",
    "error",
    "80 % interval",
    "second half",
    "split",
    "lifetime alone",
    "with a cause",
)
IN_SIGHT = """### What was chosen on these logs

The rules for causes, the classes of calls and the releases at which Claude Code's misses change
come from earlier studies of other logs, some of which are in the table. Rates, read sizes,
shortfalls and interval stretches come only from other developers. Four constants of the calibration
were chosen on these logs; "How the interval is calibrated" names them, and gives the figures
without that choice. Nothing else was chosen by the errors on this page. New developers can have
larger errors, because rates of unexplained misses differ between developers.
"""
GOALS = """
| figure | goal | here | |
| --- | --- | --- | --- |
"""


def learn(folders: list[Path]) -> None:
    """Remake the table from folders of logs, in which each folder is one repository."""
    logs = select_distinct_logs([log for folder in folders for log in read_corpus(folder)])
    rows = sorted(count_logs(logs), key=lambda row: (row.tool, row.session))
    lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
    TABLE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def page(folder: Path) -> str:
    """Return the chapter."""
    sessions = select_distinct_sessions(ck.read_all(folder, progress=False))
    judged = predict_leave_one_out(sessions, load_training_counts())
    priced = [(s, p) for s, p in judged if p.error is not None]
    return "\n".join(
        [
            "## The prompt cache, predicted\n",
            trust_developers.describe_table(load_training_counts()),
            IN_SIGHT,
            trust_developers.page(load_training_counts()),
            trust_calibration.page(load_training_counts()),
            "### Noise and causes, on the logs of this folder\n",
            GOALS.strip(),
            *_goals(priced, sessions),
            "",
            "### Each session of this folder, predicted without the logs of its developer\n",
            _each(priced),
            _unpriced(judged),
            "### Misses by cause\n",
            _causes(sessions),
            trust_classes.page(),
        ]
    )


def _goals(priced: Judged, sessions: list[Session]) -> list[str]:
    cut = [
        e
        for s, _ in priced
        if (e := compute_compaction_read_error(predict_reads_after_compactions(s))) is not None
    ]
    words = "reads after a compaction, predicted from the session's others"
    rows = [_row(words, None, max(cut, default=None))]
    return [*rows, *_noise_rows(priced), *_cause_rows(priced, sessions)]


def _noise_rows(priced: Judged) -> list[str]:
    true = [p.read_split_error or 0.0 for _, p in priced]
    ways = (
        ("shuffled over the calls", with_shuffled_reads, 3.0),
        ("random", with_random_reads, 10.0),
    )
    rows = [_row("split error, median", None, median(true))]
    for words, spoil, least in ways:
        spoilt = [predict_input_cost(spoil(s)).read_split_error or 0.0 for s, _ in priced]
        times = sum(spoilt) / sum(true)
        closed = [abs(closure_error(spoil(s)) or 0.0) for s, _ in priced]
        rows.append(
            f"| split error with reads {words} | {least:.0f} times | {median(spoilt):.1%}, "
            f"{times:.1f} times in the mean; closure error {median(closed):.2%} "
            f"| {_ok(times >= least)} |"
        )
    chance = [compute_chance_errors(s) for s, _ in priced]
    middles = [median(c) for c in chance if c]
    nines = [float(np.percentile(c, 90)) for c in chance if c]
    rows.append(
        _row("floor: chance alone, given a session's own rates, median", None, median(middles))
    )
    rows.append(_row("floor, 90th percentile", None, median(nines)))
    return rows


def _cause_rows(priced: Judged, sessions: list[Session]) -> list[str]:
    with_clock = [s for s in sessions if s.format == CLAUDE and has_reliable_times(s)]
    pairs = [count_tokens_named_by_chance(s, seed) for s, _ in priced for seed in range(20)]
    chance = sum(named for _, named in pairs) / max(sum(lost for lost, _ in pairs), 1)
    return [
        _least(
            "missed tokens with a known cause, Claude Code with reliable times",
            0.80,
            _named(with_clock),
        ),
        _least("the same, all sessions with a price", 0.50, _named([s for s, _ in priced])),
        _row("the same, with misses moved to random calls", 0.10, chance),
    ]


def _named(sessions: list[Session]) -> float:
    lost = [
        m
        for s in sessions
        for m in find_cache_misses(s)
        if m is not None and m.kind != "cold_start"
    ]
    return sum(m.missed_tokens for m in lost if m.kind != "unexplained") / max(
        sum(m.missed_tokens for m in lost), 1
    )


def _each(priced: Judged) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|"]
    for s, p in sorted(priced, key=lambda x: (x[0].format, x[0].id)):
        usd = ck.score(s, loss=False)["input_usd"]
        half = "-" if p.second_half_error is None else f"{p.second_half_error:+.1%}"
        lines.append(
            f"| {s.id[:24]} | {s.format} | {len(p.reads)} | ${usd:,.2f} | {p.error:+.1%} "
            f"| {_interval(p)} | {half} | {p.read_split_error:.1%} "
            f"| {p.lifetime_error:+.1%} | {_named([s]):.0%} |"
        )
    return "\n".join(lines) + "\n"


def _interval(prediction: InputCostPredictionErrors) -> str:
    low, high = prediction.low, prediction.high
    return "none" if low is None or high is None else f"{low:+.0%} to {high:+.0%}"


def _unpriced(judged: Judged) -> str:
    rest = [(s, p) for s, p in judged if p.error is None]
    told = ", ".join(f"{s.id[:24]} ({p.read_split_error:.1%})" for s, p in rest)
    return (
        f"For sessions without a price, only the split error can be computed: {told}.\n"
        if rest
        else ""
    )


def _causes(sessions: list[Session]) -> str:
    found: dict[str, list[int]] = defaultdict(list)
    for s in sessions:
        for m in find_cache_misses(s):
            if m is not None and m.kind != "cold_start":
                found[m.kind].append(m.missed_tokens)
    every = sum(map(sum, found.values())) or 1
    words = {r.name: r.words for r in MISS_RULES} | {"unexplained": "no rule holds"}
    rows = [
        f"| `{name}` | {words[name]} | {len(lost)} | {sum(lost):,} | {sum(lost) / every:.1%} |"
        for name, lost in sorted(found.items(), key=lambda x: -sum(x[1]))
    ]
    head = "| cause | what the log shows | misses | missed tokens | share |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows]) + "\n"


def _row(words: str, most: float | None, value: float | None) -> str:
    if value is None:
        return f"| {words} | | no such session | |"
    goal = "" if most is None else f"at most {most:.0%}"
    return f"| {words} | {goal} | {value:.1%} | {'' if most is None else _ok(value <= most)} |"


def _least(words: str, least: float, value: float) -> str:
    return f"| {words} | at least {least:.0%} | {value:.1%} | {_ok(value >= least)} |"


def _ok(holds: bool) -> str:
    return "reached" if holds else "**missed**"
