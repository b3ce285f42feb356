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
    DeveloperLogs,
    PastErrorsByEvidence,
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
    from ctxkit.engine.cache_model.input_cost_prediction import InputCostPredictionErrors
    from ctxkit.engine.cache_model.training_counts import PastPredictionError, SessionMissCounts
    from ctxkit.session.session import Session

_USER = re.compile(r"(?:/Users/|/home/|[A-Za-z]:\\+Users\\+)([^/\\]+)")
_NOBODY = frozenset(
    {
        *("root", "runner", "user", "ubuntu", "vscode", "node", "codespace", "dev", "redacted"),
        *("app", "me", "name", "username", "admin", "agent", "project"),
    }
)
"""User names that many people have."""


class DeveloperLog(NamedTuple):
    """A recorded session, where it was published, and whose it is."""

    session: Session
    repository: str
    developer: str


def find_developer(session: Session, repository: str) -> str:
    """Return the user name in a session's paths, else the repository."""
    found = _USER.search(session.cwd or "")
    name = found[1].lower() if found else ""
    return repository if not name or name in _NOBODY else name


def read_corpus(folder: Path) -> list[DeveloperLog]:
    """Read a folder of logs: `owner+name/*` by repository, or one with a `manifest.csv`."""
    manifest = folder / "manifest.csv"
    repositories: dict[str, str] = {}
    if manifest.exists():
        with manifest.open(encoding="utf-8") as lines:
            repositories = {row["file"]: row["repository"] for row in csv.DictReader(lines)}
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
    counted: list[SessionMissCounts] = []
    informative = [log for log in logs if has_cache_reads(log.session)]
    for log in sorted(informative, key=lambda log: -len(log.session.calls)):
        counts = count_session(log.session, 0)
        if len(exclude_copies(counted, counts.session, counts.head)) == len(counted):
            distinct.append(log)
            counted.append(counts)
    return sorted(distinct, key=lambda log: (log.session.format, log.session.id))


def select_distinct_sessions(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions and subagents that can be counted; of copies, the longest one."""
    every = (s for session in sessions for s in (session, *session.children))
    return [log.session for log in select_distinct_logs(DeveloperLog(s, "", "") for s in every)]


def count_logs(logs: Sequence[DeveloperLog]) -> tuple[SessionMissCounts, ...]:
    """Count logs by developer, each with the errors of its prediction by the other developers."""
    names = sorted({log.developer for log in logs})
    by_developer = {
        name: DeveloperLogs(log.session for log in logs if log.developer == name) for name in names
    }
    counts = [
        replace(
            count_session(log.session, idle=by_developer[log.developer].measure_idle(log.session)),
            developer=str(names.index(log.developer) + 1),
        )
        for log in logs
    ]
    return tuple(
        replace(own, past=_judge(log.session, own, counts, by_developer[log.developer]))
        for log, own in zip(logs, counts, strict=True)
    )


def _judge(
    session: Session,
    own: SessionMissCounts,
    counts: Sequence[SessionMissCounts],
    logs: DeveloperLogs,
) -> PastErrorsByEvidence | None:
    """Return how a session's predictions are off, its developer being left out."""
    others = [row for row in counts if row.developer != own.developer]
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
    past: list[PastPredictionError] = [bill.compare_with(recorded) for bill in bills]
    off = round(float(np.log(lifetime / recorded)), 4)
    return PastErrorsByEvidence(cases[0].rates.teachers, off, *past)


def predict_leave_one_out(
    sessions: Sequence[Session], training: Sequence[SessionMissCounts]
) -> list[tuple[Session, InputCostPredictionErrors]]:
    """Predict each session that is long enough, the logs of its developer being left out."""
    owners = {row.session: row.owner for row in training}
    return [
        (s, predict_input_cost(s, [r for r in training if r.owner != owners.get(s.id)]))
        for s in sessions
        if len(get_call_features(s)) >= MIN_CALLS
    ]


def compute_chance_errors(session: Session) -> tuple[float, ...]:
    """Return the errors that are left where a session's own rates are known: chance call by call.

    Each draw in turn is taken for the record, and the median of all draws for the prediction.
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
    """Return the tokens that the misses would lose at random other calls, and those of them at
    calls for which a rule names a cause.
    """
    pairs = zip(get_call_features(session), get_recorded_reads(session), strict=True)
    calls = [(call, read) for call, read in pairs if call.before is not None]
    n_misses = sum(is_miss(call.shared, read) for call, read in calls)
    if not n_misses:
        return 0, 0
    rng = np.random.default_rng(seed)
    picked: NDArray[Any] = rng.choice(len(calls), n_misses, replace=False)
    missed: list[CallFeatures] = [calls[i][0] for i in picked.tolist()]
    named = sum(call.shared for call in missed if find_miss_cause(call) != "unexplained")
    return sum(call.shared for call in missed), named
