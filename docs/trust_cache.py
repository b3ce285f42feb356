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
    SessionInputCostPredictionErrors,
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
PredictedSessions: TypeAlias = "list[tuple[Session, SessionInputCostPredictionErrors]]"
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
GOALS_HEAD = """
| figure | goal | here | |
| --- | --- | --- | --- |
"""


def write_training_table(folders: list[Path]) -> None:
    """Write the training table from folders of logs, each with one folder per repository."""
    logs = select_distinct_logs([log for folder in folders for log in read_corpus(folder)])
    rows = sorted(count_logs(logs), key=lambda row: (row.tool, row.session))
    lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
    TABLE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def format_chapter(folder: Path) -> str:
    """Return the chapter in Markdown."""
    sessions = select_distinct_sessions(ck.read_all(folder, progress=False))
    predicted = predict_leave_one_out(sessions, load_training_counts())
    priced = [(s, p) for s, p in predicted if p.error is not None]
    return "\n".join(
        [
            "## The prompt cache, predicted\n",
            trust_developers.describe_training_table(load_training_counts()),
            trust_developers.format_section(load_training_counts()),
            trust_calibration.format_section(load_training_counts()),
            "### Noise and causes, on the logs of this folder\n",
            GOALS_HEAD.strip(),
            *_format_goal_rows(priced, sessions),
            "",
            "### Each session of this folder\n",
            _format_session_table(predicted),
            "### Misses by cause\n",
            _format_cause_table(sessions),
            trust_classes.format_section(),
        ]
    )


def _format_goal_rows(priced: PredictedSessions, sessions: list[Session]) -> list[str]:
    errors = [
        error
        for session, _ in priced
        if (error := compute_compaction_read_error(predict_reads_after_compactions(session)))
        is not None
    ]
    label = "reads after a compaction, predicted from the session's others"
    rows = [_format_row_at_most(label, None, max(errors, default=None))]
    return [*rows, *_format_noise_rows(priced), *_format_cause_rows(priced, sessions)]


def _format_noise_rows(priced: PredictedSessions) -> list[str]:
    split_errors = [p.read_split_error or 0.0 for _, p in priced]
    noises = (
        ("shuffled over the calls", with_shuffled_reads, 3.0),
        ("random", with_random_reads, 10.0),
    )
    rows = [_format_row_at_most("split error, median", None, median(split_errors))]
    for label, add_noise, min_factor in noises:
        noisy_errors = [predict_input_cost(add_noise(s)).read_split_error or 0.0 for s, _ in priced]
        factor = sum(noisy_errors) / sum(split_errors)
        closure_errors = [abs(closure_error(add_noise(s)) or 0.0) for s, _ in priced]
        rows.append(
            f"| split error with reads {label} | {min_factor:.0f} times "
            f"| {median(noisy_errors):.1%}, {factor:.1f} times in the mean; "
            f"closure error {median(closure_errors):.2%} "
            f"| {_format_verdict(factor >= min_factor)} |"
        )
    chance_errors = [compute_chance_errors(s) for s, _ in priced]
    medians = [median(errors) for errors in chance_errors if errors]
    ninetieth_percentiles = [float(np.percentile(errors, 90)) for errors in chance_errors if errors]
    rows.append(
        _format_row_at_most(
            "floor: chance alone, given a session's own rates, median", None, median(medians)
        )
    )
    rows.append(_format_row_at_most("floor, 90th percentile", None, median(ninetieth_percentiles)))
    return rows


def _format_cause_rows(priced: PredictedSessions, sessions: list[Session]) -> list[str]:
    with_reliable_times = [s for s in sessions if s.format == CLAUDE and has_reliable_times(s)]
    pairs = [count_tokens_named_by_chance(s, seed) for s, _ in priced for seed in range(20)]
    chance_share = sum(named for _, named in pairs) / max(sum(missed for missed, _ in pairs), 1)
    return [
        _format_row_at_least(
            "missed tokens with a known cause, Claude Code with reliable times",
            0.80,
            _measure_named_share(with_reliable_times),
        ),
        _format_row_at_least(
            "the same, all sessions with a price",
            0.50,
            _measure_named_share([s for s, _ in priced]),
        ),
        _format_row_at_most("the same, with misses moved to random calls", 0.10, chance_share),
    ]


def _measure_named_share(sessions: list[Session]) -> float:
    misses = [
        miss
        for s in sessions
        for miss in find_cache_misses(s)
        if miss is not None and miss.kind != "cold_start"
    ]
    return sum(miss.missed_tokens for miss in misses if miss.kind != "unexplained") / max(
        sum(miss.missed_tokens for miss in misses), 1
    )


def _format_session_table(predicted: PredictedSessions) -> str:
    """Return a row for each session; without a price it has a split error only."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|"]
    for session, prediction in sorted(
        predicted, key=lambda x: (x[1].error is None, x[0].format, x[0].id)
    ):
        usd = "no price"
        if prediction.error is not None:
            usd = f"${ck.score(session, loss=False)['input_usd']:,.2f}"
        lines.append(
            f"| {session.id[:24]} | {session.format} | {len(prediction.reads)} | {usd} "
            f"| {_format_error(prediction.error)} | {_format_interval(prediction)} "
            f"| {_format_error(prediction.second_half_error)} "
            f"| {prediction.read_split_error:.1%} | {_format_error(prediction.lifetime_error)} "
            f"| {_measure_named_share([session]):.0%} |"
        )
    return "\n".join(lines) + "\n"


def _format_error(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"


def _format_interval(prediction: SessionInputCostPredictionErrors) -> str:
    low, high = prediction.low, prediction.high
    return "none" if low is None or high is None else f"{low:+.0%} to {high:+.0%}"


def _format_cause_table(sessions: list[Session]) -> str:
    tokens_by_cause: dict[str, list[int]] = defaultdict(list)
    for session in sessions:
        for miss in find_cache_misses(session):
            if miss is not None and miss.kind != "cold_start":
                tokens_by_cause[miss.kind].append(miss.missed_tokens)
    all_tokens = sum(map(sum, tokens_by_cause.values())) or 1
    descriptions = {rule.name: rule.words for rule in MISS_RULES} | {"unexplained": "no rule holds"}
    rows = [
        f"| `{name}` | {descriptions[name]} | {len(missed_tokens)} | {sum(missed_tokens):,} "
        f"| {sum(missed_tokens) / all_tokens:.1%} |"
        for name, missed_tokens in sorted(tokens_by_cause.items(), key=lambda x: -sum(x[1]))
    ]
    head = "| cause | what the log shows | misses | missed tokens | share |"
    return "\n".join([head, "| --- | --- | --- | --- | --- |", *rows]) + "\n"


def _format_row_at_most(label: str, limit: float | None, value: float | None) -> str:
    if value is None:
        return f"| {label} | | no such session | |"
    if limit is None:
        return f"| {label} |  | {value:.1%} |  |"
    return f"| {label} | at most {limit:.0%} | {value:.1%} | {_format_verdict(value <= limit)} |"


def _format_row_at_least(label: str, limit: float, value: float) -> str:
    return f"| {label} | at least {limit:.0%} | {value:.1%} | {_format_verdict(value >= limit)} |"


def _format_verdict(is_met: bool) -> str:
    return "reached" if is_met else "**missed**"
