"""Count the training data of the cache model by developer, and test the model against chance."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.engine.cache_model.call_features import (
    find_miss_cause,
    get_call_features,
    is_miss,
)
from ctxkit.engine.cache_model.input_cost_prediction import (
    compute_naive_reads,
    make_input_cost_function,
    predict_input_cost,
    prepare_prediction,
)
from ctxkit.engine.cache_model.miss_rate_estimator import MissRateEstimator, simulate_reads
from ctxkit.engine.cache_model.training_counts import (
    MIN_CALLS,
    PastErrorsByAvailableLogs,
    SameDeveloperSessions,
    count_session,
    exclude_copies,
    get_recorded_reads,
    has_cache_reads,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.input_cost_prediction import SessionInputCostPredictionErrors
    from ctxkit.engine.cache_model.training_counts import PastPredictionError, SessionMissCounts
    from ctxkit.session.session import Session

_USER_FOLDER = re.compile(r"(?:/Users/|/home/|[A-Za-z]:\\+Users\\+)([^/\\]+)")
_COMMON_USER_NAMES = frozenset(
    {
        *("root", "runner", "user", "ubuntu", "vscode", "node", "codespace", "dev", "redacted"),
        *("app", "me", "name", "username", "admin", "agent", "project"),
    }
)
"""User names that many people have."""


class DeveloperLog(NamedTuple):
    """A recorded session, the repository that published it, and its developer."""

    session: Session
    repository: str
    developer: str


def find_developer(session: Session, repository: str) -> str:
    """Return the user name in a session's paths, else the repository."""
    match = _USER_FOLDER.search(session.cwd or "")
    name = match[1].lower() if match else ""
    return repository if not name or name in _COMMON_USER_NAMES else name


def read_corpus(folder: Path) -> list[DeveloperLog]:
    """Read a folder of logs: one folder `owner+name` per repository, or one with a manifest.csv."""
    manifest = folder / "manifest.csv"
    repositories: dict[str, str] = {}
    if manifest.exists():
        with manifest.open(encoding="utf-8") as file:
            repositories = {row["file"]: row["repository"] for row in csv.DictReader(file)}
    logs = []
    for session in ck.read_all(folder, progress=False):
        name = (session.path_ or "").removeprefix(str(folder)).lstrip("/")
        repository = repositories.get(name) or name.split("/")[0].replace("+", "/")
        developer = find_developer(session, repository)
        logs += [DeveloperLog(s, repository, developer) for s in (session, *session.children)]
    return logs


def select_distinct_logs(logs: Iterable[DeveloperLog]) -> list[DeveloperLog]:
    """Return the logs that can be counted; of copies, the longest one."""
    distinct: list[DeveloperLog] = []
    distinct_counts: list[SessionMissCounts] = []
    logs_with_reads = [log for log in logs if has_cache_reads(log.session)]
    for log in sorted(logs_with_reads, key=lambda log: -len(log.session.calls)):
        counts = count_session(log.session, 0)
        if len(exclude_copies(distinct_counts, counts.session, counts.head)) == len(
            distinct_counts
        ):
            distinct.append(log)
            distinct_counts.append(counts)
    return sorted(distinct, key=lambda log: (log.session.format, log.session.id))


def select_distinct_sessions(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions and subagents that can be counted; of copies, the longest one."""
    sessions_and_subagents = (
        member for session in sessions for member in (session, *session.children)
    )
    return [
        log.session
        for log in select_distinct_logs(
            DeveloperLog(member, "", "") for member in sessions_and_subagents
        )
    ]


def count_logs(logs: Sequence[DeveloperLog]) -> tuple[SessionMissCounts, ...]:
    """Count logs by developer, each with the errors of its prediction from other developers."""
    names = sorted({log.developer for log in logs})
    by_developer = {
        name: SameDeveloperSessions(log.session for log in logs if log.developer == name)
        for name in names
    }
    counts = [
        replace(
            count_session(log.session, idle=by_developer[log.developer].measure_idle(log.session)),
            developer=str(names.index(log.developer) + 1),
        )
        for log in logs
    ]
    return tuple(
        replace(
            own_counts,
            past=_compute_past_errors(log.session, own_counts, counts, by_developer[log.developer]),
        )
        for log, own_counts in zip(logs, counts, strict=True)
    )


def _compute_past_errors(
    session: Session,
    own_counts: SessionMissCounts,
    counts: Sequence[SessionMissCounts],
    logs: SameDeveloperSessions,
) -> PastErrorsByAvailableLogs | None:
    """Return the errors of a session's predictions from other developers; None: no prediction."""
    others = [row for row in counts if row.developer != own_counts.developer]
    cases = [
        prepare_prediction(session, others, logs, uses_own_logs=False),
        prepare_prediction(session, others),
        prepare_prediction(session, others, logs),
    ]
    costs = cases[0].costs
    if len(cases[0].calls) < MIN_CALLS or costs is None:
        return None
    recorded = float(costs.of(np.array(cases[0].recorded)))
    lifetime = float(costs.of(compute_naive_reads(cases[0].calls)["lifetime"]))
    bills = [case.measure_bill(simulate_reads(case.calls, case.rates)) for case in cases]
    if min(recorded, lifetime, *(bill.point for bill in bills)) <= 0:
        return None
    past_errors: list[PastPredictionError] = [bill.compare_with(recorded) for bill in bills]
    lifetime_error = round(float(np.log(lifetime / recorded)), 4)
    return PastErrorsByAvailableLogs(cases[0].rates.teachers, lifetime_error, *past_errors)


def predict_leave_one_out(
    sessions: Sequence[Session], training: Sequence[SessionMissCounts]
) -> list[tuple[Session, SessionInputCostPredictionErrors]]:
    """Predict each session that is long enough, without the logs of its developer."""
    owners = {row.session: row.owner for row in training}
    return [
        (
            session,
            predict_input_cost(session, [r for r in training if r.owner != owners.get(session.id)]),
        )
        for session in sessions
        if len(get_call_features(session)) >= MIN_CALLS
    ]


def compute_chance_errors(session: Session) -> tuple[float, ...]:
    """Return the errors that remain if a session's own rates are known: chance at each call.

    Each draw in turn is compared, as the record, with the median of all draws, as the prediction.
    """
    calls = get_call_features(session)
    costs = make_input_cost_function(session, calls)
    if costs is None or len(calls) < 2:
        return ()
    counts = count_session(session)
    rates = MissRateEstimator((), counts, first_half=counts)
    dollars = costs.of(simulate_reads(calls, rates).draws)
    return tuple(np.abs(np.median(dollars) / dollars - 1).tolist())


def count_tokens_named_by_chance(session: Session, seed: int = 0) -> tuple[int, int]:
    """Move the misses of a session to random calls, and count their tokens.

    Returns the missed tokens, and those of them at calls for which a rule names a cause.
    """
    pairs = zip(get_call_features(session), get_recorded_reads(session), strict=True)
    calls = [(call, read) for call, read in pairs if call.before is not None]
    n_misses = sum(is_miss(call.shared, read) for call, read in calls)
    if not n_misses:
        return 0, 0
    rng = np.random.default_rng(seed)
    chosen: NDArray[Any] = rng.choice(len(calls), n_misses, replace=False)
    missed_calls: list[CallFeatures] = [calls[i][0] for i in chosen.tolist()]
    named_tokens = sum(
        call.shared for call in missed_calls if find_miss_cause(call) != "unexplained"
    )
    return sum(call.shared for call in missed_calls), named_tokens
