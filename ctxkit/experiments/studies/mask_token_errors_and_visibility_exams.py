"""Accuracy of replayed masks (predicted against billed tokens) and of visibility marks (against
answers to exam questions), on published runs.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.experiments.compaction_exam_questions import find_answer_source
from ctxkit.experiments.studies.published_runs_and_tables import find_published_file
from ctxkit.tokens.message_token_counting import count_part_chars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from ctxkit.session.session import Session


__all__ = [
    "COMPACTION_EXAM",
    "MASK_COLUMNS",
    "MASK_WINDOWS",
    "NO_MASK",
    "RECORDED_WINDOW",
    "AccuracyByVisibility",
    "measure_accuracy_by_visibility",
    "measure_mask_prediction_errors",
    "measure_runs_under_masks",
    "read_exam_answers",
    "summarise_errors_by_window",
]
__dir__ = make_dunder_dir(__all__)


Unit = Literal["chars", "o200k"]

RECORDED_WINDOW = 5
"""Observations that the recorded runs showed whole."""
MASK_WINDOWS = (1, 2, 3, 4, 5, 6, 8, 10, 20)
NO_MASK = 0
"""Window that stands for no mask."""
MASK_COLUMNS = {
    "task": "SWE-bench Verified's id",
    "calls": "replies in the file",
    "sent": "prompt tokens that the run says it sent, all calls together",
    "usd": "dollars that it says it cost",
    **{
        f"chars_{n}": f"characters of all prompts under a mask of the last {n}"
        for n in MASK_WINDOWS
    },
    f"chars_{NO_MASK}": "the same without a mask",
    **{f"o200k_{n}": f"the same in tokens of o200k, last {n}" for n in MASK_WINDOWS},
    f"o200k_{NO_MASK}": "the same without a mask",
}


def measure_runs_under_masks(folder: Path) -> pd.DataFrame:
    """Measure each run under masks of several windows, one row per run (see `COLUMNS`).

    Runs whose file lacks the reply of the last call are left out: their totals cannot be compared.
    """
    import pandas as pd

    from ctxkit.formats.reading import read

    sessions = [read(p) for p in sorted(folder.glob("*.traj"))]
    rows = [_measure_session(s) for s in sessions if s.details.get("api_calls") == len(s.calls)]
    return pd.DataFrame(rows, columns=list(MASK_COLUMNS))


def _measure_session(session: Session) -> dict[str, Any]:
    from ctxkit import presets, tokens
    from ctxkit.engine.replay import run_replay

    exact, details = tokens.exact_counter(), session.details
    sizes = {
        "chars": [sum(map(count_part_chars, m.parts)) for m in session.messages],
        "o200k": [exact.message(m) for m in session.messages],
    }
    rules = {n: presets.swe_agent_mask(n=n) for n in MASK_WINDOWS} | {NO_MASK: presets.none()}
    row = {"task": session.id, "calls": len(session.calls)}
    row |= {"sent": details["input_tokens"], "usd": details["cost_usd"]}
    for unit, each in sizes.items():
        for n, rule in rules.items():
            prompts = run_replay(session, rule, tokens=each, fixed=0).prompts
            row[f"{unit}_{n}"] = int(prompts.sum())
    return row


def measure_mask_prediction_errors(
    runs: pd.DataFrame,
    window: int = RECORDED_WINDOW,
    unit: Unit = "chars",
    sent: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return predicted / recorded prompt tokens - 1 for each task, cross-validated.

    The only fitted constant, billed tokens per unit, is the median of the other tasks.

    Args:
        runs: the table `masks`.
        window: observations that the replayed mask leaves whole; 0: no mask.
        unit: unit of the message sizes.
        sent: prompt tokens that the runs sent; None: as recorded. (Shuffled values must give large
            errors.)
    """
    sized = runs[f"{unit}_{window}"].to_numpy(dtype=float)
    real = runs["sent"].to_numpy(dtype=float) if sent is None else sent.astype(float)
    rates = real / sized
    # leave-one-out: each task is predicted by the median rate of the others
    others = np.array([np.median(np.delete(rates, i)) for i in range(len(rates))])
    return np.asarray(others * sized / real - 1)


def summarise_errors_by_window(runs: pd.DataFrame, unit: Unit = "chars") -> pd.DataFrame:
    """Summarise the absolute error for each window of the replayed mask.

    Args:
        runs: the table `masks`.
        unit: unit of the message sizes.

    Returns:
        One row per window: `window` (missing for no mask), `median` with its 80 % interval `low`
        and `high`, `nine_tenths` (90 % quantile), `rate` (median of units per billed token).
    """
    import pandas as pd

    rows = []
    for n in (*MASK_WINDOWS, NO_MASK):
        errors = np.abs(measure_mask_prediction_errors(runs, n, unit))
        low, high = _bootstrap_median(errors)
        rows.append(
            {"window": n or None, "median": float(np.median(errors)), "low": low, "high": high}
            | {"nine_tenths": float(np.quantile(errors, 0.9))}
            | {"rate": float((runs[f"{unit}_{n}"] / runs["sent"]).median())}
        )
    return pd.DataFrame(rows).astype({"window": "Int64"})


def _bootstrap_median(errors: NDArray[Any]) -> tuple[float, float]:
    """Return the 80 % bootstrap interval of a median over tasks."""
    random = np.random.default_rng(1729)
    drawn = np.median(errors[random.integers(0, len(errors), (2_000, len(errors)))], axis=1)
    low, high = np.quantile(drawn, [0.1, 0.9])
    return float(low), float(high)


COMPACTION_EXAM = "compaction-exam"
"""Folder with `fixtures.json` and `trials.jsonl` of algal/pi-openai-server-compaction, commit
8a3de2f, `benchmarks/product-defaults`, MIT."""
_DRAWS = 2_000


def read_exam_answers(root: Path | None = None) -> pd.DataFrame:
    """Read each question after Pi's default compaction, with where its answer is.

    The prompt is the recorded summary and the messages that it left. The other published way, the
    provider's own compaction, leaves an encrypted text, of which nobody can say what it shows.

    Args:
        root: the folder of published runs; None: as
        `published_runs_and_tables.find_published_file`.

    Returns:
        One row per question: `history`, `policy`, `expected`, `answer` (shown or gone), `right`.

    Raises:
        BadArguments: the data are not there.
    """
    import pandas as pd

    folder = find_published_file(COMPACTION_EXAM, root)
    fixtures = json.loads((folder / "fixtures.json").read_text(encoding="utf-8"))
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    trials = {trial["fixtureId"]: trial for trial in map(json.loads, lines)}
    rows = [row for f in fixtures for row in _iter_rows(f, trials[f["id"]])]
    return pd.DataFrame(rows)


def _iter_rows(fixture: dict[str, Any], trial: dict[str, Any]) -> Iterator[dict[str, Any]]:
    compaction = trial["piDefault"]
    remaining = [
        *fixture["messages"][compaction["summarizedMessageCount"] :],
        *fixture["sharedTail"],
    ]
    folded = json.dumps([compaction["summary"], remaining]).casefold()
    scores = {s["questionId"]: s for s in trial["evaluations"]["pi_default"]["scores"]}
    for question in fixture["questions"]:
        yield {
            "history": fixture["id"],
            "policy": "pi_default",
            "expected": question["expected"],
            "answer": find_answer_source(question["expected"], None, folded),
            "right": scores[question["id"]]["correct"],
        }


class AccuracyByVisibility(NamedTuple):
    """Right answers among those marked as shown and as gone."""

    histories_n: int
    policies_n: int
    shown: int
    right_shown: int
    gone: int
    right_gone: int
    difference_interval: tuple[float, float]
    """90 % interval of the difference of both shares, histories drawn with replacement."""
    shuffled_difference: float
    """The mean difference where answers are shuffled within each history: chance alone."""

    @property
    def ratio(self) -> float:
        """Share of right answers if shown / if gone; infinite if none of the others is right."""
        gone = self.right_gone / self.gone
        return self.right_shown / self.shown / gone if gone else float("inf")


def measure_accuracy_by_visibility(answers: pd.DataFrame, seed: int = 0) -> AccuracyByVisibility:
    """Compare marks with answers: are those marked as shown answered right more often?

    Args:
        answers: the result of `read_exam_answers`.
        seed: seed of the resampling.
    """
    rng = np.random.default_rng(seed)
    histories = [g for _, g in answers.groupby("history")]
    visible, gone = (answers[answers["answer"] == a]["right"] for a in ("shown", "gone"))
    picks = rng.integers(0, len(histories), (_DRAWS, len(histories)))
    counts = np.array([_count(h["answer"] == "shown", h["right"]) for h in histories])
    sums = counts[picks].sum(axis=1)
    differences = sums[:, 1] / sums[:, 0] - sums[:, 3] / sums[:, 2]
    low, high = np.quantile(differences, [0.05, 0.95])
    return AccuracyByVisibility(
        histories_n=len(histories),
        policies_n=answers["policy"].nunique(),
        shown=len(visible),
        right_shown=int(visible.sum()),
        gone=len(gone),
        right_gone=int(gone.sum()),
        difference_interval=(float(low), float(high)),
        shuffled_difference=_shuffle(histories, seed),
    )


def _count(is_visible: Any, right: Any) -> tuple[int, int, int, int]:
    return (
        int(is_visible.sum()),
        int((is_visible & right).sum()),
        int((~is_visible).sum()),
        int((~is_visible & right).sum()),
    )


def _shuffle(histories: list[pd.DataFrame], seed: int, repeats: int = 50) -> float:
    rng, differences = random.Random(seed), []  # noqa: S311  no secret
    for _ in range(repeats):
        total = np.zeros(4)
        for history in histories:
            right = history["right"].tolist()
            rng.shuffle(right)
            total += _count(history["answer"].to_numpy() == "shown", np.array(right))
        differences.append(total[1] / total[0] - total[3] / total[2])
    return float(np.mean(differences))
